//! Decides which devices a container gets for a request. The decision depends on who authorizes the
//! request: the kubelet, or the user who starts the container.

use device_class::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::discover::{Device, Inventory};
use device_class::name::{ClassName, DeviceId, ResourceName, excerpt};

use crate::request::{RefusedRequest, Request, RequestError, Selection};

/// The party that authorizes a container's request: the user, the kubelet, or nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The user who started the container authorizes the request, for example with Docker. The
    /// kubelet checkpoint is not consulted.
    Requester {
        reason: String,
        /// Whether the request may include the class's trusted capabilities (`trusted_capabilities`
        /// in the class file). Outside of pods this needs CAP_SYS_ADMIN.
        allows_trusted_capabilities: bool,
    },
    /// The kubelet authorizes only the devices that its checkpoint lists for the container.
    Kubelet(CheckpointDevices),
    /// Nobody authorizes the request. The container starts without the devices, or does not start
    /// at all if `is_refused` is true.
    Nobody { reason: String, is_refused: bool },
}

/// The rule for a request that names other devices than the recorded ones. The recorded devices are
/// those that the kubelet checkpoint lists for the container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnrecordedDevicesRule {
    /// The container gets all recorded devices. Other requested devices are left out, and a note
    /// names them.
    #[default]
    LimitToRecorded,
    /// The container gets all recorded devices. A request for other devices is refused.
    RefuseUnrecorded,
    /// The container gets all recorded devices. A request for other devices is refused. A request
    /// is also refused if the container has no recorded devices.
    RequireRecorded,
    /// The container gets the recorded devices that it requests. A request for other
    /// devices is refused.
    GrantRequested,
}

/// The devices that the kubelet checkpoint lists for one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointDevices {
    /// The names of the container and its pod, for messages.
    pub holder: String,
    /// The ids of the allocated devices, by resource.
    pub devices: BTreeMap<ResourceName, BTreeSet<DeviceId>>,
    /// The ids of the devices in the pod's resource claims, by class.
    pub claimed_devices: BTreeMap<ClassName, BTreeSet<DeviceId>>,
    /// The names of the pod's resource claims, as `namespace/name`.
    pub claims: BTreeSet<String>,
    /// The path of the kubelet checkpoint if the file does not exist, and `None` if it exists. The
    /// kubelet creates the file when it first allocates a device on the node.
    pub missing_checkpoint_path: Option<PathBuf>,
    /// The rule for a request that names other devices than these.
    pub checkpoint_rule: UnrecordedDevicesRule,
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Authority::Requester { reason, .. } => write!(f, "the rules of this host: {reason}"),
            Authority::Kubelet(recorded_devices) => {
                write!(f, "the kubelet's record for {}", recorded_devices.holder)?;
                for (claim, index) in recorded_devices.claims.iter().zip(0..) {
                    let separator = if index == 0 { "resource claim" } else { "and" };
                    write!(f, ", {separator} {claim}")?;
                }
                Ok(())
            }
            Authority::Nobody { reason, .. } => write!(f, "nobody: {reason}"),
        }
    }
}

/// The devices and files of one class that a container gets.
pub(super) struct ClassGrant<'a> {
    pub(super) devices: Vec<&'a Device>,
    pub(super) files: GrantedFiles,
    /// A warning for the log. It is set if the container gets fewer devices than it requested.
    pub(super) note: Option<String>,
}

/// The files of a class that a container gets in addition to its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrantedFiles {
    Nothing,
    /// The container gets libraries and regular files. It gets no directories, because they may be
    /// writable. It gets no sockets, because the daemon at a socket may use a device for its
    /// clients.
    WithoutDeviceAccess,
    All,
}

