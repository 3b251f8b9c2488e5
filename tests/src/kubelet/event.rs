//! The events of a fake kubelet, in order.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The kubelet serves its socket.
    Started { socket: String },
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
    /// A stream ended, and the kubelet has disconnected a plugin: the resource has no healthy
    /// device until the next list.
    StreamBroken { resource: String },
    /// A request failed.
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
    /// Up to here, a wait for any event has seen them.
    seen_by_any: usize,
    /// Up to here, a wait for a resource's devices has seen them.
    seen_of: HashMap<String, usize>,
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
        let from = self.lock().seen;
        let (at, event) = self.find(from, patience, wanted)?;
        let mut log = self.lock();
        log.seen = at + 1;
        log.seen_by_any = at + 1;
        Ok(event)
    }

    /// Waits for a resource's devices. Resources report in any order: what arrived during a wait
    /// for another resource's devices counts.
    ///
    /// # Errors
    /// As of [`EventLog::wait`].
    pub fn wait_devices(
        &self,
        patience: Duration,
        resource: &str,
    ) -> io::Result<Vec<DeviceReport>> {
        let from = {
            let log = self.lock();
            let of_resource = log.seen_of.get(resource).copied().unwrap_or_default();
            of_resource.max(log.seen_by_any)
        };
        let of_resource =
            |event: &Event| matches!(event, Event::Devices { resource: r, .. } if r == resource);
        let (at, event) = self.find(from, patience, of_resource)?;
        let mut log = self.lock();
        log.seen = log.seen.max(at + 1);
        log.seen_of.insert(resource.to_owned(), at + 1);
        match event {
            Event::Devices { devices, .. } => Ok(devices),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    /// The first event from `from` on that is wanted, and its place.
    fn find(
        &self,
        from: usize,
        patience: Duration,
        wanted: impl Fn(&Event) -> bool,
    ) -> io::Result<(usize, Event)> {
        let end = Instant::now() + patience;
        let mut log = self.lock();
        let mut next = from;
        loop {
            if let Some(at) = (next..log.events.len()).find(|at| wanted(&log.events[*at])) {
                return Ok((at, log.events[at].clone()));
            }
            next = log.events.len();
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
