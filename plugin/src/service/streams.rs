//! Implements ListAndWatch, which sends the list of devices at once and again whenever it changes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use device_class::name::ResourceName;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::catalog::{Resource, Resources};
use kubelet_api::deviceplugin::ListAndWatchResponse;

/// The numbers of open ListAndWatch streams, by resource. All clones share them. A kubelet that
/// reads the streams of two registrations counts twice.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams(watch::Sender<BTreeMap<ResourceName, usize>>);

impl Streams {
    /// Creates the stream count of one server of `resource`, which is 0.
    pub(crate) fn start_count(&self, resource: ResourceName) -> StreamCount {
        StreamCount {
            current: watch::Sender::new(RegistrationStreams::default()),
            resource,
            all: self.clone(),
        }
    }

    pub(crate) fn count_open(&self, resource: &ResourceName) -> usize {
        self.0.borrow().get(resource).copied().unwrap_or(0)
    }

    /// Returns the resources without an open stream.
    pub(crate) fn find_unstreamed(&self, inventory: &Resources) -> Vec<ResourceName> {
        let open = self.0.borrow();
        let missing = inventory.keys().filter(|name| !open.contains_key(*name));
        missing.cloned().collect()
    }
}

/// The streams that were opened since the last registration. If none is open, the kubelet does not
/// use the server, whatever it answered to the registration. It may still read streams of earlier
/// registrations, which do not keep the devices healthy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RegistrationStreams {
    /// The number of the registration, counted from 0.
    registration: u64,
    pub(crate) open: usize,
    /// Whether any stream was opened since the registration.
    pub(crate) has_begun: bool,
}

/// Counts the open streams of one server.
#[derive(Debug, Clone)]
pub(crate) struct StreamCount {
    current: watch::Sender<RegistrationStreams>,
    resource: ResourceName,
    all: Streams,
}

impl StreamCount {
    /// Counts a stream until the guard is dropped.
    pub(crate) fn count_stream(&self) -> StreamGuard {
        let mut registration = 0;
        self.current.send_modify(|current| {
            current.open += 1;
            current.has_begun = true;
            registration = current.registration;
        });
        let name = self.resource.clone();
        self.all
            .0
            .send_modify(|all| *all.entry(name).or_default() += 1);
        StreamGuard {
            count: self.clone(),
            registration,
        }
    }

    /// Restarts the count of [`RegistrationStreams`] for a new registration.
    pub(crate) fn start_registration(&self) {
        self.current.send_modify(|current| {
            *current = RegistrationStreams {
                registration: current.registration + 1,
                ..RegistrationStreams::default()
            };
        });
    }

    /// Returns the number of open streams of all registrations.
    pub(crate) fn count_open(&self) -> usize {
        self.all.count_open(&self.resource)
    }

    /// Returns a receiver for the streams of the last registration, which is notified of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<RegistrationStreams> {
        self.current.subscribe()
    }
}

#[derive(Debug)]
pub(crate) struct StreamGuard {
    count: StreamCount,
    registration: u64,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let StreamCount {
            current,
            resource,
            all,
        } = &self.count;
        current.send_if_modified(|current| {
            let is_current = current.registration == self.registration;
            current.open -= usize::from(is_current);
            is_current
        });
        all.0.send_modify(|all| {
            if let Some(open) = all.get_mut(resource) {
                *open -= 1;
            }
            all.retain(|_, open| *open > 0);
        });
    }
}

pub(crate) type DeviceStream =
    Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

/// Answers one ListAndWatch call. The stream ends when the sender of `resource` is dropped; a
/// client that cancels the call drops the stream.
pub(crate) fn stream_lists(
    resource: watch::Receiver<Arc<Resource>>,
    guard: StreamGuard,
) -> DeviceStream {
    let mut sent: Option<Arc<Resource>> = None;
    let lists = WatchStream::new(resource).filter_map(move |resource| {
        // The closure owns the guard, which counts the stream as long as it exists.
        let _ = &guard;
        let sent = sent.replace(Arc::clone(&resource));
        // A change that affects only the answers to Allocate is not sent.
        let is_known = sent.is_some_and(|sent| sent.has_same_list(&resource));
        (!is_known).then(|| Ok(resource.list()))
    });
    Box::pin(lists)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::catalog::fixture::{device, resource, unhealthy_device};

    #[tokio::test]
    async fn a_list_is_sent_at_once_and_then_only_when_it_differs() {
        let (sender, receiver) = watch::channel(Arc::new(resource(vec![device("a")])));
        let name = resource(vec![]).name;
        let streams = Streams::default();
        let count = streams.start_count(name.clone());
        let open = count.subscribe();
        let mut stream = stream_lists(receiver, count.count_stream());
        assert_eq!((open.borrow().open, streams.count_open(&name)), (1, 1));
        let sizes = |list: Option<Result<ListAndWatchResponse, Status>>| {
            list.unwrap().unwrap().devices.len()
        };
        assert_eq!(sizes(stream.next().await), 1);

        let mut richer = device("a");
        Arc::make_mut(&mut richer.env).insert("X".to_owned().try_into().unwrap(), "1".into());
        sender.send_replace(Arc::new(resource(vec![richer])));
        let quiet = tokio::time::timeout(Duration::from_millis(20), stream.next()).await;
        assert!(quiet.is_err(), "env is not in the list");

        sender.send_replace(Arc::new(resource(vec![
            device("a"),
            unhealthy_device("b", "cold"),
        ])));
        let list = stream.next().await.unwrap().unwrap();
        let health = list.devices.iter().map(|device| device.health.as_str());
        assert!(health.eq(["Healthy", "Unhealthy"]), "{list:?}");

        drop(sender);
        assert!(stream.next().await.is_none());
        drop(stream);
        assert_eq!((open.borrow().open, streams.count_open(&name)), (0, 0));
    }

    #[test]
    fn streams_of_earlier_registrations_do_not_count() {
        let streams = Streams::default();
        let count = streams.start_count(resource(vec![]).name);
        let earlier = count.count_stream();
        count.start_registration();
        let state = |open, has_begun| RegistrationStreams {
            registration: 1,
            open,
            has_begun,
        };
        let current = || *count.subscribe().borrow();
        assert_eq!((current(), count.count_open()), (state(0, false), 1));
        let later = count.count_stream();
        assert_eq!((current(), count.count_open()), (state(1, true), 2));
        drop(later);
        assert_eq!((current(), count.count_open()), (state(0, true), 1));
        drop(earlier);
        assert_eq!((current(), count.count_open()), (state(0, true), 0));
    }
}
