//! Decides which connections a server keeps open, and how much memory each of them may use for
//! bodies and answers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Limits;

/// The time for which a new connection is not closed in favour of another one, so that the server
/// can read a request that was sent with the connection.
const GRACE: Duration = Duration::from_millis(100);

/// The additional protection of a connection against clients of its own address, for each
/// connection that the server can have. A server for 128 connections closes none for another
/// client of the same address in the first 128 milliseconds, so that the clients of one address
/// cannot begin more than a thousand TLS handshakes in a second.
const SAME_ADDRESS_GRACE: Duration = Duration::from_millis(1);

/// The open connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    table: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    last_id: u64,
    connections: BTreeMap<u64, Connection>,
    /// The memory in bytes that all connections use together.
    memory: usize,
}

#[derive(Debug)]
struct Connection {
    address: IpAddr,
    /// The time at which the connection was admitted, or at which its last request was answered.
    idle_since: Instant,
    /// Whether the server has answered a request of the connection.
    was_answered: bool,
    /// The memory in bytes that the connection's bodies and answers use.
    memory: usize,
    /// Is notified when the connection must end.
    revocation: Arc<Notify>,
}

/// The permission to serve one connection. Dropping the permit lets the server admit another one.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    id: u64,
    revocation: Arc<Notify>,
}

/// Memory that one connection may use. Dropping the lease gives the memory back to the server.
#[derive(Debug)]
pub(crate) struct MemoryLease {
    connections: Arc<Connections>,
    id: u64,
    bytes: usize,
}

/// The error of a lease that cannot grow: the server's memory is used up, and this connection is
/// the next one that would have to give memory back.
#[derive(Debug)]
pub(crate) struct OutOfMemory;

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

    /// Removes a connection from the queue `waiting` and returns it with its permit. The
    /// connection is the oldest one of the address with the fewest open connections. If the
    /// server already has as many connections as it may have, an open one is closed. Returns
    /// `None` if the queue is empty, or if the connection that would have to be closed is still
    /// protected because it is new.
    pub(crate) fn admit<T>(
        self: &Arc<Self>,
        waiting: &mut VecDeque<(IpAddr, T)>,
    ) -> Option<(ConnectionPermit, T)> {
        let mut table = self.lock_table();
        let index = if self.limits.connections - table.connections.len() >= waiting.len() {
            0
        } else {
            let connection_counts = table.sum_by_address(|_| 1);
            let open_connections = |(_, (address, _)): &(usize, &(IpAddr, T))| {
                connection_counts.get(address).copied().unwrap_or(0)
            };
            let (index, _) = waiting.iter().enumerate().min_by_key(open_connections)?;
            index
        };
        let (address, _) = waiting.get(index)?;
        let (id, revocation) = table.insert(*address, self.limits.connections)?;
        let (_, client) = waiting.remove(index)?;
        let permit = ConnectionPermit {
            connections: Arc::clone(self),
            id,
            revocation,
        };
        Some((permit, client))
    }
}

impl ConnectionTable {
    /// Inserts a connection. A table with `limit` connections first closes one of them. Returns
    /// `None` if that connection is protected.
    fn insert(&mut self, address: IpAddr, limit: usize) -> Option<(u64, Arc<Notify>)> {
        if self.connections.len() >= limit {
            let id = self.choose_connection_to_close(
                Some(address),
                |_| 1,
                |connection| (connection.was_answered, connection.idle_since),
            )?;
            let closed = self.connections.get(&id)?;
            let mut grace = GRACE;
            if closed.address == address {
                let limit = u32::try_from(limit).unwrap_or(u32::MAX);
                grace = grace.max(SAME_ADDRESS_GRACE.saturating_mul(limit));
            }
            if closed.idle_since.elapsed() < grace {
                return None;
            }
            self.remove(id);
        }
        self.last_id += 1;
        let revocation = Arc::new(Notify::new());
        let connection = Connection {
            address,
            idle_since: Instant::now(),
            was_answered: false,
            memory: 0,
            revocation: Arc::clone(&revocation),
        };
        self.connections.insert(self.last_id, connection);
        Some((self.last_id, revocation))
    }

    /// Returns, for each client address, the sum of the weights of its connections.
    fn sum_by_address(&self, weight: impl Fn(&Connection) -> usize) -> BTreeMap<IpAddr, usize> {
        let mut sums = BTreeMap::new();
        for connection in self.connections.values() {
            *sums.entry(connection.address).or_default() += weight(connection);
        }
        sums
    }

    /// Returns the id of the connection to close. The connection belongs to the client address
    /// with the largest sum of `weight`, and is the smallest one by `order` among the connections
    /// of that address. The address of a connection that waits for admission, `newcomer`, counts
    /// as if it had one connection more.
    fn choose_connection_to_close<O: Ord>(
        &self,
        newcomer: Option<IpAddr>,
        weight: impl Fn(&Connection) -> usize,
        order: impl Fn(&Connection) -> O,
    ) -> Option<u64> {
        let mut sums = self.sum_by_address(weight);
        if let Some(address) = newcomer {
            *sums.entry(address).or_default() += 1;
        }
        let (heaviest_address, _) = sums.into_iter().max_by_key(|(_, sum)| *sum)?;
        self.connections
            .iter()
            .filter(|(_, connection)| connection.address == heaviest_address)
            .min_by_key(|(_, connection)| order(connection))
            .map(|(id, _)| *id)
    }

    /// Replaces `old` bytes of a connection's memory by `new` bytes. An id without a connection
    /// is ignored: the connection was closed, and its memory is no longer counted.
    fn change_memory(&mut self, id: u64, old: usize, new: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.memory = connection.memory - old + new;
            self.memory = self.memory - old + new;
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.memory -= connection.memory;
            connection.revocation.notify_one();
        }
    }
}

impl ConnectionPermit {
    /// Waits until the server needs the connection's place or memory for another one. The caller
    /// then closes the connection.
    pub(crate) async fn wait_for_revocation(&self) {
        self.revocation.notified().await;
    }

    /// Records that a request was answered. Connections that were never answered are closed
    /// before those that were, and then the one that has been idle the longest.
    pub(crate) fn record_answer(&self) {
        if let Some(connection) = self.connections.lock_table().connections.get_mut(&self.id) {
            connection.was_answered = true;
            connection.idle_since = Instant::now();
        }
    }

    /// Returns a lease of 0 bytes of memory for the connection.
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
    /// Changes the size of the lease to `bytes`. If the server has not enough memory, it closes
    /// the largest connection of the client address that uses the most. If that is the connection
    /// of this lease, the lease stays as it is and the call fails, so that a large request does
    /// not displace small ones.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        let mut table = self.connections.lock_table();
        if !table.connections.contains_key(&self.id) {
            return Err(OutOfMemory);
        }
        table.change_memory(self.id, self.bytes, bytes);
        while table.memory > self.connections.limits.memory {
            let memory = |connection: &Connection| connection.memory;
            let largest_first = |connection: &Connection| Reverse(connection.memory);
            match table.choose_connection_to_close(None, memory, largest_first) {
                Some(id) if id != self.id => table.remove(id),
                _ => {
                    table.change_memory(self.id, bytes, self.bytes);
                    return Err(OutOfMemory);
                }
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        // Making a lease smaller fails only if its connection was closed before. The memory of a
        // closed connection has already been given back.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_the_address_with_fewest_are_admitted_first() {
        let connections = Arc::new(Connections::new(Limits {
            connections: 4,
            ..Limits::PAGES
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
        std::thread::sleep(GRACE);
        // Each new connection replaces one of its own address.
        assert_eq!(admit_all()[4..], [2, 3]);
    }
}
