//! Watches objects of the API server, and repeats a watch that failed.

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

/// The name of a metric's label, and its value.
pub type Label = (&'static str, &'static str);

/// The delays before a failed watch is repeated, from 0.8 to 30 seconds. They have a random part,
/// so that the replicas of a program do not all call the API server at the same time.
pub const RETRY_DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(800))
    .with_max_delay(Duration::from_secs(30))
    .with_jitter()
    .without_max_times();

/// Watches all objects of a kind, calls `apply` for each event, and never returns. `kind` is the
/// name of the kind in log messages and in the metric `errors`. A watch that fails again and again
/// is logged once, when it begins to fail, and once more when it works again.
pub(crate) async fn watch_objects<K>(
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
    let mut is_failing = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if is_failing
                    && matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_))
                {
                    tracing::info!("the watch of {kind} works again");
                    is_failing = false;
                }
                apply(event);
            }
            Err(error) => {
                errors.get_or_create(&[("kind", kind)]).inc();
                if !is_failing {
                    let error = anyhow::Error::from(error);
                    tracing::warn!("the watch of {kind} failed, retrying: {error:#}");
                    is_failing = true;
                }
            }
        }
    }
}
