//! Finds the containers that hold a device, in the kubelet checkpoint and the attachment records, or
//! by inspecting all running containers.

use device_class::inserted;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::discover::Device;
use device_class::name::{ClassName, DeviceId, DeviceRef, excerpt};
use device_class::similar;
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;
use injection_plan::plan::{GrantOrigin, InjectionStep, StepOwner};
use nix::unistd::geteuid;
use serde::Serialize;

use super::CommandError;
use super::containers::{self, SHORT_ID_LENGTH};
use super::devices::ListedDevice;
use super::running_root::{self, RunningRoot};
use crate::apply;
use crate::live;
use crate::log;
use crate::oci::Bundle;
use crate::planner::{self, Caller};
use crate::trust::Origin;

/// The kubelet's log directory, which has a directory `NAMESPACE_NAME_UID` for each pod (Kubernetes,
/// pkg/kubelet/kuberuntime, `BuildPodLogsDirectory`).
const POD_LOG_DIR: &str = "var/log/pods";

/// The maximum number of pods whose names are read from [`POD_LOG_DIR`]. Containers of further
/// pods are listed without the name of the pod.
const MAX_POD_NAMES: usize = 4096;

/// The name of a class or of a resource, and the id of a device.
type DeviceKey = (String, String);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Holder {
    /// The id under which the device was allocated. For a shared device it is the id of a share.
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    /// The container's name in its pod, or its id if it belongs to no pod.
    container: String,
    /// The name that the container's engine gave to the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The pod as `NAMESPACE/NAME`, or `None` if the node has no log directory of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    /// The event by which the container got the device, or `None` if the kubelet allocated it.
    #[serde(rename = "since", skip_serializing_if = "Option::is_none")]
    acquired_by: Option<Acquisition>,
}

/// The event by which a container got a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Acquisition {
    Start,
    Attached,
}

/// Returns the devices of an attachment record that the container holds. A device is held if a user
/// attached it, if it has a device rule, or if `is_present` returns true for one of its files. Of
/// an unplugged device only the entry in the record remains, so it is not returned.
fn find_held_devices(
    record: &live::AttachmentRecord,
    is_present: impl Fn(&Path) -> bool,
) -> impl Iterator<Item = (DeviceKey, Acquisition)> {
    let is_held = move |device: &&live::AttachedDevice| {
        let own_owner = [StepOwner::Device(device.device_ref())];
        let has_device = |owners: &[StepOwner]| owners.contains(&own_owner[0]);
        let mut files = record.files.iter().filter(|file| has_device(&file.owners));
        // A device that the container could already use before `attach` has no rules and files in
        // the record, so every attached device counts.
        device.grant_origin.is_user()
            || record.rules.iter().any(|rule| rule.owners == own_owner)
            || files.any(|file| is_present(&file.path))
    };
    record.devices.iter().filter(is_held).map(|device| {
        let acquired_by = match device.grant_origin {
            GrantOrigin::Hook => Acquisition::Start,
            GrantOrigin::User { .. } => Acquisition::Attached,
        };
        ((device.class.to_string(), device.label()), acquired_by)
    })
}

