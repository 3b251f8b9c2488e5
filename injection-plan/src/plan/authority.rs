//! Who authorizes a request for devices.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;

use device_class::DeviceClass;
use device_class::discover::{Device, Inventory};
use device_class::name::{ClassName, DeviceId, ResourceName, excerpt};

use crate::request::{RefusedRequest, Request, RequestError, Selection};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The user who started the container: the request is sufficient.
    Asker {
        why: String,
        /// Whether it may have the class's trusted capabilities, too.
        trusted_capabilities: bool,
    },
    /// The kubelet: its record of this container's devices, and nothing else.
    Kubelet(Recorded),
    /// No one: the container gets no device, or is refused.
    Nobody { why: String, is_refused: bool },
}

/// What a container gets of the devices that the kubelet recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RecordUse {
    /// All of them. More that it requests is left out, with a note.
    #[default]
    Whole,
    /// All of them. A request for more is refused.
    Exact,
    /// The same, and it is refused if none is recorded.
    Promised,
    /// Those that it requests. A request for more is refused.
    Requested,
}

/// What the kubelet recorded for one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recorded {
    pub holder: String,
    /// Its devices, by resource.
    pub devices: BTreeMap<ResourceName, BTreeSet<DeviceId>>,
    /// The devices of its pod's resource claims, by class.
    pub claimed: BTreeMap<ClassName, BTreeSet<DeviceId>>,
    /// Those claims, as `namespace/name`.
    pub claims: BTreeSet<String>,
    /// The record's file, if there is none: no device was ever allocated on
    /// this node.
    pub absent_file: Option<PathBuf>,
    pub record_use: RecordUse,
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Authority::Asker { why, .. } => write!(f, "the request itself: {why}"),
            Authority::Kubelet(recorded) => {
                write!(f, "the kubelet's record for {}", recorded.holder)?;
                for (claim, at) in recorded.claims.iter().zip(0..) {
                    let before = if at == 0 { "resource claim" } else { "and" };
                    write!(f, ", {before} {claim}")?;
                }
                Ok(())
            }
            Authority::Nobody { why, .. } => write!(f, "nobody: {why}"),
        }
    }
}

/// What a container gets of a class.
pub(super) struct Choice<'a> {
    pub(super) devices: Vec<&'a Device>,
    pub(super) files: Files,
    /// For the log, if it requested more.
    pub(super) note: Option<String>,
}

/// What a container gets of a class besides devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Files {
    Nothing,
    /// Libraries and regular files: neither directories, which may be writable, nor the
    /// sockets of daemons, which may act for their clients.
    Harmless,
    All,
}

impl Authority {
    /// What the container gets of the class.
    pub(super) fn choose<'a>(
        &self,
        class: &DeviceClass,
        request: &Request,
        inventory: &'a Inventory,
    ) -> Result<Choice<'a>, RefusedRequest> {
        let devices = inventory.devices.as_slice();
        let refused = |error| RefusedRequest {
            asked_by: request.source.to_string(),
            error,
        };
        let asked = || request.selection.choose(class, inventory).map_err(refused);
        let trusted = &class.spec.request.trusted_capabilities;
        let capabilities = class.spec.request.with_implied(&request.capabilities);
        if let Some(name) = capabilities.iter().find(|name| trusted.contains(name)) {
            let (class, capability) = (request.class.clone(), name.clone());
            match self {
                Authority::Asker {
                    trusted_capabilities: true,
                    ..
                } => {}
                Authority::Asker { .. } => {
                    return Err(refused(RequestError::NoSysAdmin { class, capability }));
                }
                Authority::Kubelet(_) | Authority::Nobody { .. } => {
                    return Err(refused(RequestError::Untrusted { class, capability }));
                }
            }
        }
        let is_for_files = request.selection == Selection::FilesOnly;
        let only_files = |files| Choice {
            devices: Vec::new(),
            files,
            note: None,
        };
        let with_devices = |devices: Vec<&'a Device>, note| Choice {
            files: match devices.is_empty() {
                true => Files::Nothing,
                false => Files::All,
            },
            devices,
            note,
        };
        match self {
            Authority::Asker { .. } if is_for_files => Ok(only_files(Files::All)),
            Authority::Asker { .. }
                if request.selection == Selection::All
                    && !devices.is_empty()
                    && !devices.iter().any(|device| device.health.is_healthy()) =>
            {
                Err(refused(RequestError::none_healthy(&class.name, devices)))
            }
            Authority::Asker { .. } => {
                let ignored = match class.spec.request.ignores_unknown {
                    true => request.selection.unknown(class, inventory),
                    false => Vec::new(),
                };
                let note = format!(
                    "{} has no device {}, which is ignored",
                    request.class,
                    excerpt(&ignored.join(", "))
                );
                Ok(with_devices(
                    asked()?,
                    (!ignored.is_empty()).then_some(note),
                ))
            }
            Authority::Nobody {
                why,
                is_refused: true,
            } => {
                let (class, why) = (request.class.clone(), why.clone());
                Err(refused(RequestError::Unauthorized { class, why }))
            }
            Authority::Nobody { why, .. } => {
                let note = format!("not injecting anything of {}: {why}", request.class);
                Ok(with_devices(Vec::new(), Some(note)))
            }
            Authority::Kubelet(recorded) if is_for_files => {
                let held = recorded.held(class, devices);
                let has_any = held.is_ok_and(|held| !held.is_empty());
                Ok(only_files(match has_any {
                    true => Files::All,
                    false => Files::Harmless,
                }))
            }
            // What the host has lost of the others is no reason against these.
            Authority::Kubelet(recorded) if recorded.record_use == RecordUse::Requested => {
                let asked = asked()?;
                match asked.iter().all(|device| recorded.holds(class, device)) {
                    true => Ok(with_devices(asked, None)),
                    false => Err(refused(RequestError::NotAllocated {
                        holder: recorded.holder.clone(),
                    })),
                }
            }
            Authority::Kubelet(recorded) => {
                let held = recorded.held(class, devices).map_err(refused)?;
                recorded.check_promise(request, &held).map_err(refused)?;
                if recorded.record_use != RecordUse::Whole {
                    recorded
                        .check_all(request, &asked()?, &held)
                        .map_err(refused)?;
                }
                let note = excess(request, asked().ok(), &held, recorded);
                Ok(with_devices(held, note))
            }
        }
    }
}

