//! Decides which connections a server keeps open, and how much memory the requests and answers of
//! each connection may use.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::http_server::Limits;

/// The minimum time for which a new connection is kept open, even if another connection waits for
/// admission. It is enough to read a request that the client sends immediately.
const GRACE_PERIOD: Duration = Duration::from_millis(100);

/// The factor for the minimum time of a connection whose own client address opens a further one.
/// The minimum time is this factor, multiplied by the maximum number of connections. With 128
/// connections the product is 128 milliseconds. So the clients of one address cannot begin more
/// than a thousand TLS handshakes per second.
const SAME_ADDRESS_GRACE_PERIOD: Duration = Duration::from_millis(1);

/// The open connections of a server, and the memory that their requests and answers use.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    last_id: u64,
    connections: BTreeMap<u64, Connection>,
    /// The number of bytes of memory that all connections use, added up.
    memory_bytes: usize,
}

#[derive(Debug)]
struct Connection {
    address: IpAddr,
    /// The time at which the connection was admitted, or at which its last request was answered.
    idle_start: Instant,
    /// Whether the server has answered at least one request on this connection.
    was_answered: bool,
    /// The number of bytes of memory that the requests and answers of this connection use.
    memory_bytes: usize,
    /// Notifies the task of the connection that it must close the connection.
    close_notify: Arc<Notify>,
}

/// The permission to serve one connection. If the permit is dropped, the server can admit another
/// connection.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
    close_notify: Arc<Notify>,
}

/// An amount of memory that one connection may use. If the lease is dropped, the server gets the
/// memory back.
#[derive(Debug)]
pub(crate) struct MemoryLease {
    connections: Arc<Connections>,
    id: u64,
    bytes: usize,
}

/// The error of a lease that cannot grow. The server's memory limit is reached, and the server
/// would have to close the connection of this lease itself.
#[derive(Debug)]
pub(crate) struct MemoryLimitError;

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            table: Mutex::default(),
        }
    }

    fn lock_table(&self) -> MutexGuard<'_, ConnectionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits one connection from the queue `waiting_clients`. Removes it from the queue, and
    /// returns it with its permit. The chosen connection is the oldest one of the client address
    /// that has the fewest open connections. If the maximum number of connections is open, one of
    /// them is closed.
    ///
    /// Returns `None` if the queue is empty, or if the connection that must be closed is still in
    /// its grace period.
    pub(crate) fn admit<T>(
        self: &Arc<Self>,
        waiting_clients: &mut VecDeque<(IpAddr, T)>,
    ) -> Option<(ConnectionPermit, T)> {
        let mut table = self.lock_table();
        let index =
            if self.limits.max_connections - table.connections.len() >= waiting_clients.len() {
                0
            } else {
                let connection_counts = table.sum_weights_by_address(|_| 1);
                let count_connections = |(_, (address, _)): &(usize, &(IpAddr, T))| {
                    connection_counts.get(address).copied().unwrap_or(0)
                };
                let (index, _) = waiting_clients
                    .iter()
                    .enumerate()
                    .min_by_key(count_connections)?;
                index
            };
        let (address, _) = waiting_clients.get(index)?;
        let (id, close_notify) = table.insert(*address, self.limits.max_connections)?;
        let (_, client) = waiting_clients.remove(index)?;
        let permit = ConnectionPermit {
            connections: Arc::clone(self),
            id,
            close_notify,
        };
        Some((permit, client))
    }
}

impl ConnectionTable {
    /// Inserts a connection. If the table already has `max_connections` connections, one of them is
    /// closed first. Returns `None` if that one is still in its grace period.
    fn insert(&mut self, address: IpAddr, max_connections: usize) -> Option<(u64, Arc<Notify>)> {
        if self.connections.len() >= max_connections {
            let id = self.choose_connection_to_close(
                Some(address),
                |_| 1,
                |connection| (connection.was_answered, connection.idle_start),
            )?;
            let connection_to_close = self.connections.get(&id)?;
            let mut grace_period = GRACE_PERIOD;
            if connection_to_close.address == address {
                let factor = u32::try_from(max_connections).unwrap_or(u32::MAX);
                grace_period = grace_period.max(SAME_ADDRESS_GRACE_PERIOD.saturating_mul(factor));
            }
            if connection_to_close.idle_start.elapsed() < grace_period {
                return None;
            }
            self.remove(id);
        }
        self.last_id += 1;
        let close_notify = Arc::new(Notify::new());
        let connection = Connection {
            address,
            idle_start: Instant::now(),
            was_answered: false,
            memory_bytes: 0,
            close_notify: Arc::clone(&close_notify),
        };
        self.connections.insert(self.last_id, connection);
        Some((self.last_id, close_notify))
    }

