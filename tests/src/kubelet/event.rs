//! The events of a fake kubelet, in order.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The kubelet serves its socket.
    Started {
        /// The socket's path.
        socket: String,
    },
    /// The kubelet died.
    Stopped {},
    /// A plugin registered and was dialled.
    Registered {
        resource: String,
        /// The name of its socket.
        endpoint: String,
    },
    /// A registration failed.
    Refused { resource: String, reason: String },
    /// A registration came that will not be answered.
    Unanswered { resource: String },
    /// A plugin sent its list of devices.
    Devices {
        resource: String,
        /// The devices, in the plugin's order.
        devices: Vec<DeviceReport>,
    },
    /// A plugin's stream ended: its devices count as unhealthy.
    StreamBroken { resource: String },
    /// What was requested failed.
    Error { message: String },
}

/// A device in a plugin's list.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceReport {
    pub id: String,
    /// `Healthy` or `Unhealthy`.
    pub health: String,
    /// Its first NUMA node, if it has any.
    pub numa: Option<i64>,
}

/// All events since the start, shared by writers and readers.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<Log>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    /// Up to here, a wait has seen them.
    seen: usize,
}

impl EventLog {
    pub fn push(&self, event: Event) {
        self.lock().events.push(event);
        self.0.news.notify_all();
    }

    /// The events so far.
    pub fn so_far(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Waits for an event after the last one that a wait returned.
    ///
    /// # Errors
    /// It does not arrive within `patience`; the error has the events that arrived.
    pub fn wait(&self, patience: Duration, wanted: impl Fn(&Event) -> bool) -> io::Result<Event> {
        let end = Instant::now() + patience;
        let mut log = self.lock();
        let from = log.seen;
        loop {
            if let Some(at) = (log.seen..log.events.len()).find(|at| wanted(&log.events[*at])) {
                log.seen = at + 1;
                return Ok(log.events[at].clone());
            }
            log.seen = log.events.len();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let came = format!("not in {patience:?}; these came: {:?}", &log.events[from..]);
                return Err(io::Error::new(io::ErrorKind::TimedOut, came));
            }
            let waited = self.0.news.wait_timeout(log, left);
            log = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
