//! The device manager of the fake kubelet: its plugins, their devices, and the containers that have
//! these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use daemon::kubelet_api::deviceplugin::device_plugin_client::DevicePluginClient;
use daemon::kubelet_api::deviceplugin::{
    AllocateRequest, ContainerAllocateRequest, ContainerAllocateResponse,
    ContainerPreferredAllocationRequest, Empty, PreferredAllocationRequest,
};
use daemon::kubelet_api::podresources::ContainerDevices;
use daemon::kubelet_api::{HEALTHY, UNHEALTHY};
use tokio::sync::Notify;
use tonic::Status;
use tonic::transport::Channel;

use super::checkpoint::{self, Entry, NO_NUMA, Record};
use super::container;
use super::endpoint::{self, Endpoint};
use super::event::{DeviceReport, Event, EventLog};
use super::{Config, PluginTracking};

/// The kubelet's error for a call to a plugin that it has disconnected (endpoint.go).
const STOPPED: &str = "the endpoint of the device plugin has been stopped";

/// A container's request for devices of one resource.
#[derive(Debug, Clone)]
pub struct Allocation {
    pub resource: String,
    /// The ids of the devices to allocate. They are sent to the plugin unchanged, even if no such
    /// device exists. If the list is empty, the kubelet chooses `count` devices.
    pub ids: Vec<String>,
    pub count: usize,
    pub pod_uid: String,
    pub container: String,
    /// The environment variables in the pod's specification of the container.
    pub env: BTreeMap<String, String>,
}

impl Allocation {
    /// Returns a request for `count` devices that the kubelet chooses.
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

    /// Returns a request for exactly these devices.
    pub fn of_ids(resource: &str, ids: &[&str]) -> Self {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        Allocation {
            ids,
            ..Allocation::new(resource, 0)
        }
    }
}

/// The result of a successful allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocated {
    pub ids: Vec<String>,
    /// The container's environment variables from the plugin and the pod. Those of the image are
    /// not part of it.
    pub envs: BTreeMap<String, String>,
    /// The container's annotations that containerd writes.
    pub annotations: BTreeMap<String, String>,
    /// The plugin's unchanged answer to Allocate.
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
    /// The plugins whose ListAndWatch streams the kubelet reads, by resource.
    clients: BTreeMap<String, Vec<Client>>,
    /// The plugin that the kubelet calls to allocate devices, by resource.
    endpoints: BTreeMap<String, Endpoint>,
    /// The devices in the last list that any plugin of a resource sent, by resource. All of them
    /// become unhealthy when the kubelet disconnects the plugin.
    devices: BTreeMap<String, Vec<DeviceReport>>,
    entries: Vec<Entry>,
    /// The uids of pods that have ended but whose devices may still be in `entries`.
    ended: BTreeSet<String>,
}

impl State {
    /// Removes the entries of ended pods, as UpdateAllocatedDevices in manager.go does before an
    /// allocation and before pods are listed. The checkpoint file is not written.
    fn update_allocated_devices(&mut self) {
        let ended = &self.ended;
        self.entries.retain(|entry| !ended.contains(&entry.pod_uid));
    }

    /// Returns the healthy devices of a resource.
    fn healthy(&self, resource: &str) -> impl Iterator<Item = &DeviceReport> {
        let devices = self.devices.get(resource).into_iter().flatten();
        devices.filter(|device| device.health == HEALTHY)
    }
}

/// A plugin whose ListAndWatch stream the kubelet reads.
struct Client {
    socket: PathBuf,
    /// Notified to end the task that reads the stream.
    closed: Arc<Notify>,
}

impl Manager {
    /// Returns a manager with the allocations in the checkpoint of an earlier run.
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

    /// Connects to a plugin that registers and starts the task that reads its devices
    /// (connectClient in plugin/v1beta1/handler.go). If the connection or the request for its
    /// options fails, the kubelet only forgets the plugin of the resource that it watched before.
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