impl Authority {
    /// Chooses the devices and files of the class that the container gets for `request`.
    ///
    /// # Errors
    /// Returns an error if the container must not start with this request.
    pub(super) fn choose_devices<'a>(
        &self,
        class: &DeviceClass,
        request: &Request,
        inventory: &'a Inventory,
    ) -> Result<ClassGrant<'a>, RefusedRequest> {
        let devices = inventory.devices.as_slice();
        let refuse = |error| RefusedRequest::new(&request.source, error);
        let choose_requested_devices = || {
            request
                .selection
                .choose_devices(class, inventory)
                .map_err(refuse)
        };
        let trusted_capabilities = &class.spec.request.trusted_capabilities;
        let capabilities = class
            .spec
            .request
            .add_implied_capabilities(&request.capabilities);
        if let Some(name) = capabilities
            .iter()
            .find(|name| trusted_capabilities.contains(name))
        {
            let (class, capability) = (request.class.clone(), name.clone());
            match self {
                Authority::Requester {
                    allows_trusted_capabilities: true,
                    ..
                } => {}
                Authority::Requester { .. } => {
                    return Err(refuse(RequestError::MissingSysAdmin { class, capability }));
                }
                Authority::Kubelet(_) | Authority::Nobody { .. } => {
                    return Err(refuse(RequestError::UntrustedCapability {
                        class,
                        capability,
                    }));
                }
            }
        }
        let requests_only_files = request.selection == Selection::FilesOnly;
        let grant_files = |files| ClassGrant {
            devices: Vec::new(),
            files,
            note: None,
        };
        let grant_devices = |devices: Vec<&'a Device>, note| ClassGrant {
            files: if devices.is_empty() {
                GrantedFiles::Nothing
            } else {
                GrantedFiles::All
            },
            devices,
            note,
        };
        match self {
            Authority::Requester { .. } if requests_only_files => {
                Ok(grant_files(GrantedFiles::All))
            }
            // A request for `all` is refused if no device is healthy. For a followed class
            // (`follow = true`) this is no error, because its devices may become healthy later, for
            // example after their firmware is loaded.
            Authority::Requester { .. }
                if request.selection == Selection::All
                    && (!class.spec.is_followed || !request.source.can_await_devices())
                    && !devices.is_empty()
                    && !devices.iter().any(|device| device.health.is_healthy()) =>
            {
                Err(refuse(RequestError::from_unhealthy_devices(
                    &class.name,
                    devices,
                )))
            }
            Authority::Requester { .. } => {
                let ignored_items = if class.spec.request.ignores_unknown_devices {
                    request.selection.find_unknown_items(class, inventory)
                } else {
                    Vec::new()
                };
                let devices = choose_requested_devices()?;
                let mut note = format!(
                    "{} has no device {}, which is ignored",
                    request.class,
                    excerpt(&ignored_items.join(", "))
                );
                if ignored_items
                    .iter()
                    .any(|item| item.starts_with(['"', '\'']))
                {
                    note.push_str(" (in quotes it is a name, so write it without them)");
                }
                if devices.is_empty() {
                    note.push_str(": the container gets no device of the class");
                }
                Ok(grant_devices(
                    devices,
                    (!ignored_items.is_empty()).then_some(note),
                ))
            }
            Authority::Nobody {
                reason,
                is_refused: true,
            } => {
                let (class, reason) = (request.class.clone(), reason.clone());
                Err(refuse(RequestError::UnauthorizedRequest { class, reason }))
            }
            Authority::Nobody { reason, .. } => {
                let note = format!("not injecting anything of {}: {reason}", request.class);
                Ok(grant_devices(Vec::new(), Some(note)))
            }
            Authority::Kubelet(recorded_devices) if requests_only_files => {
                let allocated_devices = recorded_devices.find_devices_of_class(class, devices);
                let has_allocated_devices =
                    allocated_devices.is_ok_and(|allocated_devices| !allocated_devices.is_empty());
                Ok(grant_files(if has_allocated_devices {
                    GrantedFiles::All
                } else {
                    GrantedFiles::WithoutDeviceAccess
                }))
            }
            // Only the requested devices are looked up. So the container gets them even if the host
            // no longer has one of the other recorded devices.
            Authority::Kubelet(recorded_devices)
                if recorded_devices.checkpoint_rule == UnrecordedDevicesRule::GrantRequested =>
            {
                let requested_devices = choose_requested_devices()?;
                if requested_devices
                    .iter()
                    .all(|device| recorded_devices.includes(class, device))
                {
                    Ok(grant_devices(requested_devices, None))
                } else {
                    Err(refuse(RequestError::NotAllocated {
                        holder: recorded_devices.holder.clone(),
                    }))
                }
            }
            Authority::Kubelet(recorded_devices) => {
                let requester = "a pod, whose devices the kubelet chooses,";
                request
                    .selection
                    .check_no_container_path(requester)
                    .map_err(refuse)?;
                let allocated_devices = recorded_devices
                    .find_devices_of_class(class, devices)
                    .map_err(refuse)?;
                recorded_devices
                    .check_has_recorded_devices(request, &allocated_devices)
                    .map_err(refuse)?;
                if recorded_devices.checkpoint_rule != UnrecordedDevicesRule::LimitToRecorded {
                    recorded_devices
                        .check_all_devices_recorded(
                            request,
                            &choose_requested_devices()?,
                            &allocated_devices,
                        )
                        .map_err(refuse)?;
                }
                let note = describe_unrecorded_devices(
                    request,
                    choose_requested_devices().ok(),
                    &allocated_devices,
                    recorded_devices,
                );
                Ok(grant_devices(allocated_devices, note))
            }
        }
    }
}

impl CheckpointDevices {
    /// Returns an error if the device plugin annotated the container's allocation, but the kubelet
    /// recorded no devices for the container. Without this check the container would start without
    /// its allocated devices.
    fn check_has_recorded_devices(
        &self,
        request: &Request,
        allocated_devices: &[&Device],
    ) -> Result<(), RequestError> {
        if self.checkpoint_rule != UnrecordedDevicesRule::RequireRecorded
            || !allocated_devices.is_empty()
        {
            return Ok(());
        }
        Err(RequestError::DevicesNotRecorded {
            class: request.class.clone(),
            holder: self.holder.clone(),
            reason: self.describe_absence_reason(),
        })
    }

