//! Decides which devices of a request a container is granted, and on whose authority.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::discover::{Device, Inventory};
use device_class::name::{ClassName, DeviceId, ResourceName, excerpt};

use crate::request::{RefusedRequest, Request, RequestError, Selection};

/// The party that permits a container's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The user who started the container permits the request. No record of the kubelet is needed.
    Requester {
        reason: String,
        /// Whether the request may include the class's trusted capabilities.
        trusted_capabilities: bool,
    },
    /// The kubelet permits the devices that it recorded for the container, and no others.
    Kubelet(RecordedDevices),
    /// Nobody permits the request. The container starts without the devices, or does not
    /// start if `is_refused` is set.
    Nobody { reason: String, is_refused: bool },
}

/// The rule by which a container's request is compared with the devices that the kubelet recorded for
/// the container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordUse {
    /// The container gets all recorded devices. Other devices of the request are left out
    /// with a note.
    #[default]
    Whole,
    /// The container gets all recorded devices. A request for other devices is refused.
    Exact,
    /// The container gets all recorded devices. A request for other devices is refused, and so is a
    /// container without recorded devices.
    Promised,
    /// The container gets the recorded devices that it requests. A request for other
    /// devices is refused.
    Requested,
}

/// The devices that the kubelet recorded for one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedDevices {
    /// The names of the container and its pod, for messages.
    pub holder: String,
    /// The allocated devices, by resource.
    pub devices: BTreeMap<ResourceName, BTreeSet<DeviceId>>,
    /// The devices of the pod's resource claims, by class.
    pub claimed: BTreeMap<ClassName, BTreeSet<DeviceId>>,
    /// The pod's resource claims, as `namespace/name`.
    pub claims: BTreeSet<String>,
    /// The path of the kubelet checkpoint, if the file does not exist. The kubelet creates it when it
    /// first allocates a device on the node.
    pub absent_file: Option<PathBuf>,
    /// The comparison of the request with the recorded devices.
    pub record_use: RecordUse,
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Authority::Requester { reason, .. } => write!(f, "the request itself: {reason}"),
            Authority::Kubelet(recorded) => {
                write!(f, "the kubelet's record for {}", recorded.holder)?;
                for (claim, index) in recorded.claims.iter().zip(0..) {
                    let separator = if index == 0 { "resource claim" } else { "and" };
                    write!(f, ", {separator} {claim}")?;
                }
                Ok(())
            }
            Authority::Nobody { reason, .. } => write!(f, "nobody: {reason}"),
        }
    }
}

/// The devices and files of one class that a container is granted.
pub(super) struct ClassGrant<'a> {
    pub(super) devices: Vec<&'a Device>,
    pub(super) files: GrantedFiles,
    /// A warning for the log if the container gets less than it requested.
    pub(super) note: Option<String>,
}

/// The libraries and files of a class that a container gets besides devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GrantedFiles {
    Nothing,
    /// The container gets libraries and regular files. Directories are excluded because
    /// they may be writable, and sockets because a daemon may act for its clients.
    WithoutDeviceAccess,
    All,
}

