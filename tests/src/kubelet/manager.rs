//! The device manager: plugins, devices, and who has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use kubelet_api::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Empty, PreferredAllocationRequest,
};
use kubelet_api::podresources::ContainerDevices;
use kubelet_api::{HEALTHY, UNHEALTHY};
use tokio::sync::Notify;
use tonic::Status;
use tonic::transport::Channel;

use super::checkpoint::{self, Entry, NO_NUMA, Record};
use super::container;
use super::endpoint::{self, Endpoint};
use super::event::{DeviceReport, Event, EventLog};
use super::{Config, PluginTracking};

/// The error of a call to a plugin that was disconnected (endpoint.go).
const STOPPED: &str = "the endpoint of the device plugin has been stopped";

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
    tracking: PluginTracking,
    log: EventLog,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The plugins that the kubelet watches, by resource.
    clients: BTreeMap<String, Vec<Client>>,
    /// The plugin of each resource that answers Allocate.
    endpoints: BTreeMap<String, Endpoint>,
    /// The devices of each resource in the last list of any of its plugins; all unhealthy after
    /// its plugin was disconnected.
    devices: BTreeMap<String, Vec<DeviceReport>>,
    entries: Vec<Entry>,
    /// The uids of pods that have ended.
    ended: BTreeSet<String>,
}

impl State {
    /// Forgets the devices of pods that have ended, as UpdateAllocatedDevices in manager.go does
    /// before an allocation and before pods are listed. The checkpoint stays as it is.
    fn update_allocated_devices(&mut self) {
        let ended = &self.ended;
        self.entries.retain(|entry| !ended.contains(&entry.pod_uid));
    }

    /// The devices of a resource that may be given.
    fn healthy(&self, resource: &str) -> impl Iterator<Item = &DeviceReport> {
        let devices = self.devices.get(resource).into_iter().flatten();
        devices.filter(|device| device.health == HEALTHY)
    }
}

