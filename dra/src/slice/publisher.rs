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

use super::pause::{FIRST, LONGEST, RevertDelay};
use super::plan::{Action, actions, pools};
use super::{Form, Pool};
use crate::api_error;
use crate::inventory::Inventory;
use crate::metrics::Metrics;
use crate::names::DRIVER;

/// The time to wait for further changes after a change of devices.
const SETTLE: Duration = Duration::from_millis(200);

/// The publisher of one node's slices.
pub struct Publisher {
    node: String,
    client: Client,
    form: Form,
    metrics: Metrics,
    present: BTreeMap<String, ResourceSlice>,
    /// By slice: the devices as they were sent and as the API server has stored them, if it
    /// changed them.
    kept: BTreeMap<String, (Vec<Device>, Vec<Device>)>,
}

impl Publisher {
    /// Creates a publisher. `effect` is the effect of the taint of unhealthy devices.
    pub fn new(client: Client, node: String, effect: &str, metrics: Metrics) -> Self {
        Publisher {
            node,
            client,
            form: Form {
                taints: true,
                shares: true,
                parts: true,
                effect: effect.to_owned(),
            },
            metrics,
            present: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// Publishes the slices in a loop: when the devices change, and when another program
    /// changes the slices. The kubelet deletes all slices when it starts.
    ///
    /// Nothing is published before the kubelet has registered the driver: it could not start
    /// a pod that the scheduler places meanwhile, and tries such a pod again a minute later.
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
        let (mut due, mut pause) = (None, RevertDelay::new());
        // Whether the planned slices may have changed since the last write.
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
                        due = Some(pause.end(Instant::now()));
                    }
                    Some(Ok(Event::Apply(slice))) => {
                        self.present.insert(slice.name_any(), slice);
                        due = due.or(Some(pause.end(Instant::now())));
                    }
                    Some(Ok(Event::Delete(slice))) => {
                        self.present.remove(&slice.name_any());
                        due = due.or(Some(pause.end(Instant::now())));
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
                    sleep(SETTLE).await;
                    is_new = true;
                    // After a failure nothing is written before the end of the delay.
                    due = due.filter(|_| failures > 0).or(Some(Instant::now()));
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if is_listed && due.is_some() => {
                    is_new |= inventory.has_changed().unwrap_or(false);
                    let wanted = inventory.borrow_and_update().clone();
                    due = match self.reconcile(&wanted).await {
                        Ok(wrote) => {
                            failures = 0;
                            let is_answer = !std::mem::take(&mut is_new);
                            if wrote && let Some(longer) = pause.wrote(Instant::now(), is_answer) {
                                tracing::warn!(
                                    "somebody else changes resource slices that were just \
                                     written, perhaps another version of this driver: the next \
                                     answer not before {longer:?}"
                                );
                            }
                            None
                        }
                        Err(error) => {
                            let wait = (FIRST * (1 << failures)).min(LONGEST);
                            failures = (failures + 1).min(6);
                            let error = api_error::text(error);
                            tracing::warn!("cannot write resource slices, retrying in {wait:?}: {error}");
                            Some(Instant::now() + wait)
                        }
                    };
                }
            }
        }
    }

    /// Makes the slices in the API server equal to the planned ones. Returns whether anything
    /// had to be written.
    async fn reconcile(&mut self, inventory: &Inventory) -> Result<bool, kube::Error> {
        let mut wrote = false;
        // If the API server does not keep a field, the slices are planned and written once
        // more without it. Other changes by the API server are accepted.
        for _ in 0..3 {
            let wanted = pools(&self.node, inventory, &self.form);
            let present_slices: Vec<_> = self
                .present
                .values()
                .map(|slice| self.as_sent(slice))
                .collect();
            let form = self.form.clone();
            for action in actions(&self.node, &wanted, &present_slices) {
                self.perform(action).await?;
                wrote = true;
                // The other actions were planned with fields that the API server does not
                // keep.
                if self.form != form {
                    break;
                }
            }
            if self.form == form {
                self.published(&wanted);
                return Ok(wrote);
            }
        }
        Ok(wrote)
    }

    fn published(&self, pools: &[Pool]) {
        for pool in pools.iter().filter(|pool| pool.left_out > 0) {
            let (name, left_out) = (&pool.name, pool.left_out);
            tracing::warn!("{left_out} devices of {name} are left out: a pool has too many");
        }
        self.metrics.nothing_published();
        for pool in pools {
            let devices = || pool.slices.iter().flat_map(|slice| &slice.devices);
            let unhealthy = devices().filter(|device| device.taints.is_some()).count();
            self.metrics
                .published(&pool.name, devices().count(), unhealthy);
        }
    }

    /// Returns a slice with the devices as they were sent, if its devices are still those that
    /// the API server stored for them.
    fn as_sent(&self, slice: &ResourceSlice) -> ResourceSlice {
        let mut slice = slice.clone();
        if let Some((sent, kept)) = self.kept.get(&slice.name_any())
            && slice.spec.devices.as_ref() == Some(kept)
        {
            slice.spec.devices = Some(sent.clone());
        }
        slice
    }

    async fn perform(&mut self, action: Action) -> Result<(), kube::Error> {
        let api = Api::<ResourceSlice>::all(self.client.clone());
        let stored = match action {
            Action::Delete(slice) => {
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
            Action::Replace(slice) => {
                let name = slice.name_any();
                let stored = api.replace(&name, &PostParams::default(), &slice).await?;
                (slice, stored)
            }
            Action::Create(mut slice) => {
                slice.metadata.owner_references = Some(vec![self.owner().await?]);
                let stored = api.create(&PostParams::default(), &slice).await?;
                (slice, stored)
            }
        };
        let (sent, stored) = stored;
        self.metrics.wrote_slice();
        self.compare(&sent, &stored);
        self.present.insert(stored.name_any(), stored);
        Ok(())
    }

    /// Returns a reference to the node as the owner of the slices, so that they are deleted
    /// with the node.
    async fn owner(&self) -> Result<OwnerReference, kube::Error> {
        let node = Api::<Node>::all(self.client.clone())
            .get(&self.node)
            .await?;
        let reference = node.controller_owner_ref(&());
        Ok(reference.unwrap_or_default())
    }

    /// Compares a sent slice with the stored one, and notes which fields the API server does
    /// not keep.
    fn compare(&mut self, sent: &ResourceSlice, stored: &ResourceSlice) {
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
        if is_lost(|device| device.taints.is_some()) && self.form.taints {
            tracing::warn!(
                "the API server drops taints of devices (feature gate DRADeviceTaints): unhealthy \
                 devices are left out of resource slices"
            );
            self.form.taints = false;
        }
        if is_lost(|device| device.allow_multiple_allocations == Some(true)) && self.form.shares {
            tracing::warn!(
                "the API server drops allowMultipleAllocations (feature gate \
                 DRAConsumableCapacity): each share is published as a device"
            );
            self.form.shares = false;
        }
        let lost_counters = lost_counters || is_lost(|device| device.consumes_counters.is_some());
        if lost_counters && self.form.parts {
            tracing::warn!(
                "the API server drops counters (feature gate DRAPartitionableDevices): parts of \
                 devices are not offered to claims"
            );
            self.form.parts = false;
        }
        match sent == kept {
            true => self.kept.remove(&name),
            false => self.kept.insert(name, (sent, kept)),
        };
    }
}
