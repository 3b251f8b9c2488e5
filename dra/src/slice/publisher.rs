//! Keeps the ResourceSlices of this node in the API server equal to the planned slices, even if
//! another program changes them.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::plan::{SliceAction, plan_actions, plan_pools};
use super::revert_delay::{MAX_REVERT_DELAY, MIN_REVERT_DELAY, RevertDelay};
use super::{Pool, SliceFeatures};
use crate::api_client::ApiClients;
use crate::api_error;
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::names::DRIVER;

/// The delay between a change of devices and the update of the slices. Changes during this time are
/// published together.
const CHANGE_DELAY: Duration = Duration::from_millis(200);

/// The task that publishes the node's devices as ResourceSlices in the API server.
pub struct Publisher {
    node_name: String,
    clients: ApiClients,
    features: SliceFeatures,
    metrics: Metrics,
    existing_slices: BTreeMap<String, ResourceSlice>,
    /// The devices of each slice that the API server changed when it stored the slice. The key is
    /// the name of the slice. The value has the devices as they were sent, and then as they were
    /// stored.
    server_changed_devices: BTreeMap<String, (Vec<Device>, Vec<Device>)>,
}

impl Publisher {
    /// Creates a publisher. `taint_effect` is the value of `effect` in the taints of unhealthy
    /// devices, such as `NoSchedule`.
    pub(crate) fn new(
        clients: ApiClients,
        node_name: String,
        taint_effect: &str,
        metrics: Metrics,
    ) -> Self {
        Publisher {
            node_name,
            clients,
            features: SliceFeatures {
                supports_taints: true,
                supports_shares: true,
                supports_parts: true,
                taint_effect: taint_effect.to_owned(),
            },
            metrics,
            existing_slices: BTreeMap::new(),
            server_changed_devices: BTreeMap::new(),
        }
    }

