//! The log of what happens in a fake kubelet, on which tests wait.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An entry of the event log.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The kubelet serves its registration socket.
    Started { socket: String },
    /// The kubelet ended.
    Stopped {},
    /// A plugin registered, and the kubelet connected to it.
    Registered {
        resource: String,
        /// The file name of the plugin's socket.
        endpoint: String,
    },
    /// The kubelet refused a registration.
    Refused { resource: String, reason: String },
    /// A plugin registers, and the kubelet will not answer because of
    /// [`super::RegisterFault::Hang`].
    Unanswered { resource: String },
    /// A plugin sent its list of devices by ListAndWatch.
    Devices {
        resource: String,
        /// The devices, in the plugin's order.
        devices: Vec<DeviceReport>,
    },
    /// A ListAndWatch stream ended, and the kubelet disconnected a plugin. The resource has no
    /// healthy device until the next list.
    StreamBroken { resource: String },
    /// The kubelet could not write its checkpoint.
    Error { message: String },
}

/// A device in a plugin's list.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceReport {
    pub id: String,
    /// `Healthy` or `Unhealthy`.
    pub health: String,
    /// The device's first NUMA node, if it has one.
    pub numa: Option<i64>,
}

/// All events since the first start of the kubelet. Clones share one log.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    log: Mutex<Log>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Log {
    events: Vec<Event>,
    /// The index after the last event that any kind of wait returned.
    seen: usize,
    /// The index after the last event that [`EventLog::wait`] returned.
    seen_by_wait: usize,
    /// The index after the last event that [`EventLog::wait_devices`] returned, by resource.
    seen_by_resource: HashMap<String, usize>,
}

impl EventLog {
    pub fn push(&self, event: Event) {
        self.lock().events.push(event);
        self.0.changed.notify_all();
    }

    /// Returns all events so far.
    pub fn so_far(&self) -> Vec<Event> {
        self.lock().events.clone()
    }

    /// Waits for the next event that matches, beginning after the last event that a wait returned.
    ///
    /// # Errors
    /// Fails if no event matches within `patience`; the message has the events that arrived
    /// instead.
    pub fn wait(&self, patience: Duration, is_match: impl Fn(&Event) -> bool) -> io::Result<Event> {
        let from = self.lock().seen;
        let (index, event) = self.find(from, patience, is_match)?;
        let mut log = self.lock();
        log.seen = index + 1;
        log.seen_by_wait = index + 1;
        Ok(event)
    }

    /// Waits for the next list of devices of `resource`. Resources report in any order, so this
    /// also returns a list that arrived during a wait for another resource.
    ///
    /// # Errors
    /// Fails as [`EventLog::wait`] does.
    pub fn wait_devices(
        &self,
        patience: Duration,
        resource: &str,
    ) -> io::Result<Vec<DeviceReport>> {
        let from = {
            let log = self.lock();
            let of_resource = log
                .seen_by_resource
                .get(resource)
                .copied()
                .unwrap_or_default();
            of_resource.max(log.seen_by_wait)
        };
        let of_resource =
            |event: &Event| matches!(event, Event::Devices { resource: r, .. } if r == resource);
        let (index, event) = self.find(from, patience, of_resource)?;
        let mut log = self.lock();
        log.seen = log.seen.max(index + 1);
        log.seen_by_resource.insert(resource.to_owned(), index + 1);
        match event {
            Event::Devices { devices, .. } => Ok(devices),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    }

    /// Waits for the first event at the index `from` or later that matches, and returns it with its
    /// index.
    fn find(
        &self,
        from: usize,
        patience: Duration,
        is_match: impl Fn(&Event) -> bool,
    ) -> io::Result<(usize, Event)> {
        let end = Instant::now() + patience;
        let mut log = self.lock();
        let mut next = from;
        loop {
            if let Some(index) =
                (next..log.events.len()).find(|index| is_match(&log.events[*index]))
            {
                return Ok((index, log.events[index].clone()));
            }
            next = log.events.len();
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                let message = format!("not in {patience:?}; these came: {:?}", &log.events[from..]);
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            let result = self.0.changed.wait_timeout(log, remaining);
            log = result.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