    fn sum_weights_by_address(
        &self,
        get_weight: impl Fn(&Connection) -> usize,
    ) -> BTreeMap<IpAddr, usize> {
        let mut sums = BTreeMap::new();
        for connection in self.connections.values() {
            *sums.entry(connection.address).or_default() += get_weight(connection);
        }
        sums
    }

    /// Chooses the connection that must be closed, and returns its id. First the client address
    /// with the largest total weight is chosen. Of its connections, the one with the smallest
    /// `get_sort_key` is returned. A connection from `new_address` waits for admission, and adds
    /// one to the total weight of this address.
    fn choose_connection_to_close<O: Ord>(
        &self,
        new_address: Option<IpAddr>,
        get_weight: impl Fn(&Connection) -> usize,
        get_sort_key: impl Fn(&Connection) -> O,
    ) -> Option<u64> {
        let mut sums = self.sum_weights_by_address(get_weight);
        if let Some(address) = new_address {
            *sums.entry(address).or_default() += 1;
        }
        let (heaviest_address, _) = sums.into_iter().max_by_key(|(_, sum)| *sum)?;
        self.connections
            .iter()
            .filter(|(_, connection)| connection.address == heaviest_address)
            .min_by_key(|(_, connection)| get_sort_key(connection))
            .map(|(id, _)| *id)
    }

    /// Changes the memory usage of a connection from `old_bytes` to `new_bytes`. Does nothing if
    /// the connection was closed, because its memory is no longer counted.
    fn update_memory_usage(&mut self, id: u64, old_bytes: usize, new_bytes: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.memory_bytes = connection.memory_bytes - old_bytes + new_bytes;
            self.memory_bytes = self.memory_bytes - old_bytes + new_bytes;
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.memory_bytes -= connection.memory_bytes;
            connection.close_notify.notify_one();
        }
    }
}

impl ConnectionPermit {
    /// Waits until the server needs the permit or the memory of this connection for another one.
    /// The caller must then close this connection.
    pub(crate) async fn wait_for_close_request(&self) {
        self.close_notify.notified().await;
    }

    /// Records that a request of this connection was answered. Connections without an answer are
    /// closed first, then those that have been idle for the longest time.
    pub(crate) fn record_answer(&self) {
        if let Some(connection) = self.connections.lock_table().connections.get_mut(&self.id) {
            connection.was_answered = true;
            connection.idle_start = Instant::now();
        }
    }

    /// Returns a memory lease for the connection. Its size is 0 bytes at first.
    pub(crate) fn lease_memory(&self) -> MemoryLease {
        MemoryLease {
            connections: Arc::clone(&self.connections),
            id: self.id,
            bytes: 0,
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.lock_table().remove(self.id);
    }
}

impl MemoryLease {
    /// Changes the size of the lease to `bytes`. If the memory limit is exceeded, the server finds
    /// the client address that uses the most memory. It closes the largest connection of this
    /// address. If this is the connection of the lease itself, the call fails and the lease is not
    /// changed. So a large request does not displace small requests.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), MemoryLimitError> {
        let mut table = self.connections.lock_table();
        if !table.connections.contains_key(&self.id) {
            return Err(MemoryLimitError);
        }
        table.update_memory_usage(self.id, self.bytes, bytes);
        while table.memory_bytes > self.connections.limits.max_memory_bytes {
            let get_memory_bytes = |connection: &Connection| connection.memory_bytes;
            let largest_first = |connection: &Connection| Reverse(connection.memory_bytes);
            match table.choose_connection_to_close(None, get_memory_bytes, largest_first) {
                Some(id) if id != self.id => table.remove(id),
                _ => {
                    table.update_memory_usage(self.id, bytes, self.bytes);
                    return Err(MemoryLimitError);
                }
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        // The error is ignored. It only occurs if the connection was closed, and the memory of a
        // closed connection is no longer counted.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_the_address_with_fewest_are_admitted_first() {
        let connections = Arc::new(Connections::new(Limits {
            max_connections: 4,
            ..Limits::PAGE_SERVER
        }));
        let [hostile, honest] = [66, 1].map(|last| IpAddr::from([127, 0, 0, last]));
        let mut waiting: VecDeque<_> = (0..6).map(|client| (hostile, client)).collect();
        waiting.push_back((honest, 6));
        waiting.push_back((honest, 7));
        let mut admitted = Vec::new();
        let mut admit_all = || {
            while let Some(connection) = connections.admit(&mut waiting) {
                admitted.push(connection);
            }
            let clients = admitted.iter().map(|(_, client)| *client);
            clients.collect::<Vec<_>>()
        };
        assert_eq!(admit_all(), [0, 6, 1, 7]);
        std::thread::sleep(GRACE_PERIOD);
        // Each new connection replaces one of its own address.
        assert_eq!(admit_all()[4..], [2, 3]);
    }
}
