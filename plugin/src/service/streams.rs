//! ListAndWatch: the list at once, then again when it is different.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use device_class::name::ResourceName;
use tokio::sync::watch;
use tokio_stream::Stream;
use tokio_stream::wrappers::WatchStream;
use tonic::Status;

use crate::api::deviceplugin::ListAndWatchResponse;
use crate::catalog::Resource;
use crate::metrics::Metrics;

/// How many kubelets listen: none means that no kubelet counts on us, whatever
/// it said when we registered.
#[derive(Debug, Clone)]
pub struct StreamCount {
    open: watch::Sender<usize>,
    resource: ResourceName,
    metrics: Arc<Metrics>,
}

impl StreamCount {
    /// None yet of `resource`.
    pub fn new(resource: ResourceName, metrics: Arc<Metrics>) -> Self {
        StreamCount {
            open: watch::Sender::new(0),
            resource,
            metrics,
        }
    }

    /// Counts one more until the guard is dropped.
    pub fn enter(&self) -> StreamGuard {
        self.change(|open| open + 1);
        StreamGuard(self.clone())
    }

    /// The count, and word of its changes.
    pub fn subscribe(&self) -> watch::Receiver<usize> {
        self.open.subscribe()
    }

    fn change(&self, change: impl FnOnce(usize) -> usize) {
        self.open.send_modify(|open| {
            *open = change(*open);
            self.metrics.streams(&self.resource, *open);
        });
    }
}

/// One open stream.
#[derive(Debug)]
pub struct StreamGuard(StreamCount);

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.0.change(|open| open - 1);
    }
}

/// One call of ListAndWatch. Ends when the resource is withdrawn; a client
/// that cancels drops it.
#[derive(Debug)]
pub struct DeviceStream {
    resource: WatchStream<Arc<Resource>>,
    sent: Option<Arc<Resource>>,
    _guard: StreamGuard,
}

impl DeviceStream {
    /// A stream of what the channel holds.
    pub fn new(resource: watch::Receiver<Arc<Resource>>, guard: StreamGuard) -> Self {
        DeviceStream {
            resource: WatchStream::new(resource),
            sent: None,
            _guard: guard,
        }
    }
}

impl Stream for DeviceStream {
    type Item = Result<ListAndWatchResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let Some(resource) = std::task::ready!(Pin::new(&mut self.resource).poll_next(context))
            else {
                return Poll::Ready(None);
            };
            // What only Allocate tells is no news to the kubelet.
            let known = self
                .sent
                .as_ref()
                .is_some_and(|sent| sent.lists_the_same(&resource));
            let list = (!known).then(|| resource.list());
            self.sent = Some(resource);
            if let Some(list) = list {
                return Poll::Ready(Some(Ok(list)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_stream::StreamExt;

    use super::*;
    use crate::catalog::fixture::{device, resource, sick};

    #[tokio::test]
    async fn a_list_is_sent_at_once_and_then_only_when_it_differs() {
        let (sender, receiver) = watch::channel(Arc::new(resource(vec![device("a")])));
        let name = resource(vec![]).name;
        let count = StreamCount::new(name, Arc::default());
        let open = count.subscribe();
        let mut stream = DeviceStream::new(receiver, count.enter());
        assert_eq!(*open.borrow(), 1);
        let sizes = |list: Option<Result<ListAndWatchResponse, Status>>| {
            list.unwrap().unwrap().devices.len()
        };
        assert_eq!(sizes(stream.next().await), 1);

        let mut richer = device("a");
        richer
            .env
            .insert("X".to_owned().try_into().unwrap(), "1".into());
        sender.send_replace(Arc::new(resource(vec![richer])));
        let quiet = tokio::time::timeout(Duration::from_millis(20), stream.next()).await;
        assert!(quiet.is_err(), "env is not in the list");

        sender.send_replace(Arc::new(resource(vec![device("a"), sick("b", "cold")])));
        let list = stream.next().await.unwrap().unwrap();
        let health: Vec<&str> = list
            .devices
            .iter()
            .map(|device| device.health.as_str())
            .collect();
        assert_eq!(health, ["Healthy", "Unhealthy"]);

        drop(sender);
        assert!(stream.next().await.is_none());
        drop(stream);
        assert_eq!(*open.borrow(), 0);
    }
}
