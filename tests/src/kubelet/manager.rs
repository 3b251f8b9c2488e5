//! The device manager: plugins, devices, and who has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubelet_api::UNHEALTHY;
use kubelet_api::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, ListAndWatchResponse, PreferredAllocationRequest,
};
use tonic::{Status, Streaming};

use super::Config;
use super::checkpoint::{self, Entry, NO_NUMA, Record};
use super::container;
use super::endpoint::{self, Endpoint};
use super::event::{DeviceReport, Event, EventLog};

/// The request for devices of a container.
#[derive(Debug, Clone)]
pub struct Allocation {
    pub resource: String,
    /// Exactly these devices, sent to the plugin as they are. Without them
    /// the kubelet chooses `count` of its own.
    pub ids: Vec<String>,
    pub count: usize,
    pub pod_uid: String,
    pub container: String,
    /// The container's environment by its pod.
    pub env: BTreeMap<String, String>,
}

impl Allocation {
    /// An allocation of any `count` devices.
    pub fn new(resource: &str, count: usize) -> Self {
        Allocation {
            resource: resource.to_owned(),
            ids: Vec::new(),
            count,
            pod_uid: "0f3f3a0e-5f0e-4a53-9f55-3c0a2f3f7a11".to_owned(),
            container: "main".to_owned(),
            env: BTreeMap::new(),
        }
    }

    /// An allocation of these devices.
    pub fn of_ids(resource: &str, ids: &[&str]) -> Self {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        Allocation {
            ids,
            ..Allocation::new(resource, 0)
        }
    }
}

/// The devices that a container got.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocated {
    pub ids: Vec<String>,
    /// The container's environment, as far as kubelet and pod make it.
    pub envs: BTreeMap<String, String>,
    /// The container's annotations, as containerd writes them.
    pub annotations: BTreeMap<String, String>,
    /// The plugin's answer as it came.
    pub response: ContainerAllocateResponse,
}

pub(super) struct Manager {
    directory: PathBuf,
    log: EventLog,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    endpoints: BTreeMap<String, Endpoint>,
    entries: Vec<Entry>,
    registrations: u64,
}

impl Manager {
    /// Starts with the record of an earlier run.
    pub(super) fn new(config: &Config, log: EventLog) -> Self {
        let directory = config.dir.join("device-plugins");
        let entries = Record::read(&directory).pod_device_entries;
        let state = Mutex::new(State {
            entries,
            ..State::default()
        });
        Manager {
            directory,
            log,
            state,
        }
    }

    /// Dials a plugin that registers, and listens to it from then on.
    pub(super) async fn connect(
        self: &Arc<Self>,
        resource: &str,
        socket: &Path,
    ) -> Result<(), String> {
        let generation = {
            let mut state = self.state();
            state.registrations += 1;
            state.registrations
        };
        let name = socket.file_name().unwrap_or_default();
        let endpoint = name.to_string_lossy().into_owned();
        let (dialled, stream) = endpoint::dial(socket, generation).await?;
        self.state().endpoints.insert(resource.to_owned(), dialled);
        self.log.push(Event::Registered {
            resource: resource.into(),
            endpoint,
        });
        let (manager, resource) = (Arc::clone(self), resource.to_owned());
        tokio::spawn(async move { manager.listen(&resource, generation, stream).await });
        Ok(())
    }

    /// The healthy devices, each with its resource.
    pub(super) fn healthy(&self) -> Vec<(String, String)> {
        let state = self.state();
        let of = |(resource, endpoint): (&String, &Endpoint)| {
            let ids = endpoint.healthy().map(|device| device.id.clone());
            let devices = ids.map(|id| (resource.clone(), id));
            devices.collect::<Vec<_>>()
        };
        state.endpoints.iter().flat_map(of).collect()
    }

    /// A device plugin's socket by the name that Register gives.
    pub(super) fn socket(&self, endpoint: &str) -> PathBuf {
        self.directory.join(endpoint)
    }

    pub(super) fn refused(&self, resource: &str, reason: &str) {
        self.log.push(Event::Refused {
            resource: resource.into(),
            reason: reason.into(),
        });
    }

    pub(super) fn unanswered(&self, resource: &str) {
        self.log.push(Event::Unanswered {
            resource: resource.into(),
        });
    }

    async fn listen(
        &self,
        resource: &str,
        generation: u64,
        mut stream: Streaming<ListAndWatchResponse>,
    ) {
        while let Ok(Some(list)) = stream.message().await {
            let devices = endpoint::reports(list);
            if !self.replace_devices(resource, generation, |known| known.clone_from(&devices)) {
                return;
            }
            self.log.push(Event::Devices {
                resource: resource.into(),
                devices,
            });
        }
        let unhealthy = |known: &mut Vec<DeviceReport>| {
            known
                .iter_mut()
                .for_each(|device| device.health = UNHEALTHY.to_owned());
        };
        if self.replace_devices(resource, generation, unhealthy) {
            self.log.push(Event::StreamBroken {
                resource: resource.into(),
            });
        }
    }

