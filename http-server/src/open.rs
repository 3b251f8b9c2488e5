//! The open connections, and the memory of their bodies and answers.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::Limits;

/// How long a new connection keeps its place in any case, so that a request that has
/// arrived with it is read.
const GRACE: Duration = Duration::from_millis(100);

/// How long one keeps it before others of its address, for each place that there is: so
/// that clients that come again and again begin at most a thousand handshakes in a second.
const OWN_GRACE: Duration = Duration::from_millis(1);

/// The open connections of a server.
#[derive(Debug)]
pub(crate) struct Open {
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    connections: BTreeMap<u64, Connection>,
    /// The sum of all connections' memory.
    memory: usize,
}

#[derive(Debug)]
struct Connection {
    from: IpAddr,
    /// When it was opened, or answered last.
    since: Instant,
    was_answered: bool,
    memory: usize,
    close: Arc<Notify>,
}

/// A place among the open connections, until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    open: Arc<Open>,
    id: u64,
    close: Arc<Notify>,
}

/// Memory of a connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    open: Arc<Open>,
    id: u64,
    bytes: usize,
}

/// There is no memory left, unless connections of addresses are closed that have less.
#[derive(Debug)]
pub(crate) struct NoMemory;

impl Open {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the first of those who wait, of the address that has fewest; `None` if
    /// none is free. If all are taken, another connection is closed for it, unless that is
    /// new.
    pub(crate) fn enter<T>(
        self: &Arc<Self>,
        waiting: &mut VecDeque<(IpAddr, T)>,
    ) -> Option<(OpenConnection, T)> {
        let mut state = self.state();
        let sums = state.sums(|_| 1);
        let has = |(_, (from, _)): &(usize, &(IpAddr, T))| sums.get(from).copied().unwrap_or(0);
        let (at, (from, _)) = waiting.iter().enumerate().min_by_key(has)?;
        let (id, close) = state.enter(*from, self.limits.connections)?;
        let (_, client) = waiting.remove(at)?;
        let open = Arc::clone(self);
        Some((OpenConnection { open, id, close }, client))
    }
}

impl State {
    fn enter(&mut self, from: IpAddr, limit: usize) -> Option<(u64, Arc<Notify>)> {
        if self.connections.len() >= limit {
            let id = self.victim(from, 1, |_| 1, None)?;
            let own = u32::try_from(limit).map_or(Duration::MAX, |limit| limit * OWN_GRACE);
            let is_old = |victim: &Connection| {
                let grace = if victim.from == from { own } else { GRACE };
                victim.since.elapsed() >= grace.max(GRACE)
            };
            self.connections.get(&id).filter(|victim| is_old(victim))?;
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

    /// What each address has.
    fn sums(&self, weight: impl Fn(&Connection) -> usize) -> BTreeMap<IpAddr, usize> {
        let mut sums = BTreeMap::new();
        for connection in self.connections.values() {
            *sums.entry(connection.from).or_default() += weight(connection);
        }
        sums
    }

    /// Which connection to close if an address needs `more`: of the address that then has
    /// most, by `weight`, one that was never answered, else the one that was answered the
    /// longest ago.
    fn victim(
        &self,
        from: IpAddr,
        more: usize,
        weight: impl Fn(&Connection) -> usize,
        except: Option<u64>,
    ) -> Option<u64> {
        let mut sums = self.sums(&weight);
        *sums.entry(from).or_default() += more;
        let (most, _) = sums.into_iter().max_by_key(|(_, sum)| *sum)?;
        let candidates = self.connections.iter().filter(|(id, connection)| {
            connection.from == most && weight(connection) > 0 && Some(**id) != except
        });
        let order =
            |(_, connection): &(&u64, &Connection)| (connection.was_answered, connection.since);
        candidates.min_by_key(order).map(|(id, _)| *id)
    }

    fn remove(&mut self, id: u64) {
        if let Some(connection) = self.connections.remove(&id) {
            self.memory -= connection.memory;
            connection.close.notify_one();
        }
    }
}

impl OpenConnection {
    /// Waits until it has to end, for another connection's sake.
    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }

    /// One of its requests was answered.
    pub(crate) fn has_answered(&self) {
        if let Some(connection) = self.open.state().connections.get_mut(&self.id) {
            connection.was_answered = true;
            connection.since = Instant::now();
        }
    }

    /// Memory of the connection, none at first.
    pub(crate) fn lease(&self) -> Lease {
        Lease {
            open: Arc::clone(&self.open),
            id: self.id,
            bytes: 0,
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.open.state().remove(self.id);
    }
}

impl Lease {
    /// Takes so much memory in place of what it has. Other connections are closed if
    /// there is not enough.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), NoMemory> {
        let mut state = self.open.state();
        let own = state.connections.get(&self.id).ok_or(NoMemory)?;
        let (from, more) = (own.from, bytes.saturating_sub(self.bytes));
        while state.memory + more > self.open.limits.memory {
            let victim = state.victim(from, more, |other| other.memory, Some(self.id));
            state.remove(victim.ok_or(NoMemory)?);
        }
        let state = &mut *state;
        let connection = state.connections.get_mut(&self.id).ok_or(NoMemory)?;
        connection.memory = connection.memory - self.bytes + bytes;
        state.memory = state.memory - self.bytes + bytes;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Less is always possible.
        let _ = self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_fewest_connections_goes_first() {
        let open = Arc::new(Open::new(Limits {
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
            entered
                .iter()
                .map(|(_, client)| *client)
                .collect::<Vec<_>>()
        };
        assert_eq!(enter(), [0, 6, 1, 7]);
        std::thread::sleep(GRACE);
        // Each for one of its own address.
        assert_eq!(enter()[4..], [2, 3]);
    }
}