impl Authority {
    /// Chooses the devices and files of the class that the container gets.
    ///
    /// # Errors
    /// Returns an error if the container must not start with this request.
    pub(super) fn choose<'a>(
        &self,
        class: &DeviceClass,
        request: &Request,
        inventory: &'a Inventory,
    ) -> Result<ClassGrant<'a>, RefusedRequest> {
        let devices = inventory.devices.as_slice();
        let refused = |error| RefusedRequest {
            requested_by: request.source.to_string(),
            error,
        };
        let requested = || request.selection.choose(class, inventory).map_err(refused);
        let trusted = &class.spec.request.trusted_capabilities;
        let capabilities = class.spec.request.with_implied(&request.capabilities);
        if let Some(name) = capabilities.iter().find(|name| trusted.contains(name)) {
            let (class, capability) = (request.class.clone(), name.clone());
            match self {
                Authority::Requester {
                    trusted_capabilities: true,
                    ..
                } => {}
                Authority::Requester { .. } => {
                    return Err(refused(RequestError::NoSysAdmin { class, capability }));
                }
                Authority::Kubelet(_) | Authority::Nobody { .. } => {
                    return Err(refused(RequestError::Untrusted { class, capability }));
                }
            }
        }
        let is_for_files = request.selection == Selection::FilesOnly;
        let only_files = |files| ClassGrant {
            devices: Vec::new(),
            files,
            note: None,
        };
        let with_devices = |devices: Vec<&'a Device>, note| ClassGrant {
            files: if devices.is_empty() {
                GrantedFiles::Nothing
            } else {
                GrantedFiles::All
            },
            devices,
            note,
        };
        match self {
            Authority::Requester { .. } if is_for_files => Ok(only_files(GrantedFiles::All)),
            Authority::Requester { .. }
                if request.selection == Selection::All
                    && !devices.is_empty()
                    && !devices.iter().any(|device| device.health.is_healthy()) =>
            {
                Err(refused(RequestError::none_healthy(&class.name, devices)))
            }
            Authority::Requester { .. } => {
                let ignored = if class.spec.request.ignores_unknown {
                    request.selection.unknown_items(class, inventory)
                } else {
                    Vec::new()
                };
                let note = format!(
                    "{} has no device {}, which is ignored",
                    request.class,
                    excerpt(&ignored.join(", "))
                );
                Ok(with_devices(
                    requested()?,
                    (!ignored.is_empty()).then_some(note),
                ))
            }
            Authority::Nobody {
                reason,
                is_refused: true,
            } => {
                let (class, reason) = (request.class.clone(), reason.clone());
                Err(refused(RequestError::Unauthorized { class, reason }))
            }
            Authority::Nobody { reason, .. } => {
                let note = format!("not injecting anything of {}: {reason}", request.class);
                Ok(with_devices(Vec::new(), Some(note)))
            }
            Authority::Kubelet(recorded) if is_for_files => {
                let allocated = recorded.devices_of_class(class, devices);
                let has_any = allocated.is_ok_and(|allocated| !allocated.is_empty());
                Ok(only_files(if has_any {
                    GrantedFiles::All
                } else {
                    GrantedFiles::WithoutDeviceAccess
                }))
            }
            // Recorded devices that are not requested are not looked up, so that the loss of one of
            // them does not prevent the use of the others.
            Authority::Kubelet(recorded) if recorded.record_use == RecordUse::Requested => {
                let requested = requested()?;
                if requested
                    .iter()
                    .all(|device| recorded.includes(class, device))
                {
                    Ok(with_devices(requested, None))
                } else {
                    Err(refused(RequestError::NotAllocated {
                        holder: recorded.holder.clone(),
                    }))
                }
            }
            Authority::Kubelet(recorded) => {
                let whose = "a pod, whose devices the kubelet chooses,";
                request.selection.check_no_path(whose).map_err(refused)?;
                let allocated = recorded.devices_of_class(class, devices).map_err(refused)?;
                recorded
                    .check_promise(request, &allocated)
                    .map_err(refused)?;
                if recorded.record_use != RecordUse::Whole {
                    recorded
                        .check_all(request, &requested()?, &allocated)
                        .map_err(refused)?;
                }
                let note = describe_excess(request, requested().ok(), &allocated, recorded);
                Ok(with_devices(allocated, note))
            }
        }
    }
}

impl RecordedDevices {
    /// Returns an error if the device plugin annotated the container with an allocation,
    /// but the kubelet recorded no devices for it. Without this check the container would
    /// start without its allocated devices.
    fn check_promise(&self, request: &Request, allocated: &[&Device]) -> Result<(), RequestError> {
        if self.record_use != RecordUse::Promised || !allocated.is_empty() {
            return Ok(());
        }
        Err(RequestError::Unrecorded {
            class: request.class.clone(),
            holder: self.holder.clone(),
            reason: self.describe_absence(),
        })
    }

    /// Returns an error if the request names a device that the kubelet did not record. The
    /// check is for requests that cannot be reduced: the plugin's annotation names exactly
    /// the allocated devices, and the engine has already added the nodes of CDI devices to
    /// the container's spec.
    fn check_all(
        &self,
        request: &Request,
        requested: &[&Device],
        allocated: &[&Device],
    ) -> Result<(), RequestError> {
        let is_held = |device: &&Device| allocated.iter().any(|other| other.id == device.id);
        if requested.iter().all(is_held) {
            return Ok(());
        }
        Err(RequestError::Unrecorded {
            class: request.class.clone(),
            holder: self.holder.clone(),
            reason: format!(
                "the kubelet did not record all devices that {} names",
                request.source
            ),
        })
    }