/// A plugin whose stream the kubelet reads.
struct Client {
    socket: PathBuf,
    /// Ends the reading of its stream.
    closed: Arc<Notify>,
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
            tracking: config.tracking,
            log,
            state,
        }
    }

    /// Dials a plugin that registers, and listens to it from then on (connectClient in
    /// plugin/v1beta1/handler.go). If the plugin cannot be reached, or refuses to tell its options,
    /// the kubelet forgets the plugin of the resource that it watched until then, and nothing else
    /// changes.
    pub(super) async fn connect(
        self: &Arc<Self>,
        resource: &str,
        socket: &Path,
    ) -> Result<(), String> {
        let closed = Arc::new(Notify::new());
        let client = Client {
            socket: socket.to_owned(),
            closed: Arc::clone(&closed),
        };
        {
            let mut state = self.state();
            let clients = state.clients.entry(resource.to_owned()).or_default();
            if self.tracking == PluginTracking::ByResource {
                clients.clear();
            }
            clients.push(client);
        }
        let dialled = match endpoint::dial(socket).await {
            Ok(dialled) => dialled,
            Err(error) => {
                self.take_client(resource, socket);
                return Err(error);
            }
        };
        let plugin = dialled.client.clone();
        self.state().endpoints.insert(resource.to_owned(), dialled);
        let name = socket.file_name().unwrap_or_default();
        self.log.push(Event::Registered {
            resource: resource.into(),
            endpoint: name.to_string_lossy().into_owned(),
        });
        let (manager, resource) = (Arc::clone(self), resource.to_owned());
        let socket = socket.to_owned();
        tokio::spawn(async move {
            if let Some(plugin) = plugin {
                tokio::select! {
                    () = manager.listen(&resource, plugin) => {}
                    () = closed.notified() => {}
                }
            }
            manager.disconnect(&resource, &socket);
        });
        Ok(())
    }

    /// The healthy devices, each with its resource.
    pub(super) fn healthy(&self) -> Vec<(String, String)> {
        let state = self.state();
        let of = |resource: &String| {
            let ids = state.healthy(resource).map(|device| device.id.clone());
            let devices = ids.map(|id| (resource.clone(), id));
            devices.collect::<Vec<_>>()
        };
        state.devices.keys().flat_map(of).collect()
    }

    pub(super) fn end_pod(&self, uid: String) {
        self.state().ended.insert(uid);
    }

    /// The uid of each pod that has not ended, with a container and its devices of one resource.
    pub(super) fn list_pods(&self) -> Vec<(String, String, Vec<ContainerDevices>)> {
        let mut state = self.state();
        state.update_allocated_devices();
        let pods = state.entries.iter().map(|entry| {
            let devices = ContainerDevices {
                resource_name: entry.resource_name.clone(),
                device_ids: entry.device_ids.values().flatten().cloned().collect(),
            };
            (
                entry.pod_uid.clone(),
                entry.container_name.clone(),
                vec![devices],
            )
        });
        pods.collect()
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

    /// Reads a plugin's lists until its stream ends. A list replaces the devices of the resource,
    /// also if another plugin has registered since (genericDeviceUpdateCallback in manager.go).
    async fn listen(&self, resource: &str, mut plugin: DevicePluginClient<Channel>) {
        let Ok(stream) = plugin.list_and_watch(Empty {}).await else {
            return;
        };
        let mut stream = stream.into_inner();
        drop(plugin);
        while let Ok(Some(list)) = stream.message().await {
            let devices = endpoint::reports(list);
            let mut state = self.state();
            state.devices.insert(resource.to_owned(), devices.clone());
            self.record(&state);
            drop(state);
            self.log.push(Event::Devices {
                resource: resource.into(),
                devices,
            });
        }
    }

    /// Disconnects the plugin that the kubelet finds for a stream that has ended (runClient in
    /// plugin/v1beta1/handler.go): its connection is closed, and the devices of the resource are
    /// unhealthy. There may be none, and then nothing changes.
    pub(super) fn disconnect(&self, resource: &str, socket: &Path) {
        let Some(client) = self.take_client(resource, socket) else {
            return;
        };
        client.closed.notify_one();
        let mut state = self.state();
        let Some(endpoint) = state.endpoints.get_mut(resource) else {
            return;
        };
        if self.tracking == PluginTracking::BySocket && endpoint.socket != client.socket {
            return;
        }
        endpoint.client = None;
        for device in state.devices.get_mut(resource).into_iter().flatten() {
            device.health = UNHEALTHY.to_owned();
        }
        self.record(&state);
        drop(state);
        self.log.push(Event::StreamBroken {
            resource: resource.into(),
        });
    }

    /// Removes a plugin from those that the kubelet watches, and returns it.
    fn take_client(&self, resource: &str, socket: &Path) -> Option<Client> {
        let mut state = self.state();
        let clients = state.clients.get_mut(resource)?;
        let found = match self.tracking {
            PluginTracking::ByResource => 0,
            PluginTracking::BySocket => clients.iter().position(|one| one.socket == socket)?,
        };
        (found < clients.len()).then(|| clients.remove(found))
    }

    /// Gives devices to a container, and starts it.
    pub(super) async fn allocate(&self, allocation: Allocation) -> Result<Allocated, String> {
        let resource = &allocation.resource;
        self.state().update_allocated_devices();
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
        let plugin = endpoint.client.as_mut().ok_or(STOPPED)?;
        let answer = plugin.allocate(request).await;
        let answer = answer.map_err(|status| said(&status))?;
        let mut responses = answer.into_inner().container_responses;
        let response = match (responses.pop(), responses.len()) {
            (Some(response), 0) => response,
            (_, more) => return Err(format!("1 container asked, {more} more or none answered")),
        };
        self.give(&allocation, &ids, &response);
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
            let ids = state.healthy(resource).map(|device| &device.id);
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
        let plugin = endpoint.client.as_mut().ok_or(STOPPED)?;
        let answer = plugin.get_preferred_allocation(request).await;
        let answer = answer.map_err(|status| said(&status))?.into_inner();
        let first = answer.container_responses.into_iter().next();
        first
            .map(|chosen| chosen.device_i_ds)
            .ok_or_else(|| "no preference".to_owned())
    }

    fn give(&self, allocation: &Allocation, ids: &[String], response: &ContainerAllocateResponse) {
        let mut state = self.state();
        let mut device_ids: BTreeMap<i64, Vec<String>> = BTreeMap::new();
        let devices = state.devices.get(&allocation.resource);
        let numa = devices.into_iter().flatten().map(|d| (&d.id, d.numa));
        let numa: BTreeMap<&String, Option<i64>> = numa.collect();
        for id in ids {
            let numa = numa.get(id).copied().flatten().unwrap_or(NO_NUMA);
            device_ids.entry(numa).or_default().push(id.clone());
        }
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
        let healthy = |name: &String| state.healthy(name).map(|d| d.id.clone()).collect();
        let names = state.devices.keys();
        let registered = names.map(|name| (name.clone(), healthy(name)));
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
