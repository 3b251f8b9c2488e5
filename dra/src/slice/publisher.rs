//! Keeps the slices in the API server equal to the planned ones.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::plan::{SliceAction, plan_actions, plan_pools};
use super::revert_delay::{MAX_DELAY, MIN_DELAY, RevertDelay};
use super::{Pool, SliceFeatures};
use crate::api_error;
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::names::DRIVER;

/// The delay after a change of devices, in which further changes are collected.
const CHANGE_DELAY: Duration = Duration::from_millis(200);

/// Publishes the slices of one node.
pub struct Publisher {
    node: String,
    client: Client,
    features: SliceFeatures,
    metrics: Metrics,
    present: BTreeMap<String, ResourceSlice>,
    /// For each slice that the API server changed: the devices as sent and as stored.
    changed_by_server: BTreeMap<String, (Vec<Device>, Vec<Device>)>,
}

impl Publisher {
    /// Creates a publisher. `effect` is the effect of the taint on unhealthy devices.
    pub fn new(client: Client, node: String, effect: &str, metrics: Metrics) -> Self {
        Publisher {
            node,
            client,
            features: SliceFeatures {
                taints: true,
                shares: true,
                parts: true,
                effect: effect.to_owned(),
            },
            metrics,
            present: BTreeMap::new(),
            changed_by_server: BTreeMap::new(),
        }
    }