    /// Publishes the slices whenever the devices change, and whenever another program changes the
    /// slices. For example, the kubelet deletes all slices when it starts.
    ///
    /// Nothing is published before the kubelet has registered the driver. Otherwise the scheduler
    /// would place pods on the node too early: the kubelet could not start them, and would retry
    /// only after a minute.
    pub async fn run(
        mut self,
        mut inventory: watch::Receiver<Inventory>,
        mut registration_state: watch::Receiver<bool>,
    ) {
        if registration_state
            .wait_for(|is_registered| *is_registered)
            .await
            .is_err()
        {
            return;
        }
        let api = Api::<ResourceSlice>::all(self.clients.watches.clone());
        let field_selector = format!("spec.nodeName={},spec.driver={DRIVER}", self.node_name);
        let config = watcher::Config::default().fields(&field_selector);
        let mut events = watcher(api, config).default_backoff().boxed();
        let (mut initial_slices, mut has_listed) = (BTreeMap::new(), false);
        let mut failure_count = 0;
        let (mut update_time, mut revert_delay) = (None, RevertDelay::new());
        // Whether the inventory may have changed since the last update of the slices.
        let mut is_inventory_new = true;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => initial_slices.clear(),
                    Some(Ok(Event::InitApply(slice))) => {
                        initial_slices.insert(slice.name_any(), slice);
                    }
                    Some(Ok(Event::InitDone)) => {
                        self.existing_slices = std::mem::take(&mut initial_slices);
                        has_listed = true;
                        update_time = Some(revert_delay.earliest_revert_time(Instant::now()));
                    }
                    Some(Ok(Event::Apply(slice))) => {
                        self.existing_slices.insert(slice.name_any(), slice);
                        let revert_time = revert_delay.earliest_revert_time(Instant::now());
                        update_time = update_time.or(Some(revert_time));
                    }
                    Some(Ok(Event::Delete(slice))) => {
                        self.existing_slices.remove(&slice.name_any());
                        let revert_time = revert_delay.earliest_revert_time(Instant::now());
                        update_time = update_time.or(Some(revert_time));
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
                    is_inventory_new = true;
                    // After a failure, a change of devices does not change the update time.
                    // Otherwise each change would shorten the delay before the next attempt.
                    let pending_update_time = update_time.filter(|_| failure_count > 0);
                    update_time = pending_update_time.or(Some(Instant::now()));
                }
                () = sleep_until(update_time.unwrap_or_else(Instant::now)),
                    if has_listed && update_time.is_some() =>
                {
                    is_inventory_new |= inventory.has_changed().unwrap_or(false);
                    let current_inventory = inventory.borrow_and_update().clone();
                    update_time = match self.reconcile(&current_inventory).await {
                        Ok(has_changed_slice) => {
                            failure_count = 0;
                            let is_revert = !std::mem::take(&mut is_inventory_new);
                            if has_changed_slice
                                && let Some(longer_delay) =
                                    revert_delay.record_write(Instant::now(), is_revert)
                            {
                                tracing::warn!(
                                    "somebody else changes resource slices that were just \
                                     written, perhaps another version of this driver: the next \
                                     answer not before {longer_delay:?}"
                                );
                            }
                            None
                        }
                        Err(error) => {
                            let retry_delay = (MIN_REVERT_DELAY * (1 << failure_count)).min(MAX_REVERT_DELAY);
                            failure_count = (failure_count + 1).min(6);
                            let error = api_error::describe_error(error);
                            tracing::warn!("cannot write resource slices, retrying in {retry_delay:?}: {error}");
                            Some(Instant::now() + retry_delay)
                        }
                    };
                }
            }
        }
    }

    /// Makes the slices in the API server equal to those planned for `inventory`. Returns whether a
    /// slice was changed.
    async fn reconcile(&mut self, inventory: &Inventory) -> Result<bool, kube::Error> {
        let mut has_changed_slice = false;
        // If the API server drops the field of a feature, the slices are planned and written again
        // without that feature. Other changes that the API server makes are accepted.
        for _ in 0..3 {
            let pools = plan_pools(&self.node_name, inventory, &self.features);
            let comparable_slices: Vec<_> = self
                .existing_slices
                .values()
                .map(|slice| self.restore_sent_devices(slice))
                .collect();
            let features = self.features.clone();
            for action in plan_actions(&self.node_name, &pools, &comparable_slices) {
                self.apply(action).await?;
                has_changed_slice = true;
                // The other actions were planned with a field that the API server drops, so they
                // are planned again.
                if self.features != features {
                    break;
                }
            }
            if self.features == features {
                self.report_pools(&pools);
                return Ok(has_changed_slice);
            }
        }
        Ok(has_changed_slice)
    }

    fn report_pools(&self, pools: &[Pool]) {
        for pool in pools.iter().filter(|pool| pool.omitted_count > 0) {
            let (name, omitted_count) = (&pool.name, pool.omitted_count);
            tracing::warn!("{omitted_count} devices of {name} are left out: a pool has too many");
        }
        self.metrics.clear_devices();
        for pool in pools {
            let devices = || pool.slices.iter().flat_map(|slice| &slice.devices);
            let unhealthy_count = devices().filter(|device| device.taints.is_some()).count();
            self.metrics
                .set_devices(&pool.name, devices().count(), unhealthy_count);
        }
    }

    /// Returns the slice with the devices that this driver sent, if its devices are still those
    /// that the API server stored instead. Otherwise the driver would revert the API server's own
    /// changes.
    fn restore_sent_devices(&self, slice: &ResourceSlice) -> ResourceSlice {
        let mut slice = slice.clone();
        if let Some((sent_devices, stored_devices)) =
            self.server_changed_devices.get(&slice.name_any())
            && slice.spec.devices.as_ref() == Some(stored_devices)
        {
            slice.spec.devices = Some(sent_devices.clone());
        }
        slice
    }

    async fn apply(&mut self, action: SliceAction) -> Result<(), kube::Error> {
        let api = Api::<ResourceSlice>::all(self.clients.requests.clone());
        let (sent_slice, stored_slice) = match action {
            SliceAction::Delete(slice) => {
                let name = slice.name_any();
                let parameters = DeleteParams::default().preconditions(Preconditions {
                    uid: slice.uid(),
                    resource_version: slice.resource_version(),
                });
                match api.delete(&name, &parameters).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    result => drop(result?),
                }
                tracing::info!(
                    "deleted the resource slice {name} of {}",
                    slice.spec.pool.name
                );
                self.existing_slices.remove(&name);
                return Ok(());
            }
            SliceAction::Replace(slice) => {
                let name = slice.name_any();
                let stored_slice = api.replace(&name, &PostParams::default(), &slice).await?;
                (slice, stored_slice)
            }
            SliceAction::Create(mut slice) => {
                slice.metadata.owner_references = Some(vec![self.fetch_owner_reference().await?]);
                let stored_slice = api.create(&PostParams::default(), &slice).await?;
                (slice, stored_slice)
            }
        };
        self.metrics.count_slice_write();
        self.detect_dropped_fields(&sent_slice, &stored_slice);
        self.existing_slices
            .insert(stored_slice.name_any(), stored_slice);
        Ok(())
    }

    /// Requests the node from the API server, and returns an owner reference to it. Because of this
    /// reference, Kubernetes deletes the slices together with the node.
    async fn fetch_owner_reference(&self) -> Result<OwnerReference, kube::Error> {
        let node = Api::<Node>::all(self.clients.requests.clone())
            .get(&self.node_name)
            .await?;
        let reference = node.controller_owner_ref(&());
        Ok(reference.unwrap_or_default())
    }

    /// Compares a slice as it was sent with the slice that the API server stored. Disables the
    /// features whose fields the API server has dropped.
    fn detect_dropped_fields(&mut self, sent_slice: &ResourceSlice, stored_slice: &ResourceSlice) {
        let has_counters = |slice: &ResourceSlice| slice.spec.shared_counters.is_some();
        let drops_counters = has_counters(sent_slice) && !has_counters(stored_slice);
        let get_devices = |slice: &ResourceSlice| slice.spec.devices.clone().unwrap_or_default();
        let (sent_devices, stored_devices) = (get_devices(sent_slice), get_devices(stored_slice));
        let name = stored_slice.name_any();
        let (pool, count) = (&stored_slice.spec.pool.name, stored_devices.len());
        let unhealthy_count = sent_devices
            .iter()
            .filter(|device| device.taints.is_some())
            .count();
        tracing::info!("published {count} devices of {pool}, {unhealthy_count} of them unhealthy");
        let is_dropped = |has_field: fn(&Device) -> bool| {
            sent_devices.iter().any(has_field) && !stored_devices.iter().any(has_field)
        };
        if is_dropped(|device| device.taints.is_some()) && self.features.supports_taints {
            tracing::warn!(
                "the API server drops taints of devices (feature gate DRADeviceTaints): unhealthy \
                 devices are left out of resource slices"
            );
            self.features.supports_taints = false;
        }
        if is_dropped(|device| device.allow_multiple_allocations == Some(true))
            && self.features.supports_shares
        {
            tracing::warn!(
                "the API server drops allowMultipleAllocations (feature gate \
                 DRAConsumableCapacity): each share is published as a device"
            );
            self.features.supports_shares = false;
        }
        let drops_counters =
            drops_counters || is_dropped(|device| device.consumes_counters.is_some());
        if drops_counters && self.features.supports_parts {
            tracing::warn!(
                "the API server drops counters (feature gate DRAPartitionableDevices): parts of \
                 devices are not offered to claims"
            );
            self.features.supports_parts = false;
        }
        if sent_devices == stored_devices {
            self.server_changed_devices.remove(&name)
        } else {
            self.server_changed_devices
                .insert(name, (sent_devices, stored_devices))
        };
    }
}
