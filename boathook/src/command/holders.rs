//! Finds the containers that hold a device. They are found in the kubelet checkpoint and in the
//! attachment records, or by inspecting all running containers.

use device_class::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::discover::Device;
use device_class::name::{ClassName, DeviceId, DeviceRef, excerpt, shorten_container_id};
use device_class::similar;
use hook::apply;
use hook::attachment::{self, AwaitedRequest};
use hook::log;
use hook::oci::Bundle;
use hook::planner::{self, Caller};
use hook::trust::ContainerOrigin;
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;
use injection_plan::plan::{GrantOrigin, InjectionStep, StepOwner};
use nix::unistd::geteuid;
use serde::Serialize;

use super::CommandError;
use super::containers;
use super::devices::ListedDevice;
use super::restarting;
use super::running_root::{self, RunningContainerRoot};

/// The kubelet's log directory. It contains a directory `NAMESPACE_NAME_UID` for each pod
/// (Kubernetes, pkg/kubelet/kuberuntime, `BuildPodLogsDirectory`).
const POD_LOG_DIR: &str = "var/log/pods";

/// The maximum number of pods whose names are read from [`POD_LOG_DIR`]. Containers of other pods
/// are listed without the pod's name.
const MAX_POD_NAMES: usize = 4096;

/// The name of a class or resource, such as `vendor.example/npu`, and the id of one of its devices.
type DeviceKey = (String, String);

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct Holder {
    /// The id that the kubelet allocated: the id of the device, or of one share of a shared device.
    device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    /// The container's name in its pod. Outside of pods, the container's id.
    container: String,
    /// The name that the engine gave to the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The pod as `NAMESPACE/NAME`. It is `None` if the node has no log directory for the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    /// The way in which the container got the device. It is `None` if the kubelet allocated the
    /// device.
    #[serde(rename = "since", skip_serializing_if = "Option::is_none")]
    acquisition: Option<Acquisition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
enum Acquisition {
    #[serde(rename = "start")]
    ContainerStart,
    #[serde(rename = "attached")]
    AttachCommand,
}

/// Returns the devices of an attachment record that the container holds. The container holds a
/// device if a user attached it, if it has a device rule, or if `is_present` returns true for one
/// of its files. An unplugged device has no rule and no file, so it is not held.
fn find_held_devices(
    record: &attachment::AttachmentRecord,
    is_present: impl Fn(&Path) -> bool,
) -> impl Iterator<Item = (DeviceKey, Acquisition)> {
    let is_held = move |device: &&attachment::ContainerDevice| {
        let device_as_owner = [StepOwner::Device(device.device_ref())];
        let is_owned_by_device = |owners: &[StepOwner]| owners.contains(&device_as_owner[0]);
        let mut owned_files = record
            .files
            .iter()
            .filter(|file| is_owned_by_device(&file.owners));
        // An attached device is held even if the record contains no rules and files for it. The
        // container may have had access to the device before `attach`.
        device.grant_origin.is_user()
            || record
                .rules
                .iter()
                .any(|rule| rule.owners == device_as_owner)
            || owned_files.any(|file| is_present(&file.path))
    };
    record.devices.iter().filter(is_held).map(|device| {
        let acquisition = match device.grant_origin {
            GrantOrigin::Hook => Acquisition::ContainerStart,
            GrantOrigin::User { .. } => Acquisition::AttachCommand,
        };
        ((device.class.to_string(), device.label()), acquisition)
    })
}

impl Holder {
    pub(super) fn describe(&self) -> String {
        let name = match (self.pod.as_ref().or(self.pod_uid.as_ref()), &self.name) {
            (Some(pod), name) => {
                let name = name.as_ref().unwrap_or(&self.container);
                format!("{pod}/{}", shorten_container_id(name))
            }
            (None, Some(name)) => shorten_container_id(name),
            (None, None) => shorten_container_id(&self.container),
        };
        match self.acquisition {
            Some(Acquisition::AttachCommand) => name + " (attached)",
            _ => name,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Holders {
    /// The containers to which the kubelet allocated devices. The keys contain a resource name and
    /// a device id.
    holders_by_resource: BTreeMap<DeviceKey, Vec<Holder>>,
    /// The containers that got devices by a request or by `boathook attach`. The keys contain a
    /// class name and a device id.
    holders_by_class: BTreeMap<DeviceKey, Vec<Holder>>,
    unfulfilled_requests: Vec<UnfulfilledRequest>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct UnfulfilledRequest {
    class: String,
    /// The device for which the container waits, as it is written in the container's request.
    device: String,
    container: String,
    /// The name that the engine gave to the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The name of a device on this host that the user probably meant.
    #[serde(rename = "did_you_mean", skip_serializing_if = "Option::is_none")]
    suggested_name: Option<String>,
    /// The name of the device for which the container waits. If the name is a path, this is the
    /// last component of the path. It is `None` if the container waits for all devices of the
    /// class.
    #[serde(skip)]
    awaited_name: Option<String>,
    /// True if Docker starts the container again and again. It has no process now.
    #[serde(rename = "restarting", skip_serializing_if = "is_false")]
    is_restarting: bool,
    #[serde(skip)]
    label: String,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

impl UnfulfilledRequest {
    /// Sets `suggested_name` to the device in `devices` that the user probably meant.
    pub(super) fn with_suggestion(mut self, devices: &[ListedDevice]) -> Self {
        let class_devices = devices.iter().filter(|device| device.class == self.class);
        let names = class_devices.flat_map(|device| {
            let aliases = device.unique_aliases.iter().map(String::as_str);
            std::iter::once(&*device.id).chain(aliases)
        });
        let names: Vec<&str> = names.collect();
        // If the host now has a device with the requested name, the name is not mistyped.
        let awaited_name = self.awaited_name.as_deref();
        let awaited_name = awaited_name.filter(|name| !names.contains(name));
        let intended_name = awaited_name.and_then(|name| similar::find_intended_name(name, names));
        self.suggested_name = intended_name.map(str::to_owned);
        self
    }

    pub(super) fn describe(&self) -> String {
        let UnfulfilledRequest {
            class,
            device,
            label,
            suggested_name,
            is_restarting,
            ..
        } = self;
        let restart_note = if *is_restarting {
            ", which docker starts again and again,"
        } else {
            ""
        };
        let suggestion = suggested_name
            .as_ref()
            .map(|name| format!("; did you mean {name}?"));
        let suggestion = suggestion.unwrap_or_default();
        format!("{label}{restart_note} is waiting for {device} of {class}{suggestion}")
    }
}

impl Holders {
    /// Reads the kubelet checkpoint and the attachment records of running containers. Returns
    /// `None` if the host has neither. Logs a warning if a file is invalid.
    pub(super) fn read(config: &Config) -> Option<Self> {
        let checkpoint_path = &config.trust.kubelet_checkpoint;
        let mut holders = Holders::default();
        for record in attachment::read_records_and_log_errors(&config.host_root) {
            let holder = Holder {
                container: record.id.clone(),
                ..Holder::default()
            };
            holders.add_held_devices(&holder, find_held_devices(&record, |_| true));
        }
        match KubeletCheckpoint::read(checkpoint_path) {
            Ok(checkpoint) => {
                holders.holders_by_resource = read_allocations(&checkpoint, &config.host_root);
                return Some(holders);
            }
            Err(error) if error.is_absent() => {}
            Err(error) => log::warning(&format!(
                "holders are not shown: the kubelet's record of allocated devices, {}, cannot be \
                 used: {}",
                checkpoint_path.display(),
                log::format_error_chain(&error)
            )),
        }
        (!holders.holders_by_class.is_empty()).then_some(holders)
    }

    /// Inspects all running containers. Logs a warning if a container cannot be inspected.
    pub(super) fn inspect_running_containers(state_root: Option<PathBuf>, config: &Config) -> Self {
        if !geteuid().is_root() {
            log::warning("containers of other users are not looked at: run this as root");
        }
        let mut holders = Holders::default();
        let mut records = attachment::read_records_and_log_errors(&config.host_root);
        let unfulfilled_requests = crate::live::find_unfulfilled_requests(&records, config);
        let mut running_ids = BTreeSet::new();
        for (container, pid, bundle_dir) in
            containers::find_running_containers(state_root, &config.host_root)
        {
            records.retain(|record| record.id != container.id);
            let id = container.id.clone();
            // The child process returns a tuple, because a serializer for `ContainerInspection`
            // would make the program larger.
            let inspection = running_root::run_in_child(|| {
                let inspection = ContainerInspection::inspect(&id, pid, &bundle_dir, config);
                let devices = inspection.devices.into_iter();
                let devices = devices
                    .map(|(key, acquisition)| (key, acquisition == Acquisition::AttachCommand));
                (
                    devices.collect::<Vec<_>>(),
                    inspection.pod,
                    inspection.incomplete_reason,
                )
            });
            let (devices, pod, incomplete_reason) = inspection.unwrap_or_else(|| {
                let incomplete_reason = "a file system in it does not answer".to_owned();
                (Vec::new(), None, Some(incomplete_reason))
            });
            let devices = devices.into_iter().map(|(key, is_attached)| {
                if is_attached {
                    (key, Acquisition::AttachCommand)
                } else {
                    (key, Acquisition::ContainerStart)
                }
            });
            if let Some(incomplete_reason) = incomplete_reason {
                let id = excerpt(&container.id);
                log::warning(&format!(
                    "container {id}: what it has is not known: {incomplete_reason}"
                ));
            }
            let (pod, name) = pod.unzip();
            let holder = Holder {
                name: name.or_else(|| container.name(&config.host_root)),
                container: container.id,
                pod,
                ..Holder::default()
            };
            running_ids.insert(holder.container.clone());
            let requests = unfulfilled_requests.get(&holder.container);
            holders.add_unfulfilled_requests(&holder, requests.into_iter().flatten(), false);
            holders.add_held_devices(&holder, devices);
        }
        // The records that are left belong to containers whose bundle or init process was not
        // found.
        for record in records {
            let holder = Holder {
                container: record.id.clone(),
                ..Holder::default()
            };
            running_ids.insert(holder.container.clone());
            let requests = unfulfilled_requests.get(&holder.container);
            holders.add_unfulfilled_requests(&holder, requests.into_iter().flatten(), false);
            holders.add_held_devices(&holder, find_held_devices(&record, |_| true));
        }
        for container in restarting::find_containers_lacking_devices(config) {
            // Docker may have started the container since its files were written.
            if running_ids.contains(&container.id) {
                continue;
            }
            let holder = Holder {
                container: container.id,
                name: Some(container.name),
                ..Holder::default()
            };
            holders.add_unfulfilled_requests(&holder, &container.awaited_requests, true);
        }
        holders
    }

    /// Returns the containers that hold `device` of the class `class`, or a share of it.
    pub(super) fn find_holders(&self, class: &ClassName, device: &Device) -> Vec<Holder> {
        let ids: Vec<DeviceId> = device.offered_ids();
        let find_allocations = |id: &DeviceId| {
            let key = (device.resource.to_string(), id.to_string());
            self.holders_by_resource.get(&key).into_iter().flatten()
        };
        let key = (class.to_string(), device.id.to_string());
        let other_holders = self.holders_by_class.get(&key).into_iter().flatten();
        ids.iter()
            .flat_map(find_allocations)
            .chain(other_holders)
            .cloned()
            .collect()
    }

    pub(super) fn list_unfulfilled_requests(
        &self,
        class_names: &[String],
    ) -> impl Iterator<Item = &UnfulfilledRequest> {
        let waiting_containers = self.unfulfilled_requests.iter();
        waiting_containers.filter(|container| class_names.contains(&container.class))
    }

    /// Adds the container `holder` to the waiting containers, once for each request whose device it
    /// does not have.
    fn add_unfulfilled_requests<'a>(
        &mut self,
        holder: &Holder,
        unfulfilled_requests: impl IntoIterator<Item = &'a AwaitedRequest>,
        is_restarting: bool,
    ) {
        let requests = unfulfilled_requests.into_iter();
        let waiting_containers = requests.map(|request| UnfulfilledRequest {
            is_restarting,
            class: request.class.to_string(),
            container: holder.container.clone(),
            name: holder.name.clone(),
            label: holder.describe(),
            device: excerpt(&request.awaited_device.to_request_text()),
            awaited_name: request.awaited_device.short_name().map(str::to_owned),
            suggested_name: None,
        });
        self.unfulfilled_requests.extend(waiting_containers);
    }

    fn add_held_devices(
        &mut self,
        holder: &Holder,
        devices: impl IntoIterator<Item = (DeviceKey, Acquisition)>,
    ) {
        for (key, acquisition) in devices {
            let holder = Holder {
                device: key.1.clone(),
                acquisition: Some(acquisition),
                ..holder.clone()
            };
            self.holders_by_class.entry(key).or_default().push(holder);
        }
    }
}

#[derive(Default)]
struct ContainerInspection {
    devices: Vec<(DeviceKey, Acquisition)>,
    /// The pod as `NAMESPACE/NAME`, and the name of the container in the pod.
    pod: Option<(String, String)>,
    /// The reason why the inspection is incomplete, or `None` if it is complete.
    incomplete_reason: Option<String>,
}

impl ContainerInspection {
    fn inspect(id: &str, pid: i32, bundle_dir: &Path, config: &Config) -> Self {
        let record = attachment::find_record(&config.host_root, id)
            .ok()
            .flatten();
        let record = record.filter(|record| !record.has_ended());
        let root = RunningContainerRoot::from_pid(pid);
        let is_present = |path: &Path| matches!(root.look_up(path), Ok(Some(_)));
        let devices = record
            .iter()
            .flat_map(|record| find_held_devices(record, is_present));
        let mut inspection = ContainerInspection {
            devices: devices.collect(),
            ..ContainerInspection::default()
        };
        // If the init process has ended, its root directory cannot be opened. Then only the record
        // is used.
        if root.look_up(Path::new("/")).is_err() {
            return inspection;
        }
        match inspection.add_injected_devices(&root, bundle_dir, config) {
            Ok(()) => {}
            Err(error) => inspection.incomplete_reason = Some(log::format_error_chain(&error)),
        }
        inspection
    }

    /// Adds the devices that the hook gave to the container at its start. To find them, computes
    /// the injection plan again. The new plan may contain more devices than the plan at the start,
    /// so a device is added only if its device nodes exist in the container.
    fn add_injected_devices(
        &mut self,
        root: &RunningContainerRoot,
        bundle_dir: &Path,
        config: &Config,
    ) -> Result<(), CommandError> {
        let mut bundle = Bundle::read(bundle_dir)?;
        bundle.use_root_of_process(root.pid);
        if let Ok(ContainerOrigin::Pod(pod)) = ContainerOrigin::from_bundle(&bundle) {
            self.pod = Some(pod.pod_and_container_names());
        }
        if bundle.hooks.find_boathook_hooks().next().is_none() {
            return Ok(());
        }
        let plan = planner::plan_container_injection(&bundle, &Caller::PlanInspector, config)?;
        let look_up = |path: &Path| root.look_up(path);
        // If the plan has no step for a device, the device was unplugged, so it is not present.
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
                    self.devices.push((key, Acquisition::ContainerStart));
                }
            }
        }
        Ok(())
    }
}

/// Returns the containers to which the kubelet allocated devices. The keys contain a resource name
/// and a device id.
fn read_allocations(
    checkpoint: &KubeletCheckpoint,
    host_root: &Path,
) -> BTreeMap<DeviceKey, Vec<Holder>> {
    let pod_names = read_pod_names(&host_root.join(POD_LOG_DIR));
    let mut holders: BTreeMap<_, Vec<Holder>> = BTreeMap::new();
    for allocation in checkpoint.allocations() {
        for device in allocation.devices {
            let key = (allocation.resource.to_owned(), device.to_owned());
            holders.entry(key).or_default().push(Holder {
                device: excerpt(device),
                pod_uid: Some(excerpt(allocation.pod_uid)),
                container: excerpt(allocation.container),
                pod: pod_names.get(allocation.pod_uid).cloned(),
                ..Holder::default()
            });
        }
    }
    holders
}

/// Returns the names `NAMESPACE/NAME` of the pods that have a log directory on this node. The keys
/// are the uids of the pods.
fn read_pod_names(log_dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(log_dir).into_iter().flatten().flatten();
    let names_by_uid = entries.take(MAX_POD_NAMES).filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let mut name_parts = name.split('_');
        let (namespace, pod, uid) = (name_parts.next()?, name_parts.next()?, name_parts.next()?);
        let pod = excerpt(&format!("{namespace}/{pod}"));
        name_parts.next().is_none().then(|| (uid.to_owned(), pod))
    });
    collect_by_insertion(names_by_uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_random_id_of_a_holder_is_shortened() {
        let id = "0a1b".repeat(16);
        for (container, name, description) in [
            (&*id, None, "0a1b0a1b0a1b"),
            ("a-container-of-mine", None, "a-container-of-mine"),
            (&*id, Some("web"), "web"),
            // An engine without names gives the id as the name.
            (&*id, Some(&*id), "0a1b0a1b0a1b"),
        ] {
            let holder = Holder {
                container: container.to_owned(),
                name: name.map(str::to_owned),
                ..Holder::default()
            };
            assert_eq!(holder.describe(), description);
            let json = serde_json::to_value(&holder).unwrap();
            assert_eq!(json["container"], container);
        }
    }
}