impl Recorded {
    /// Refuses a container that the plugin's allocation annotated, but that has
    /// no devices by the record: otherwise it would start without its allocated
    /// devices.
    fn check_promise(&self, request: &Request, held: &[&Device]) -> Result<(), RequestError> {
        if self.record_use != RecordUse::Promised || !held.is_empty() {
            return Ok(());
        }
        Err(RequestError::Unrecorded {
            class: request.class.clone(),
            holder: self.holder.clone(),
            why: self.why_none(),
        })
    }

    /// Refuses devices beyond the record that an annotation names: the plugin's names
    /// what was allocated, and of CDI devices the engine has put the nodes into the spec
    /// already.
    fn check_all(
        &self,
        request: &Request,
        asked: &[&Device],
        held: &[&Device],
    ) -> Result<(), RequestError> {
        let is_held = |device: &&Device| held.iter().any(|other| other.id == device.id);
        if asked.iter().all(is_held) {
            return Ok(());
        }
        Err(RequestError::Unrecorded {
            class: request.class.clone(),
            holder: self.holder.clone(),
            why: format!(
                "the kubelet did not record all devices that {} names",
                request.source
            ),
        })
    }

    /// Why there are no devices, as text.
    fn why_none(&self) -> String {
        match &self.absent_file {
            None => "the kubelet recorded none".into(),
            Some(path) => format!(
                "the kubelet has no record {}; set trust.kubelet_checkpoint in the configuration \
                 if it is elsewhere",
                path.display()
            ),
        }
    }

    fn holds(&self, class: &DeviceClass, device: &Device) -> bool {
        let claimed = self.claimed.get(&class.name);
        let mut allocated = self.devices.get(&device.resource).into_iter().flatten();
        claimed.is_some_and(|ids| ids.contains(&device.id))
            || allocated.any(|id| device.is_offered_as(id))
    }

    /// The devices of one class among those that were recorded, found in one pass
    /// over both.
    fn held<'a>(
        &self,
        class: &DeviceClass,
        devices: &'a [Device],
    ) -> Result<Vec<&'a Device>, RequestError> {
        let resources: BTreeSet<_> = inserted(devices.iter().map(|device| &device.resource));
        let by_id: HashMap<_, _> = devices
            .iter()
            .zip(0..)
            .map(|(d, at)| (d.id.as_str(), at))
            .collect();
        let mut held = BTreeSet::new();
        for id in self.claimed.get(&class.name).into_iter().flatten() {
            let at = by_id.get(id.as_str()).copied();
            held.insert(at.ok_or_else(|| RequestError::Lost {
                class: class.name.clone(),
                id: id.clone(),
            })?);
        }
        for (resource, ids) in &self.devices {
            // If the host has lost all devices of the class, its resources are
            // not known otherwise.
            let is_lost = devices.is_empty() && class.spec.may_offer(resource.as_str());
            if !resources.contains(resource) && !is_lost {
                continue;
            }
            for id in ids {
                let unshared = id.as_str().rsplit_once("::").map(|(id, _)| id);
                let mut names = [Some(id.as_str()), unshared].into_iter().flatten();
                let at = names.find_map(|name| by_id.get(name).copied());
                match at.filter(|at: &usize| devices[*at].is_offered_as(id)) {
                    Some(at) if devices[at].resource == *resource => held.insert(at),
                    _ => {
                        return Err(RequestError::Lost {
                            class: class.name.clone(),
                            id: id.clone(),
                        });
                    }
                };
            }
        }
        Ok(held.into_iter().map(|at| &devices[at]).collect())
    }
}

/// A note if the request includes devices that are not recorded.
fn excess(
    request: &Request,
    asked: Option<Vec<&Device>>,
    held: &[&Device],
    recorded: &Recorded,
) -> Option<String> {
    let (class, holder) = (&request.class, &recorded.holder);
    if held.is_empty() {
        return Some(format!(
            "{} requests devices of {class}, but none is given to {holder}: {}",
            request.source,
            recorded.why_none()
        ));
    }
    let Some(asked) = asked else {
        return Some(format!(
            "{} names unknown devices; {holder} gets what the kubelet recorded",
            request.source
        ));
    };
    let held: BTreeSet<&DeviceId> = inserted(held.iter().map(|device| &device.id));
    let beyond = asked.iter().filter(|device| !held.contains(&device.id));
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