    /// Whether this is still the plugin that counts for the resource.
    fn replace_devices(
        &self,
        resource: &str,
        generation: u64,
        change: impl FnOnce(&mut Vec<DeviceReport>),
    ) -> bool {
        let mut state = self.state();
        let endpoint = state.endpoints.get_mut(resource);
        let Some(endpoint) = endpoint.filter(|e| e.generation == generation) else {
            return false;
        };
        change(&mut endpoint.devices);
        self.record(&state);
        true
    }

    /// Gives devices to a container, and starts it.
    pub(super) async fn allocate(&self, allocation: Allocation) -> Result<Allocated, String> {
        let resource = &allocation.resource;
        let known = self.state().endpoints.get(resource).cloned();
        let mut endpoint = known.ok_or_else(|| format!("{resource} is not registered"))?;
        let ids = if allocation.ids.is_empty() && allocation.count > 0 {
            self.choose(&mut endpoint, resource, allocation.count)
                .await?
        } else {
            allocation.ids.clone()
        };
        let container = ContainerAllocateRequest {
            devices_ids: ids.clone(),
        };
        let request = AllocateRequest {
            container_requests: vec![container],
        };
        let answer = endpoint
            .client
            .allocate(request)
            .await
            .map_err(|status| said(&status))?;
        let mut responses = answer.into_inner().container_responses;
        let response = match (responses.pop(), responses.len()) {
            (Some(response), 0) => response,
            (_, more) => return Err(format!("1 container asked, {more} more or none answered")),
        };
        self.give(&endpoint, &allocation, &ids, &response);
        // The kubelet writes the pod's after the plugin's; engines keep the last of a name.
        let envs = response.envs.clone().into_iter();
        Ok(Allocated {
            ids,
            envs: envs.chain(allocation.env.clone()).collect(),
            annotations: container::annotations(&response.annotations, &allocation),
            response,
        })
    }

    /// Healthy devices that are not allocated; the plugin may choose among
    /// them.
    async fn choose(
        &self,
        endpoint: &mut Endpoint,
        resource: &str,
        count: usize,
    ) -> Result<Vec<String>, String> {
        let free: Vec<String> = {
            let state = self.state();
            let of_resource = state
                .entries
                .iter()
                .filter(|entry| entry.resource_name == resource);
            let taken: BTreeSet<&String> = of_resource
                .flat_map(|entry| entry.device_ids.values().flatten())
                .collect();
            let ids = endpoint.healthy().map(|device| &device.id);
            ids.filter(|id| !taken.contains(id)).cloned().collect()
        };
        if free.len() < count {
            return Err(format!(
                "{count} of {resource} wanted, {} available",
                free.len()
            ));
        }
        if !endpoint.options.get_preferred_allocation_available || free.len() == count {
            return Ok(free.into_iter().take(count).collect());
        }
        let request = ContainerPreferredAllocationRequest {
            available_device_i_ds: free,
            must_include_device_i_ds: Vec::new(),
            allocation_size: i32::try_from(count).map_err(|error| error.to_string())?,
        };
        let request = PreferredAllocationRequest {
            container_requests: vec![request],
        };
        let answer = endpoint.client.get_preferred_allocation(request).await;
        let answer = answer.map_err(|status| said(&status))?.into_inner();
        let first = answer.container_responses.into_iter().next();
        first
            .map(|chosen| chosen.device_i_ds)
            .ok_or_else(|| "no preference".to_owned())
    }

    fn give(
        &self,
        endpoint: &Endpoint,
        allocation: &Allocation,
        ids: &[String],
        response: &ContainerAllocateResponse,
    ) {
        let mut device_ids: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        let numa = endpoint.devices.iter().map(|d| (&d.id, d.numa));
        let numa: BTreeMap<&String, Option<i64>> = numa.collect();
        for id in ids {
            let numa = numa.get(id).copied().flatten().unwrap_or(NO_NUMA);
            device_ids.entry(numa).or_default().push(id.clone());
        }
        let mut state = self.state();
        state.entries.push(Entry {
            pod_uid: allocation.pod_uid.clone(),
            container_name: allocation.container.clone(),
            resource_name: allocation.resource.clone(),
            device_ids,
            alloc_resp: checkpoint::encoded(response),
        });
        self.record(&state);
    }

    fn record(&self, state: &State) {
        let healthy = |endpoint: &Endpoint| endpoint.healthy().map(|d| d.id.clone()).collect();
        let registered = state
            .endpoints
            .iter()
            .map(|(name, e)| (name.clone(), healthy(e)));
        let record = Record {
            pod_device_entries: state.entries.clone(),
            registered_devices: registered.collect(),
        };
        if let Err(error) = record.write(&self.directory) {
            self.log.push(Event::Error {
                message: format!("checkpoint: {error}"),
            });
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn said(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
