//! Watches objects in the API server.

use std::fmt::Debug;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, ExponentialBackoff, watcher};
use kube::{Api, Client, Resource};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use serde::de::DeserializeOwned;

/// A metric's label and its value.
pub type Label = (&'static str, &'static str);

/// Delays between attempts to reach the API server, with a random part, so that replicas do
/// not retry at the same time.
pub const DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(800))
    .with_max_delay(Duration::from_secs(30))
    .with_jitter()
    .without_max_times();

/// Watches the objects of a kind, and never returns.
pub(crate) async fn follow<K>(
    kind: &'static str,
    client: Client,
    config: watcher::Config,
    errors: &Family<[Label; 1], Counter>,
    delays: ExponentialBuilder,
    mut apply: impl FnMut(Event<K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(Api::<K>::all(client), config);
    let mut events = std::pin::pin!(events.backoff(ExponentialBackoff::from(delays)));
    let mut failing = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if failing && matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_))
                {
                    tracing::info!("the watch of {kind} works again");
                    failing = false;
                }
                apply(event);
            }
            Err(error) => {
                errors.get_or_create(&[("kind", kind)]).inc();
                if !failing {
                    let error = anyhow::Error::from(error);
                    tracing::warn!("the watch of {kind} failed, retrying: {error:#}");
                    failing = true;
                }
            }
        }
    }
}
