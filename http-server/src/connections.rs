//! The open connections, and the memory of their bodies and answers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Limits;

/// The time for which a new connection keeps its place in any case, so that a request that
/// arrived with it is read.
const GRACE: Duration = Duration::from_millis(100);

/// The time, for each place, for which a connection keeps its place against other clients of
/// its own address. Clients that connect again and again can so begin at most a thousand
/// handshakes in a second.
const OWN_GRACE: Duration = Duration::from_millis(1);

/// The open connections of a server.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    state: Mutex<ConnectionTable>,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    last: u64,
    connections: BTreeMap<u64, Connection>,
    /// The sum of the memory of all connections, in bytes.
    memory: usize,
}

#[derive(Debug)]
struct Connection {
    from: IpAddr,
    /// The time at which the connection was opened, or at which its last request was answered.
    since: Instant,
    was_answered: bool,
    memory: usize,
    close: Arc<Notify>,
}

/// A place among the open connections, which is free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    connections: Arc<Connections>,
    id: u64,
    close: Arc<Notify>,
}

/// Memory of a connection, which is free again when this value is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    connections: Arc<Connections>,
    id: u64,
    bytes: usize,
}

/// No memory is left, and no other connection has more memory than this one.
#[derive(Debug)]
pub(crate) struct NoMemory;

impl Connections {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ConnectionTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a place for a waiting connection, which is the first one of the address with
    /// the fewest open connections. If all places are taken, another connection is closed,
    /// unless it is new. Returns `None` if there is no place.
    pub(crate) fn enter<T>(
        self: &Arc<Self>,
        waiting: &mut VecDeque<(IpAddr, T)>,
    ) -> Option<(OpenConnection, T)> {
        let mut state = self.state();
        let index = if self.limits.connections - state.connections.len() >= waiting.len() {
            0
        } else {
            let connection_counts = state.sum_by_address(|_| 1);
            let has = |(_, (from, _)): &(usize, &(IpAddr, T))| {
                connection_counts.get(from).copied().unwrap_or(0)
            };
            let (index, _) = waiting.iter().enumerate().min_by_key(has)?;
            index
        };
        let (from, _) = waiting.get(index)?;
        let (id, close) = state.enter(*from, self.limits.connections)?;
        let (_, client) = waiting.remove(index)?;
        let open = Arc::clone(self);
        Some((
            OpenConnection {
                connections: open,
                id,
                close,
            },
            client,
        ))
    }
}

impl ConnectionTable {
    fn enter(&mut self, from: IpAddr, limit: usize) -> Option<(u64, Arc<Notify>)> {
        if self.connections.len() >= limit {
            let id = self.choose_connection_to_close(
                Some(from),
                |_| 1,
                |one| (one.was_answered, one.since),
            )?;
            let own = u32::try_from(limit).map_or(Duration::MAX, |limit| limit * OWN_GRACE);
            let is_old = |connection: &Connection| {
                let grace = if connection.from == from { own } else { GRACE };
                connection.since.elapsed() >= grace.max(GRACE)
            };
            self.connections
                .get(&id)
                .filter(|connection| is_old(connection))?;
            self.remove(id);
        }
        self.last += 1;
        let close = Arc::new(Notify::new());
        let connection = Connection {
            from,
            since: Instant::now(),
            was_answered: false,
            memory: 0,
            close: Arc::clone(&close),
        };
        self.connections.insert(self.last, connection);
        Some((self.last, close))
    }

    /// Returns the sum of the weights of each address's connections.
    fn sum_by_address(&self, weight: impl Fn(&Connection) -> usize) -> BTreeMap<IpAddr, usize> {
        let mut connection_counts = BTreeMap::new();
        for connection in self.connections.values() {
            *connection_counts.entry(connection.from).or_default() += weight(connection);
        }
        connection_counts
    }

    /// Returns the connection to close: the first one by `order` of the address that has the
    /// most by `weight`. The address of a newcomer counts one more.
    fn choose_connection_to_close<O: Ord>(
        &self,
        newcomer: Option<IpAddr>,
        weight: impl Fn(&Connection) -> usize,
        order: impl Fn(&Connection) -> O,
    ) -> Option<u64> {
        let mut connection_counts = self.sum_by_address(weight);
        if let Some(from) = newcomer {
            *connection_counts.entry(from).or_default() += 1;
        }
        let (most, _) = connection_counts.into_iter().max_by_key(|(_, sum)| *sum)?;
        let connections = self.connections.iter();
        let candidates = connections.filter(|(_, connection)| connection.from == most);
        let first = candidates.min_by_key(|(_, connection)| order(connection));
        first.map(|(id, _)| *id)
    }

    /// Changes the memory of a connection from `from` to `to` bytes.
    fn change_memory(&mut self, id: u64, from: usize, to: usize) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.memory = connection.memory - from + to;
            self.memory = self.memory - from + to;
        }
    }

    fn remove(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.memory -= connection.memory;
            connection.close.notify_one();
        }
    }
}

impl OpenConnection {
    /// Waits until the connection must end to make room for another one.
    pub(crate) async fn wait_for_close(&self) {
        self.close.notified().await;
    }

    /// Notes that one of the connection's requests was answered.
    pub(crate) fn note_answer(&self) {
        if let Some(connection) = self.connections.state().connections.get_mut(&self.id) {
            connection.was_answered = true;
            connection.since = Instant::now();
        }
    }

    /// Returns a lease of memory for the connection, which is empty at first.
    pub(crate) fn lease(&self) -> Lease {
        Lease {
            connections: Arc::clone(&self.connections),
            id: self.id,
            bytes: 0,
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.state().remove(self.id);
    }
}

impl Lease {
    /// Changes the lease to this number of bytes. If there is not enough memory, the largest
    /// connection of the address with the most memory is closed. If that is this connection,
    /// the lease stays as it is and the call fails, so that a large request does not displace
    /// small ones.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), NoMemory> {
        let mut state = self.connections.state();
        if !state.connections.contains_key(&self.id) {
            return Err(NoMemory);
        }
        state.change_memory(self.id, self.bytes, bytes);
        while state.memory > self.connections.limits.memory {
            let memory = |one: &Connection| one.memory;
            match state.choose_connection_to_close(None, memory, |one| Reverse(one.memory)) {
                Some(id) if id != self.id => state.remove(id),
                _ => {
                    state.change_memory(self.id, bytes, self.bytes);
                    return Err(NoMemory);
                }
            }
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // A lease of less memory never fails.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_fewest_connections_goes_first() {
        let open = Arc::new(Connections::new(Limits {
            connections: 4,
            ..Limits::PAGES
        }));
        let [hostile, honest] = [66, 1].map(|last| IpAddr::from([127, 0, 0, last]));
        let mut waiting: VecDeque<_> = (0..6).map(|client| (hostile, client)).collect();
        waiting.push_back((honest, 6));
        waiting.push_back((honest, 7));
        let mut entered = Vec::new();
        let mut enter = || {
            while let Some(next) = open.enter(&mut waiting) {
                entered.push(next);
            }
            let clients = entered.iter().map(|(_, client)| *client);
            clients.collect::<Vec<_>>()
        };
        assert_eq!(enter(), [0, 6, 1, 7]);
        std::thread::sleep(GRACE);
        // Each for one of its own address.
        assert_eq!(enter()[4..], [2, 3]);
    }
}
