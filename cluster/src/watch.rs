//! Watches objects of the API server, and repeats a watch that has failed.

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

/// A label of a metric: its name and its value.
pub type Label = (&'static str, &'static str);

/// The delays before a failed watch is repeated, from 0.8 to 30 seconds. A random part (jitter)
/// prevents all replicas of a program from calling the API server at the same time.
pub const RETRY_DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(800))
    .with_max_delay(Duration::from_secs(30))
    .with_jitter()
    .without_max_times();

/// Watches all objects of a kind, and calls `apply_event` for each event. Never returns. `kind` is
/// the name of the kind in log messages and in the label of `error_counters`. If a watch fails
/// repeatedly, only the first failure and the recovery are logged.
pub(crate) async fn watch_objects<K>(
    kind: &'static str,
    client: Client,
    config: watcher::Config,
    error_counters: &Family<[Label; 1], Counter>,
    retry_delays: ExponentialBuilder,
    mut apply_event: impl FnMut(Event<K>),
) where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let events = watcher(Api::<K>::all(client), config);
    let mut events = std::pin::pin!(events.backoff(ExponentialBackoff::from(retry_delays)));
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
                apply_event(event);
            }
            Err(error) => {
                error_counters.get_or_create(&[("kind", kind)]).inc();
                if !is_failing {
                    let error = anyhow::Error::from(error);
                    tracing::warn!("the watch of {kind} failed, retrying: {error:#}");
                    is_failing = true;
                }
            }
        }
    }
}