    /// Publishes the slices whenever the devices change, and when another program changes the
    /// slices. The kubelet, for example, deletes all slices when it starts.
    ///
    /// Nothing is published before the kubelet has registered the driver. The scheduler would
    /// place pods that the kubelet cannot start yet, and would retry only after a minute.
    pub async fn run(
        mut self,
        mut inventory: watch::Receiver<Inventory>,
        mut is_registered: watch::Receiver<bool>,
    ) {
        if is_registered.wait_for(|it| *it).await.is_err() {
            return;
        }
        let api = Api::<ResourceSlice>::all(self.client.clone());
        let selected = format!("spec.nodeName={},spec.driver={DRIVER}", self.node);
        let config = watcher::Config::default().fields(&selected);
        let mut events = watcher(api, config).default_backoff().boxed();
        let (mut listed, mut is_listed) = (BTreeMap::new(), false);
        let mut failures = 0;
        let (mut due, mut delay) = (None, RevertDelay::new());
        // Whether the inventory may have changed since the last write.
        let mut is_new = true;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => listed.clear(),
                    Some(Ok(Event::InitApply(slice))) => {
                        listed.insert(slice.name_any(), slice);
                    }
                    Some(Ok(Event::InitDone)) => {
                        self.present = std::mem::take(&mut listed);
                        is_listed = true;
                        due = Some(delay.earliest_revert(Instant::now()));
                    }
                    Some(Ok(Event::Apply(slice))) => {
                        self.present.insert(slice.name_any(), slice);
                        due = due.or(Some(delay.earliest_revert(Instant::now())));
                    }
                    Some(Ok(Event::Delete(slice))) => {
                        self.present.remove(&slice.name_any());
                        due = due.or(Some(delay.earliest_revert(Instant::now())));
                    }
                    Some(Err(error)) => {
                        let error = anyhow::Error::from(error);
                        tracing::warn!("cannot watch resource slices, retrying: {error:#}");
                    }
                    None => return,
                },
                changed = inventory.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    sleep(CHANGE_DELAY).await;
                    is_new = true;
                    // A change of devices does not shorten the delay after a failure.
                    due = due.filter(|_| failures > 0).or(Some(Instant::now()));
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if is_listed && due.is_some() => {
                    is_new |= inventory.has_changed().unwrap_or(false);
                    let wanted = inventory.borrow_and_update().clone();
                    due = match self.reconcile(&wanted).await {
                        Ok(wrote) => {
                            failures = 0;
                            let is_revert = !std::mem::take(&mut is_new);
                            if wrote && let Some(longer) = delay.record_write(Instant::now(), is_revert) {
                                tracing::warn!(
                                    "somebody else changes resource slices that were just \
                                     written, perhaps another version of this driver: the next \
                                     answer not before {longer:?}"
                                );
                            }
                            None
                        }
                        Err(error) => {
                            let wait = (MIN_DELAY * (1 << failures)).min(MAX_DELAY);
                            failures = (failures + 1).min(6);
                            let error = api_error::describe(error);
                            tracing::warn!("cannot write resource slices, retrying in {wait:?}: {error}");
                            Some(Instant::now() + wait)
                        }
                    };
                }
            }
        }
    }

    /// Makes the slices in the API server equal to the planned ones. Returns whether anything was
    /// written.
    async fn reconcile(&mut self, inventory: &Inventory) -> Result<bool, kube::Error> {
        let mut wrote = false;
        // If the API server drops a field, the slices are planned and written once more without
        // it. Other changes by the API server are accepted.
        for _ in 0..3 {
            let wanted = plan_pools(&self.node, inventory, &self.features);
            let present_slices: Vec<_> = self
                .present
                .values()
                .map(|slice| self.with_sent_devices(slice))
                .collect();
            let features = self.features.clone();
            for action in plan_actions(&self.node, &wanted, &present_slices) {
                self.apply(action).await?;
                wrote = true;
                // The remaining actions were planned with a field that the API server drops.
                if self.features != features {
                    break;
                }
            }
            if self.features == features {
                self.report_published(&wanted);
                return Ok(wrote);
            }
        }
        Ok(wrote)
    }

    fn report_published(&self, pools: &[Pool]) {
        for pool in pools.iter().filter(|pool| pool.left_out > 0) {
            let (name, left_out) = (&pool.name, pool.left_out);
            tracing::warn!("{left_out} devices of {name} are left out: a pool has too many");
        }
        self.metrics.clear_devices();
        for pool in pools {
            let devices = || pool.slices.iter().flat_map(|slice| &slice.devices);
            let unhealthy = devices().filter(|device| device.taints.is_some()).count();
            self.metrics
                .set_devices(&pool.name, devices().count(), unhealthy);
        }
    }

    /// Returns a slice with its devices as sent, if the slice still has what the API server stored
    /// for them. So a change that the API server itself makes is not reverted.
    fn with_sent_devices(&self, slice: &ResourceSlice) -> ResourceSlice {
        let mut slice = slice.clone();
        if let Some((sent, kept)) = self.changed_by_server.get(&slice.name_any())
            && slice.spec.devices.as_ref() == Some(kept)
        {
            slice.spec.devices = Some(sent.clone());
        }
        slice
    }

    async fn apply(&mut self, action: SliceAction) -> Result<(), kube::Error> {
        let api = Api::<ResourceSlice>::all(self.client.clone());
        let stored = match action {
            SliceAction::Delete(slice) => {
                let name = slice.name_any();
                let exactly = DeleteParams::default().preconditions(Preconditions {
                    uid: slice.uid(),
                    resource_version: slice.resource_version(),
                });
                match api.delete(&name, &exactly).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    deleted => drop(deleted?),
                }
                tracing::info!(
                    "deleted the resource slice {name} of {}",
                    slice.spec.pool.name
                );
                self.present.remove(&name);
                return Ok(());
            }
            SliceAction::Replace(slice) => {
                let name = slice.name_any();
                let stored = api.replace(&name, &PostParams::default(), &slice).await?;
                (slice, stored)
            }
            SliceAction::Create(mut slice) => {
                slice.metadata.owner_references = Some(vec![self.owner_reference().await?]);
                let stored = api.create(&PostParams::default(), &slice).await?;
                (slice, stored)
            }
        };
        let (sent, stored) = stored;
        self.metrics.count_slice_write();
        self.detect_dropped_fields(&sent, &stored);
        self.present.insert(stored.name_any(), stored);
        Ok(())
    }

    /// Returns an owner reference to the node, with which Kubernetes deletes the slices together
    /// with the node.
    async fn owner_reference(&self) -> Result<OwnerReference, kube::Error> {
        let node = Api::<Node>::all(self.client.clone())
            .get(&self.node)
            .await?;
        let reference = node.controller_owner_ref(&());
        Ok(reference.unwrap_or_default())
    }

    /// Compares a sent slice with the stored one, and disables the features whose fields the API
    /// server dropped.
    fn detect_dropped_fields(&mut self, sent: &ResourceSlice, stored: &ResourceSlice) {
        let counters = |slice: &ResourceSlice| slice.spec.shared_counters.is_some();
        let lost_counters = counters(sent) && !counters(stored);
        let devices = |slice: &ResourceSlice| slice.spec.devices.clone().unwrap_or_default();
        let (sent, kept) = (devices(sent), devices(stored));
        let name = stored.name_any();
        let (pool, count) = (&stored.spec.pool.name, kept.len());
        let unhealthy = sent.iter().filter(|device| device.taints.is_some()).count();
        tracing::info!("published {count} devices of {pool}, {unhealthy} of them unhealthy");
        let is_lost = |has_field: fn(&Device) -> bool| {
            sent.iter().any(has_field) && !kept.iter().any(has_field)
        };
        if is_lost(|device| device.taints.is_some()) && self.features.taints {
            tracing::warn!(
                "the API server drops taints of devices (feature gate DRADeviceTaints): unhealthy \
                 devices are left out of resource slices"
            );
            self.features.taints = false;
        }
        if is_lost(|device| device.allow_multiple_allocations == Some(true)) && self.features.shares
        {
            tracing::warn!(
                "the API server drops allowMultipleAllocations (feature gate \
                 DRAConsumableCapacity): each share is published as a device"
            );
            self.features.shares = false;
        }
        let lost_counters = lost_counters || is_lost(|device| device.consumes_counters.is_some());
        if lost_counters && self.features.parts {
            tracing::warn!(
                "the API server drops counters (feature gate DRAPartitionableDevices): parts of \
                 devices are not offered to claims"
            );
            self.features.parts = false;
        }
        if sent == kept {
            self.changed_by_server.remove(&name)
        } else {
            self.changed_by_server.insert(name, (sent, kept))
        };
    }
}