    /// Returns all healthy devices as pairs of resource and device id.
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

    /// Returns pod uid, container name and devices of one resource for each allocation of a pod
    /// that has not ended.
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

    /// Returns the path of a device plugin's socket, whose file name is `endpoint` of the Register
    /// call.
    pub(super) fn socket(&self, endpoint: &str) -> PathBuf {
        self.directory.join(endpoint)
    }

    pub(super) fn log_refusal(&self, resource: &str, reason: &str) {
        self.log.push(Event::Refused {
            resource: resource.into(),
            reason: reason.into(),
        });
    }

    pub(super) fn log_unanswered(&self, resource: &str) {
        self.log.push(Event::Unanswered {
            resource: resource.into(),
        });
    }

    /// Reads the device lists of a plugin until its stream ends. Each list replaces the devices of
    /// the resource, even if another plugin has registered since (genericDeviceUpdateCallback in
    /// manager.go).
    async fn listen(&self, resource: &str, mut plugin: DevicePluginClient<Channel>) {
        let Ok(stream) = plugin.list_and_watch(Empty {}).await else {
            return;
        };
        let mut stream = stream.into_inner();
        drop(plugin);
        while let Ok(Some(list)) = stream.message().await {
            let devices = endpoint::device_reports(list);
            let mut state = self.state();
            state.devices.insert(resource.to_owned(), devices.clone());
            self.write_checkpoint(&state);
            drop(state);
            self.log.push(Event::Devices {
                resource: resource.into(),
                devices,
            });
        }
    }

    /// Disconnects the plugin that the kubelet assigns to a stream that has ended (runClient in
    /// plugin/v1beta1/handler.go): closes its connection and makes the devices of the resource
    /// unhealthy. If no plugin is assigned, nothing changes.
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
        self.write_checkpoint(&state);
        drop(state);
        self.log.push(Event::StreamBroken {
            resource: resource.into(),
        });
    }

    /// Removes the plugin that the kubelet assigns to this resource and socket from the watched
    /// ones, and returns it.
    fn take_client(&self, resource: &str, socket: &Path) -> Option<Client> {
        let mut state = self.state();
        let clients = state.clients.get_mut(resource)?;
        let found = match self.tracking {
            PluginTracking::ByResource => 0,
            PluginTracking::BySocket => clients.iter().position(|one| one.socket == socket)?,
            PluginTracking::Nothing => return None,
        };
        (found < clients.len()).then(|| clients.remove(found))
    }

    /// Allocates devices to a container and computes what its environment and annotations would be.
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
        let answer = answer.map_err(|status| describe_status(&status))?;
        let mut responses = answer.into_inner().container_responses;
        let response = match (responses.pop(), responses.len()) {
            (Some(response), 0) => response,
            (_, more) => return Err(format!("1 container asked, {more} more or none answered")),
        };
        self.record_allocation(&allocation, &ids, &response);
        // The kubelet appends the variables of the pod to those of the plugin, and engines use the
        // last value of a name.
        let envs = response.envs.clone().into_iter();
        Ok(Allocated {
            ids,
            envs: envs.chain(allocation.env.clone()).collect(),
            annotations: container::annotations(&response.annotations, &allocation),
            response,
        })
    }

    /// Returns `count` healthy devices that are not allocated. A plugin that offers
    /// GetPreferredAllocation chooses among them.
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
        let answer = answer
            .map_err(|status| describe_status(&status))?
            .into_inner();
        let first = answer.container_responses.into_iter().next();
        first
            .map(|chosen| chosen.device_i_ds)
            .ok_or_else(|| "no preference".to_owned())
    }

    fn record_allocation(
        &self,
        allocation: &Allocation,
        ids: &[String],
        response: &ContainerAllocateResponse,
    ) {
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
        self.write_checkpoint(&state);
    }

    fn write_checkpoint(&self, state: &State) {
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

fn describe_status(status: &Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}
