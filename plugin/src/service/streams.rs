//! Implements ListAndWatch, which sends the list of devices at once, and again when it
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
use kubelet_api::deviceplugin::ListAndWatchResponse;

/// The numbers of open ListAndWatch streams, by resource. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams(watch::Sender<BTreeMap<ResourceName, usize>>);

impl Streams {
    /// Starts the count of the streams of one server of `resource`. None is open yet.
    pub(crate) fn start_count(&self, resource: ResourceName) -> StreamCount {
        StreamCount {
            open: watch::Sender::new(0),
            resource,
            all: self.clone(),
        }
    }

    pub(crate) fn open(&self, resource: &ResourceName) -> usize {
        self.0.borrow().get(resource).copied().unwrap_or(0)
    }

    /// The resources of the inventory for which no stream is open.
    pub(crate) fn missing(&self, inventory: &Resources) -> Vec<ResourceName> {
        let open = self.0.borrow();
        let missing = inventory.keys().filter(|name| !open.contains_key(*name));
        missing.cloned().collect()
    }
}

/// The number of open streams of one server. If it is 0, no kubelet uses the server, whatever
/// the answer to the registration was.
#[derive(Debug, Clone)]
pub(crate) struct StreamCount {
    open: watch::Sender<usize>,
    resource: ResourceName,
    all: Streams,
}

impl StreamCount {
    /// Counts one more stream until the guard is dropped.
    pub(crate) fn enter(&self) -> StreamGuard {
        self.open.send_modify(|open| *open += 1);
        let name = self.resource.clone();
        self.all
            .0
            .send_modify(|all| *all.entry(name).or_default() += 1);
        StreamGuard(self.clone())
    }

    /// Returns a receiver for the count, which is notified of changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }
}

#[derive(Debug)]
pub(crate) struct StreamGuard(StreamCount);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let StreamCount {
            open,
            resource,
            all,
        } = &self.0;
        open.send_modify(|open| *open -= 1);
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

/// Answers one call of ListAndWatch. The stream ends when the resource is withdrawn; a client
/// that cancels drops it.
pub(crate) fn lists(resource: watch::Receiver<Arc<Resource>>, guard: StreamGuard) -> DeviceStream {
    let mut sent: Option<Arc<Resource>> = None;
    let lists = WatchStream::new(resource).filter_map(move |resource| {
        // The stream is counted as long as this closure exists.
        let _ = &guard;
        let sent = sent.replace(Arc::clone(&resource));
        // A change that shows only in Allocate is not sent to the kubelet.
        let is_known = sent.is_some_and(|sent| sent.lists_the_same(&resource));
        (!is_known).then(|| Ok(resource.list()))
    });
    Box::pin(lists)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::catalog::fixture::{device, resource, sick};

    #[tokio::test]
    async fn a_list_is_sent_at_once_and_then_only_when_it_differs() {
        let (sender, receiver) = watch::channel(Arc::new(resource(vec![device("a")])));
        let name = resource(vec![]).name;
        let streams = Streams::default();
        let count = streams.start_count(name.clone());
        let open = count.subscribe();
        let mut stream = lists(receiver, count.enter());
        assert_eq!((*open.borrow(), streams.open(&name)), (1, 1));
        let sizes = |list: Option<Result<ListAndWatchResponse, Status>>| {
            list.unwrap().unwrap().devices.len()
        };
        assert_eq!(sizes(stream.next().await), 1);

        let mut richer = device("a");
        Arc::make_mut(&mut richer.env).insert("X".to_owned().try_into().unwrap(), "1".into());
        sender.send_replace(Arc::new(resource(vec![richer])));
        let quiet = tokio::time::timeout(Duration::from_millis(20), stream.next()).await;
        assert!(quiet.is_err(), "env is not in the list");

        sender.send_replace(Arc::new(resource(vec![device("a"), sick("b", "cold")])));
        let list = stream.next().await.unwrap().unwrap();
        let health = list.devices.iter().map(|device| device.health.as_str());
        assert!(health.eq(["Healthy", "Unhealthy"]), "{list:?}");

        drop(sender);
        assert!(stream.next().await.is_none());
        drop(stream);
        assert_eq!((*open.borrow(), streams.open(&name)), (0, 0));
    }
}
