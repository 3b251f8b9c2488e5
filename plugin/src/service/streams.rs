//! Implements ListAndWatch, which sends the list of devices at once, and again whenever the list
//! changes.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use device_class::name::ResourceName;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Status;

use crate::catalog::{Resource, Resources};
use daemon::kubelet_api::deviceplugin::ListAndWatchResponse;

/// The number of open ListAndWatch streams of each resource. All clones share these numbers. If the
/// kubelet reads a stream from each of two registrations of a resource, both streams are counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct OpenStreamCounts(watch::Sender<BTreeMap<ResourceName, usize>>);

impl OpenStreamCounts {
    /// Creates the stream count of a server of `resource`. The count begins at 0.
    pub(crate) fn create_stream_count(&self, resource: ResourceName) -> StreamCount {
        StreamCount {
            registration_streams: watch::Sender::new(RegistrationStreams::default()),
            resource,
            all_server_streams: self.clone(),
        }
    }

    pub(crate) fn count_open_streams(&self, resource: &ResourceName) -> usize {
        self.0.borrow().get(resource).copied().unwrap_or(0)
    }

    pub(crate) fn find_resources_without_stream(&self, resources: &Resources) -> Vec<ResourceName> {
        let counts = self.0.borrow();
        let names_without_stream = resources.keys().filter(|name| !counts.contains_key(*name));
        names_without_stream.cloned().collect()
    }
}

/// The ListAndWatch streams that were opened since the last registration. If none is open, the
/// kubelet does not use the server, even if it accepted the registration. The kubelet may still
/// read streams of earlier registrations, but these do not keep the devices healthy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RegistrationStreams {
    /// The number of registrations before the current one.
    registration_number: u64,
    pub(crate) open_count: usize,
    /// Whether any stream was opened since the registration.
    pub(crate) has_opened: bool,
}

/// The count of the open ListAndWatch streams of one server. The server's clones of this value
/// share the count.
#[derive(Debug, Clone)]
pub(crate) struct StreamCount {
    registration_streams: watch::Sender<RegistrationStreams>,
    resource: ResourceName,
    all_server_streams: OpenStreamCounts,
}

impl StreamCount {
    /// Counts a stream as open until the returned guard is dropped.
    pub(crate) fn count_stream(&self) -> StreamGuard {
        let mut registration_number = 0;
        self.registration_streams
            .send_modify(|registration_streams| {
                registration_streams.open_count += 1;
                registration_streams.has_opened = true;
                registration_number = registration_streams.registration_number;
            });
        let name = self.resource.clone();
        self.all_server_streams
            .0
            .send_modify(|counts| *counts.entry(name).or_default() += 1);
        StreamGuard {
            stream_count: self.clone(),
            registration_number,
        }
    }

    /// Starts a new count for a new registration with the kubelet: [`RegistrationStreams`] then
    /// counts only streams that are opened from now on.
    pub(crate) fn reset_for_registration(&self) {
        self.registration_streams
            .send_modify(|registration_streams| {
                *registration_streams = RegistrationStreams {
                    registration_number: registration_streams.registration_number + 1,
                    ..RegistrationStreams::default()
                };
            });
    }

    /// Returns the number of open ListAndWatch streams of the resource, counted over all
    /// registrations.
    pub(crate) fn count_open_streams(&self) -> usize {
        self.all_server_streams.count_open_streams(&self.resource)
    }

    /// Returns a receiver for the state of the streams that were opened since the last
    /// registration. The receiver is notified of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<RegistrationStreams> {
        self.registration_streams.subscribe()
    }
}

#[derive(Debug)]
pub(crate) struct StreamGuard {
    stream_count: StreamCount,
    registration_number: u64,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let StreamCount {
            registration_streams,
            resource,
            all_server_streams,
        } = &self.stream_count;
        registration_streams.send_if_modified(|registration_streams| {
            let is_current = registration_streams.registration_number == self.registration_number;
            registration_streams.open_count -= usize::from(is_current);
            is_current
        });
        all_server_streams.0.send_modify(|counts| {
            if let Some(count) = counts.get_mut(resource) {
                *count -= 1;
            }
            counts.retain(|_, count| *count > 0);
        });
    }
}

pub(crate) type DeviceStream =
    Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

/// Creates the stream that answers one ListAndWatch call. The stream ends when the sender of
/// `resource` is dropped. If the client cancels the call, the stream is dropped.
pub(crate) fn stream_lists(
    resource: watch::Receiver<Arc<Resource>>,
    guard: StreamGuard,
) -> DeviceStream {
    let mut last_sent_resource: Option<Arc<Resource>> = None;
    let lists = WatchStream::new(resource).filter_map(move |resource| {
        // The closure owns the guard, so that the stream counts as open until it is dropped.
        let _ = &guard;
        let previous_resource = last_sent_resource.replace(Arc::clone(&resource));
        // A change that affects only the answers to Allocate is not sent, because the list is the
        // same.
        let is_unchanged = previous_resource
            .is_some_and(|previous_resource| previous_resource.has_same_device_list(&resource));
        (!is_unchanged).then(|| Ok(resource.to_list_message()))
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
        let streams = OpenStreamCounts::default();
        let count = streams.create_stream_count(name.clone());
        let open = count.subscribe();
        let mut stream = stream_lists(receiver, count.count_stream());
        assert_eq!(
            (open.borrow().open_count, streams.count_open_streams(&name)),
            (1, 1)
        );
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
        assert_eq!(
            (open.borrow().open_count, streams.count_open_streams(&name)),
            (0, 0)
        );
    }

    #[test]
    fn streams_of_earlier_registrations_do_not_count() {
        let streams = OpenStreamCounts::default();
        let count = streams.create_stream_count(resource(vec![]).name);
        let earlier = count.count_stream();
        count.reset_for_registration();
        let state = |open, has_opened| RegistrationStreams {
            registration_number: 1,
            open_count: open,
            has_opened,
        };
        let current = || *count.subscribe().borrow();
        assert_eq!(
            (current(), count.count_open_streams()),
            (state(0, false), 1)
        );
        let later = count.count_stream();
        assert_eq!((current(), count.count_open_streams()), (state(1, true), 2));
        drop(later);
        assert_eq!((current(), count.count_open_streams()), (state(0, true), 1));
        drop(earlier);
        assert_eq!((current(), count.count_open_streams()), (state(0, true), 0));
    }
}