    /// Returns an error if the request names a device that the kubelet checkpoint does not list.
    /// Such a device cannot be left out of the request: the plugin's annotation names exactly the
    /// allocated devices, and the engine has already added the nodes of CDI devices to config.json.
    fn check_all_devices_recorded(
        &self,
        request: &Request,
        requested_devices: &[&Device],
        allocated_devices: &[&Device],
    ) -> Result<(), RequestError> {
        let is_allocated =
            |device: &&Device| allocated_devices.iter().any(|other| other.id == device.id);
        if requested_devices.iter().all(is_allocated) {
            return Ok(());
        }
        Err(RequestError::DevicesNotRecorded {
            class: request.class.clone(),
            holder: self.holder.clone(),
            reason: format!(
                "the kubelet did not record all devices that {} names",
                request.source
            ),
        })
    }

    fn describe_absence_reason(&self) -> String {
        match &self.missing_checkpoint_path {
            None => "the kubelet recorded none".into(),
            Some(path) => format!(
                "the kubelet has no record {}; set trust.kubelet_checkpoint in the configuration \
                 if it is elsewhere",
                path.display()
            ),
        }
    }

    fn includes(&self, class: &DeviceClass, device: &Device) -> bool {
        let claimed_ids = self.claimed_devices.get(&class.name);
        let mut allocated_ids = self.devices.get(&device.resource).into_iter().flatten();
        claimed_ids.is_some_and(|ids| ids.contains(&device.id))
            || allocated_ids.any(|id| device.is_recorded_as(id.as_str()))
    }

    /// Returns the recorded devices of `class`. The host's devices are indexed by id first, so that
    /// the look-ups take linear time.
    ///
    /// # Errors
    /// Returns [`RequestError::AllocatedDeviceMissing`] if the host no longer has a recorded
    /// device.
    fn find_devices_of_class<'a>(
        &self,
        class: &DeviceClass,
        devices: &'a [Device],
    ) -> Result<Vec<&'a Device>, RequestError> {
        let resources: BTreeSet<_> =
            collect_by_insertion(devices.iter().map(|device| &device.resource));
        let positions_by_id: HashMap<_, _> = devices
            .iter()
            .zip(0..)
            .map(|(device, position)| (device.id.as_str(), position))
            .collect();
        let mut device_positions = BTreeSet::new();
        for id in self.claimed_devices.get(&class.name).into_iter().flatten() {
            let position = positions_by_id.get(id.as_str()).copied();
            device_positions.insert(position.ok_or_else(|| {
                RequestError::AllocatedDeviceMissing {
                    class: class.name.clone(),
                    id: id.clone(),
                }
            })?);
        }
        for (resource, ids) in &self.devices {
            // A resource belongs to the class if one of its devices has this resource. If the host
            // has lost all devices of the class, the class file decides.
            let has_lost_all_devices =
                devices.is_empty() && class.spec.may_offer(resource.as_str());
            if !resources.contains(resource) && !has_lost_all_devices {
                continue;
            }
            for id in ids {
                let id_without_share = id.as_str().rsplit_once("::").map(|(id, _)| id);
                let mut names = [Some(id.as_str()), id_without_share].into_iter().flatten();
                let position = names.find_map(|name| positions_by_id.get(name).copied());
                // The number of replicas may have changed since the allocation. The container keeps
                // its device under the old id, so that it can be restarted.
                let is_recorded = |position: &usize| devices[*position].is_recorded_as(id.as_str());
                match position.filter(is_recorded) {
                    Some(position) if devices[position].resource == *resource => {
                        device_positions.insert(position)
                    }
                    _ => {
                        return Err(RequestError::AllocatedDeviceMissing {
                            class: class.name.clone(),
                            id: id.clone(),
                        });
                    }
                };
            }
        }
        Ok(device_positions
            .into_iter()
            .map(|position| &devices[position])
            .collect())
    }
}

/// Returns a warning if the container requests devices that the kubelet checkpoint does not list
/// for it. Returns `None` if it gets all requested devices. `requested_devices` is `None` if the
/// request names devices that the host does not have.
fn describe_unrecorded_devices(
    request: &Request,
    requested_devices: Option<Vec<&Device>>,
    allocated_devices: &[&Device],
    recorded_devices: &CheckpointDevices,
) -> Option<String> {
    let (class, holder) = (&request.class, &recorded_devices.holder);
    if allocated_devices.is_empty() {
        return Some(format!(
            "{} requests devices of {class}, but none is given to {holder}: {}",
            request.source,
            recorded_devices.describe_absence_reason()
        ));
    }
    let Some(requested_devices) = requested_devices else {
        return Some(format!(
            "{} names unknown devices; {holder} gets what the kubelet recorded",
            request.source
        ));
    };
    let allocated_devices: BTreeSet<&DeviceId> =
        collect_by_insertion(allocated_devices.iter().map(|device| &device.id));
    let unrecorded_devices = requested_devices
        .iter()
        .filter(|device| !allocated_devices.contains(&device.id));
    let unrecorded_ids: Vec<&str> = unrecorded_devices
        .map(|device| device.id.as_str())
        .collect();
    if unrecorded_ids.is_empty() {
        return None;
    }
    Some(format!(
        "{} requests more than the kubelet recorded for {holder}; left out: {}",
        request.source,
        excerpt(&unrecorded_ids.join(", "))
    ))
}