    /// Returns the reason why the container has no recorded devices, as text.
    fn describe_absence(&self) -> String {
        match &self.absent_file {
            None => "the kubelet recorded none".into(),
            Some(path) => format!(
                "the kubelet has no record {}; set trust.kubelet_checkpoint in the configuration \
                 if it is elsewhere",
                path.display()
            ),
        }
    }

    fn includes(&self, class: &DeviceClass, device: &Device) -> bool {
        let claimed = self.claimed.get(&class.name);
        let mut allocated = self.devices.get(&device.resource).into_iter().flatten();
        claimed.is_some_and(|ids| ids.contains(&device.id))
            || allocated.any(|id| device.is_offered_as(id))
    }

    /// Returns the recorded devices that belong to `class`. The devices are indexed by id
    /// first, so that the time grows linearly with their number.
    ///
    /// # Errors
    /// Returns [`RequestError::Lost`] if the host does not have a recorded device any more.
    fn devices_of_class<'a>(
        &self,
        class: &DeviceClass,
        devices: &'a [Device],
    ) -> Result<Vec<&'a Device>, RequestError> {
        let resources: BTreeSet<_> = inserted(devices.iter().map(|device| &device.resource));
        let by_id: HashMap<_, _> = devices
            .iter()
            .zip(0..)
            .map(|(device, index)| (device.id.as_str(), index))
            .collect();
        let mut allocated = BTreeSet::new();
        for id in self.claimed.get(&class.name).into_iter().flatten() {
            let index = by_id.get(id.as_str()).copied();
            allocated.insert(index.ok_or_else(|| RequestError::Lost {
                class: class.name.clone(),
                id: id.clone(),
            })?);
        }
        for (resource, ids) in &self.devices {
            // The resources of a class are known from its devices. If the host has lost
            // all devices of the class, only the class file tells its resources.
            let is_lost = devices.is_empty() && class.spec.may_offer(resource.as_str());
            if !resources.contains(resource) && !is_lost {
                continue;
            }
            for id in ids {
                let unshared = id.as_str().rsplit_once("::").map(|(id, _)| id);
                let mut names = [Some(id.as_str()), unshared].into_iter().flatten();
                let index = names.find_map(|name| by_id.get(name).copied());
                match index.filter(|index: &usize| devices[*index].is_offered_as(id)) {
                    Some(index) if devices[index].resource == *resource => allocated.insert(index),
                    _ => {
                        return Err(RequestError::Lost {
                            class: class.name.clone(),
                            id: id.clone(),
                        });
                    }
                };
            }
        }
        Ok(allocated.into_iter().map(|index| &devices[index]).collect())
    }
}

/// Returns a warning if the request includes devices that the kubelet did not record.
/// `requested` is `None` if the request could not be resolved.
fn describe_excess(
    request: &Request,
    requested: Option<Vec<&Device>>,
    allocated: &[&Device],
    recorded: &RecordedDevices,
) -> Option<String> {
    let (class, holder) = (&request.class, &recorded.holder);
    if allocated.is_empty() {
        return Some(format!(
            "{} requests devices of {class}, but none is given to {holder}: {}",
            request.source,
            recorded.describe_absence()
        ));
    }
    let Some(requested) = requested else {
        return Some(format!(
            "{} names unknown devices; {holder} gets what the kubelet recorded",
            request.source
        ));
    };
    let allocated: BTreeSet<&DeviceId> = inserted(allocated.iter().map(|device| &device.id));
    let beyond = requested
        .iter()
        .filter(|device| !allocated.contains(&device.id));
    let beyond: Vec<&str> = beyond.map(|device| device.id.as_str()).collect();
    if beyond.is_empty() {
        return None;
    }
    Some(format!(
        "{} requests more than the kubelet recorded for {holder}; left out: {}",
        request.source,
        excerpt(&beyond.join(", "))
    ))
}