impl Holder {
    pub(super) fn describe(&self) -> String {
        let name = match (self.pod.as_ref().or(self.pod_uid.as_ref()), &self.name) {
            (Some(pod), name) => format!("{pod}/{}", name.as_ref().unwrap_or(&self.container)),
            (None, Some(name)) => name.clone(),
            (None, None) => self.container.chars().take(SHORT_ID_LENGTH).collect(),
        };
        match self.acquired_by {
            Some(Acquisition::Attached) => name + " (attached)",
            _ => name,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Holders {
    /// The containers with devices that the kubelet allocated, by resource and device id.
    by_resource: BTreeMap<DeviceKey, Vec<Holder>>,
    /// The containers that got devices in another way, by class and device id.
    by_class: BTreeMap<DeviceKey, Vec<Holder>>,
    /// The containers that wait for devices.
    waiting_containers: Vec<WaitingContainer>,
}

/// A container that waits for devices of a class.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WaitingContainer {
    class: String,
    /// The awaited device, in the form of a request.
    device: String,
    container: String,
    /// The name that the container's engine gave to the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The name of a device of the host that was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    did_you_mean: Option<String>,
    /// The awaited name, or its last component if it is a path. `None` if all devices are awaited.
    #[serde(skip)]
    awaited_name: Option<String>,
    #[serde(skip)]
    label: String,
}

impl WaitingContainer {
    /// Sets `did_you_mean` to the device of the host that the user probably meant.
    pub(super) fn with_suggestion(mut self, devices: &[ListedDevice]) -> Self {
        let class_devices = devices.iter().filter(|device| device.class == self.class);
        let names = class_devices.flat_map(|device| {
            let aliases = device.own_aliases.iter().map(String::as_str);
            std::iter::once(&*device.id).chain(aliases)
        });
        let awaited_name = self.awaited_name.as_deref();
        let intended_name = awaited_name.and_then(|name| similar::find_intended(name, names));
        self.did_you_mean = intended_name.map(str::to_owned);
        self
    }

    pub(super) fn describe(&self) -> String {
        let WaitingContainer {
            class,
            device,
            label,
            did_you_mean,
            ..
        } = self;
        let suggestion = did_you_mean
            .as_ref()
            .map(|name| format!("; did you mean {name}?"));
        let suggestion = suggestion.unwrap_or_default();
        format!("{label} is waiting for {device} of {class}{suggestion}")
    }
}

impl Holders {
    /// Reads the kubelet checkpoint and the attachment records of running containers. Returns `None`
    /// if the host has neither. An invalid file results in a warning.
    pub(super) fn read(config: &Config) -> Option<Self> {
        let path = &config.trust.kubelet_checkpoint;
        let mut holders = Holders::default();
        for record in live::read_and_report_records(&config.host_root) {
            let holder = Holder {
                container: record.id.clone(),
                ..Holder::default()
            };
            holders.add(&holder, find_held_devices(&record, |_| true));
        }
        match KubeletCheckpoint::read(path) {
            Ok(record) => {
                holders.by_resource = read_allocations(&record, &config.host_root);
                return Some(holders);
            }
            Err(error) if error.is_absent() => {}
            Err(error) => log::warning(&format!(
                "holders are not shown: the kubelet's record of allocated devices, {}, cannot be \
                 used: {}",
                path.display(),
                log::format_error_chain(&error)
            )),
        }
        (!holders.by_class.is_empty()).then_some(holders)
    }

    /// Inspects all running containers. A container that cannot be inspected results in a warning.
    pub(super) fn from_running(root: Option<PathBuf>, config: &Config) -> Self {
        if !geteuid().is_root() {
            log::warning("containers of other users are not looked at: run this as root");
        }
        let mut holders = Holders::default();
        let mut records = live::read_and_report_records(&config.host_root);
        let all_records = records.clone();
        for (container, pid, directory) in containers::find_running(root, &config.host_root) {
            records.retain(|record| record.id != container.id);
            let id = container.id.clone();
            // The child process returns a list, because the serializer of a struct would make the
            // program larger.
            let inspection = running_root::run_in_child(|| {
                let inspection = InspectedContainer::inspect(&id, pid, &directory, config);
                let devices = inspection.devices.into_iter();
                let devices =
                    devices.map(|(key, acquired_by)| (key, acquired_by == Acquisition::Attached));
                (
                    devices.collect::<Vec<_>>(),
                    inspection.pod,
                    inspection.fault,
                )
            });
            let (devices, pod, fault) = inspection.unwrap_or_else(|| {
                let fault = "a file system in it does not answer".to_owned();
                (Vec::new(), None, Some(fault))
            });
            let devices = devices.into_iter().map(|(key, is_attached)| {
                if is_attached {
                    (key, Acquisition::Attached)
                } else {
                    (key, Acquisition::Start)
                }
            });
            if let Some(fault) = fault {
                let id = excerpt(&container.id);
                log::warning(&format!(
                    "container {id}: what it has is not known: {fault}"
                ));
            }
            let (pod, name) = pod.unzip();
            let holder = Holder {
                name: name.or_else(|| container.name(&config.host_root)),
                container: container.id,
                pod,
                ..Holder::default()
            };
            if let Some(record) = all_records
                .iter()
                .find(|record| record.id == holder.container)
            {
                holders.add_waiting(&holder, record);
            }
            holders.add(&holder, devices);
        }
        // The remaining records belong to containers whose bundle or first process was not found.
        for record in records {
            let holder = Holder {
                container: record.id.clone(),
                ..Holder::default()
            };
            holders.add_waiting(&holder, &record);
            holders.add(&holder, find_held_devices(&record, |_| true));
        }
        holders
    }

    /// Returns the containers that hold the device `device` of `class`, or a share of it.
    pub(super) fn find_holders(&self, class: &ClassName, device: &Device) -> Vec<Holder> {
        let ids: Vec<DeviceId> = device.offered_ids();
        let find_allocations = |id: &DeviceId| {
            let key = (device.resource.to_string(), id.to_string());
            self.by_resource.get(&key).into_iter().flatten()
        };
        let key = (class.to_string(), device.id.to_string());
        let other_holders = self.by_class.get(&key).into_iter().flatten();
        ids.iter()
            .flat_map(find_allocations)
            .chain(other_holders)
            .cloned()
            .collect()
    }

    /// Returns the containers that wait for devices of the classes `classes`.
    pub(super) fn find_waiting_containers(
        &self,
        classes: &[String],
    ) -> impl Iterator<Item = &WaitingContainer> {
        let waiting_containers = self.waiting_containers.iter();
        waiting_containers.filter(|container| classes.contains(&container.class))
    }

    fn add_waiting(&mut self, holder: &Holder, record: &live::AttachmentRecord) {
        let waiting_containers =
            record
                .awaited_requests
                .iter()
                .map(|awaited_device| WaitingContainer {
                    class: awaited_device.class.to_string(),
                    container: holder.container.clone(),
                    name: holder.name.clone(),
                    label: holder.describe(),
                    device: excerpt(&awaited_device.awaited.to_request()),
                    awaited_name: awaited_device.awaited.short_name().map(str::to_owned),
                    did_you_mean: None,
                });
        self.waiting_containers.extend(waiting_containers);
    }

    fn add(
        &mut self,
        holder: &Holder,
        devices: impl IntoIterator<Item = (DeviceKey, Acquisition)>,
    ) {
        for (key, acquired_by) in devices {
            let holder = Holder {
                device: key.1.clone(),
                acquired_by: Some(acquired_by),
                ..holder.clone()
            };
            self.by_class.entry(key).or_default().push(holder);
        }
    }
}

/// The devices that an inspection of a running container has found.
#[derive(Default)]
struct InspectedContainer {
    devices: Vec<(DeviceKey, Acquisition)>,
    /// The pod as `NAMESPACE/NAME`, and the container's name in the pod.
    pod: Option<(String, String)>,
    /// The reason why the inspection is incomplete, or `None` if it is complete.
    fault: Option<String>,
}

impl InspectedContainer {
    fn inspect(id: &str, pid: i32, directory: &Path, config: &Config) -> Self {
        let record = live::find_record(&config.host_root, id).ok().flatten();
        let record = record.filter(|record| !record.has_ended());
        let root = RunningRoot::from_pid(pid);
        let is_present = |path: &Path| matches!(root.look_up(path), Ok(Some(_)));
        let devices = record
            .iter()
            .flat_map(|record| find_held_devices(record, is_present));
        let mut inspection = InspectedContainer {
            devices: devices.collect(),
            ..InspectedContainer::default()
        };
        // The container's root cannot be opened if its first process has ended.
        if root.look_up(Path::new("/")).is_err() {
            return inspection;
        }
        match inspection.add_injected_devices(&root, directory, config) {
            Ok(()) => {}
            Err(error) => inspection.fault = Some(log::format_error_chain(&error)),
        }
        inspection
    }

    /// Adds the devices that the hook gave to the container at its start. The injection plan is
    /// computed again to find them. The new plan may have more devices than the plan at the start,
    /// so only devices whose nodes exist in the container are added.
    fn add_injected_devices(
        &mut self,
        root: &RunningRoot,
        directory: &Path,
        config: &Config,
    ) -> Result<(), CommandError> {
        let bundle = Bundle::read(directory)?;
        if let Ok(Origin::Pod(pod)) = Origin::from_bundle(&bundle) {
            self.pod = Some(pod.names());
        }
        if bundle.hooks.find_boathook_hooks().next().is_none() {
            return Ok(());
        }
        let plan = planner::plan_injection_for(&bundle, &Caller::PlanInspector, config)?;
        let look_up = |path: &Path| root.look_up(path);
        // The plan may have no step for a device that was unplugged.
        let is_present = |device: &DeviceRef| {
            let is_step_of_device =
                |step: &&InjectionStep| step.owners.iter().any(|owner| owner.is_device(device));
            let mut steps = plan.steps.iter().filter(is_step_of_device).peekable();
            steps.peek().is_some()
                && steps.all(|step| apply::find_missing_file(&step.action, &look_up) == Ok(None))
        };
        for grant in &plan.grants {
            for device in grant.device_refs().filter(is_present) {
                let key = (device.class.to_string(), device.id.to_string());
                if !self.devices.iter().any(|(known_key, _)| *known_key == key) {
                    self.devices.push((key, Acquisition::Start));
                }
            }
        }
        Ok(())
    }
}

/// Returns the containers to which the kubelet has allocated devices, by resource and device id.
fn read_allocations(
    checkpoint: &KubeletCheckpoint,
    host_root: &Path,
) -> BTreeMap<DeviceKey, Vec<Holder>> {
    let pods = read_pod_names(&host_root.join(POD_LOG_DIR));
    let mut holders: BTreeMap<_, Vec<Holder>> = BTreeMap::new();
    for allocation in checkpoint.allocations() {
        for device in allocation.devices {
            let key = (allocation.resource.to_owned(), device.to_owned());
            holders.entry(key).or_default().push(Holder {
                device: excerpt(device),
                pod_uid: Some(excerpt(allocation.pod_uid)),
                container: excerpt(allocation.container),
                pod: pods.get(allocation.pod_uid).cloned(),
                ..Holder::default()
            });
        }
    }
    holders
}

/// Returns the names `NAMESPACE/NAME` of the pods that have a log directory on this node, by uid.
fn read_pod_names(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.take(MAX_POD_NAMES).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let mut parts = name.split('_');
        let (namespace, pod, uid) = (parts.next()?, parts.next()?, parts.next()?);
        let pod = excerpt(&format!("{namespace}/{pod}"));
        parts.next().is_none().then(|| (uid.to_owned(), pod))
    });
    inserted(names)
}
