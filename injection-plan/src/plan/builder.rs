//! Collects the parts of an injection plan from all requests of one container.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::device::{Access, DeviceNumber};
use device_class::discover::{
    DeviceNetInterfaces, FileSource, FoundClass, FoundNode, FoundText, NodeForm,
};
use device_class::host::Programs;
use device_class::name::{DeviceId, DeviceRef, excerpt};

use super::authority::GrantedFiles;
use super::remarks::find_absence_reason;
use super::{
    Authority, CapabilityNeed, GivenBy, Grant, ImageLibraries, InjectionStep, PlanError, PlanInput,
    StepUser, prepare,
};
use crate::request::{
    Awaited, RefusedRequest, RequestError, RequestNames, RequestSource, RequestedPlace, Selection,
};

/// A device node of the host that is planned for one path in the container.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PlannedNode {
    pub(super) source: PathBuf,
    pub(super) number: DeviceNumber,
    pub(super) form: NodeForm,
}

/// A masked directory of the container, with the files that stay visible in it.
#[derive(Default)]
pub(super) struct PlannedMask {
    pub(super) files: BTreeMap<PathBuf, String>,
    /// Files that list the container's devices as a bit mask, each with the bits to set.
    pub(super) texts: BTreeMap<PathBuf, (FoundText, u64)>,
    pub(super) shown: BTreeMap<PathBuf, PathBuf>,
    /// Links of the kernel, each with its target.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
    pub(super) users: BTreeSet<StepUser>,
}

/// A library of the host that is planned for the container.
pub(super) struct PlannedLibrary {
    pub(super) source: PathBuf,
    /// The names of links to the library, in the library's own directory.
    pub(super) links: BTreeSet<String>,
    /// The names by which programs open the library: its sonames and additional names.
    pub(super) names: BTreeSet<String>,
    /// The subset of `names` for which a link is created in the image's library directory.
    pub(super) image_links: BTreeSet<String>,
    pub(super) users: BTreeSet<StepUser>,
}

/// The device rule for one device number.
#[derive(Default)]
pub(super) struct PlannedRule {
    /// The access that each user of the device needs.
    pub(super) needed: BTreeMap<StepUser, Access>,
    /// The device's node on the host, if the host has one.
    pub(super) host_node: Option<PathBuf>,
}

/// The parts of a plan that all requests need together. Each path in the container and
/// each device number has one entry, with all its users.
#[derive(Default)]
pub(super) struct PlanBuilder {
    pub(super) grants: Vec<Grant>,
    pub(super) warnings: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) preparations: Vec<InjectionStep>,
    pub(super) rules: BTreeMap<DeviceNumber, PlannedRule>,
    pub(super) nodes: BTreeMap<PathBuf, (PlannedNode, BTreeSet<StepUser>)>,
    /// The paths in the container that requests chose for nodes.
    pub(super) chosen_paths: BTreeSet<PathBuf>,
    /// Symbolic links, each with the node that it leads to.
    pub(super) links: BTreeMap<PathBuf, (PathBuf, BTreeSet<StepUser>)>,
    pub(super) masks: BTreeMap<PathBuf, PlannedMask>,
    pub(super) directories: BTreeMap<PathBuf, (PathBuf, BTreeSet<StepUser>)>,
    pub(super) files: BTreeMap<PathBuf, (FileSource, BTreeSet<StepUser>)>,
    pub(super) libraries: BTreeMap<(Programs, String), PlannedLibrary>,
    /// The paths in the container of the directories that it may write to.
    pub(super) writable: BTreeSet<PathBuf>,
    /// Environment variables, each with its values in the order of the devices.
    pub(super) env: BTreeMap<String, Vec<String>>,
    /// Mounted directories that the dynamic loader has to search, each with the names of
    /// its libraries.
    pub(super) searched: Vec<(PathBuf, Vec<String>)>,
    /// Directories of the image that the loader searches before the mounted ones.
    pub(super) image_libraries: Vec<ImageLibraries>,
    /// The network interfaces of devices, each with the devices that have them.
    pub(super) net_interfaces: Vec<(DeviceNetInterfaces, BTreeSet<StepUser>)>,
    /// The capabilities that programs need to use the devices.
    pub(super) needs: Vec<CapabilityNeed>,
    /// Paths of optional parts that the host lacks, by device or class.
    pub(super) absent: BTreeMap<String, Vec<String>>,
}

impl PlanBuilder {
    /// Adds the parts that one request needs.
    ///
    /// # Errors
    /// Returns an error if the request is refused, or if the host lacks a required part.
    pub(super) fn add(&mut self, input: &PlanInput<'_>) -> Result<(), PlanError> {
        let PlanInput {
            class: spec,
            request,
            found: FoundClass { inventory, edits },
            authority,
        } = input;
        let granted = authority.choose(spec, request, inventory)?;
        let devices = granted.devices;
        let refused = |error| RefusedRequest {
            requested_by: request.source.to_string(),
            error,
        };
        let limited_edits;
        let edits = match granted.files {
            GrantedFiles::WithoutDeviceAccess => {
                limited_edits = edits.without_device_access();
                &limited_edits
            }
            GrantedFiles::All | GrantedFiles::Nothing => edits,
        };
        let waiting = self.find_awaited(input).map_err(refused)?;
        let absent = find_absence_reason(request, inventory, edits);
        self.warnings.extend(granted.note.or_else(|| {
            let absent = absent.as_ref().filter(|_| waiting.is_empty())?;
            Some(format!("{}: {absent}", request.source))
        }));
        // Many images request `all` by default. Such a container must also start on a host without
        // the devices, which lacks the files of the class, too.
        let gives_files = granted.files != GrantedFiles::Nothing
            && (request.selection != Selection::FilesOnly || absent.is_none());
        if gives_files {
            let checked = request.check_capabilities(spec);
            checked.map_err(refused)?;
            self.check_requirements(input, &devices)?;
        }
        let class = &request.class;
        let class_user = StepUser::Class(class.clone());
        // If the scan left out a device, a container that requests all devices gets fewer than
        // expected. Then the scan's messages are warnings, and otherwise notes.
        let messages = match request.selection {
            Selection::All => &mut self.warnings,
            _ => &mut self.notes,
        };
        let warnings = inventory.warnings.iter();
        messages.extend(warnings.map(|warning| format!("{class}: {warning}")));
        let hidden = inventory.hidden.iter().map(DeviceId::as_str);
        self.note_left_out(class, "hidden", hidden);
        let forbidden = spec.settings.forbid.iter().map(|name| name.as_str());
        self.note_left_out(class, "forbidden", forbidden);
        self.note_capabilities(spec, request);
        self.warn_of_health(request, inventory, &devices);
        for (device, action) in prepare::plan_preparations(spec, request, &devices)? {
            let user = StepUser::Device(DeviceRef::new(class, &device.id));
            self.preparations.push(InjectionStep::new(action, [user]));
        }
        let capabilities = spec.spec.request.with_implied(&request.capabilities);
        let is_requested = |node: &&FoundNode| node.is_for(&capabilities);
        let mut places = request.selection.places(spec, inventory).map_err(refused)?;
        places.retain(|id, _| devices.iter().any(|device| device.id == *id));
        for device in &devices {
            let user = StepUser::Device(DeviceRef::new(class, &device.id));
            let places = places.get(&device.id).map_or(&[][..], Vec::as_slice);
            for node in device.nodes.iter().filter(is_requested) {
                for placed in RequestedPlace::place_node(places, device, node) {
                    if placed.container != node.container {
                        self.chosen_paths.insert(placed.container.clone());
                    }
                    self.add_node(&placed, &user)?;
                }
            }
        }
        if !devices.is_empty() {
            for need in CapabilityNeed::from_class(spec) {
                if !self.needs.contains(&need) {
                    self.needs.push(need);
                }
            }
            for node in edits.nodes.iter().filter(is_requested) {
                self.add_node(node, &class_user)?;
            }
        }
        if gives_files {
            self.add_edits(edits, &devices, &class_user)?;
        }
        for device in &devices {
            let user = StepUser::Device(DeviceRef::new(class, &device.id));
            self.add_files(&device.files, &user)?;
            self.add_directories(&device.directories, &user)?;
            self.add_shown(device, &user)?;
            self.add_net_interfaces(device, &user);
            for (name, value) in &device.env {
                let values = self.env.entry(name.to_string()).or_default();
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
        }
        let similar = if waiting.iter().any(|awaited| *awaited != Awaited::All) {
            let names = RequestNames::new(spec, inventory);
            let similar = waiting
                .iter()
                .filter_map(|awaited| Some((awaited.to_request(), names.find_similar(awaited)?)));
            similar.collect()
        } else {
            BTreeMap::new()
        };
        self.grants.push(Grant {
            similar,
            waiting,
            detached: Vec::new(),
            devices: devices.iter().map(|device| device.id.clone()).collect(),
            available: inventory.devices.len(),
            class: class.clone(),
            requested_by: request.source.to_string(),
            given_by: match &request.source {
                RequestSource::Attach { devices } => GivenBy::from(devices.as_str().to_owned()),
                RequestSource::Env { .. }
                | RequestSource::Annotation { .. }
                | RequestSource::Cdi { .. } => GivenBy::Hook,
            },
            authorized_by: authority.to_string(),
            follow: spec.spec.follow,
            names: if spec.spec.follow {
                request.selection.names_of_devices(spec, inventory)
            } else {
                BTreeMap::new()
            },
            places,
        });
        Ok(())
    }

    /// Returns the devices that the container waits for, and adds a note for each of them. A container
    /// can wait only if the request itself is the authority: the kubelet never allocates a device that
    /// does not exist.
    fn find_awaited(&mut self, input: &PlanInput<'_>) -> Result<Vec<Awaited>, RequestError> {
        let (class, request) = (input.class, input.request);
        let Authority::Requester { .. } = input.authority else {
            if request.selection.has_mark() && matches!(input.authority, Authority::Kubelet(_)) {
                self.notes.push(format!(
                    "{}: a device cannot come later in a pod, which has those that the kubelet recorded \
                     for it",
                    request.source
                ));
            }
            return Ok(Vec::new());
        };
        if !matches!(
            request.source,
            RequestSource::Env { .. } | RequestSource::Annotation { .. }
        ) {
            return Ok(Vec::new());
        }
        let awaited = request.selection.awaited(class, &input.found.inventory)?;
        if class.spec.follow {
            return Ok(awaited);
        }
        let class_name = &request.class;
        for device in awaited.iter().filter(|device| **device != Awaited::All) {
            let name = excerpt(&device.to_request());
            let reason = if class.spec.device.netdev.is_some() {
                "a container gets a network interface only when it is started".to_owned()
            } else {
                format!("set `follow = true` in [class.{class_name}] of config.toml")
            };
            self.warnings.push(format!(
                "{class_name}: this host does not have {name}, and nothing gives it later: {reason}"
            ));
        }
        Ok(Vec::new())
    }
}
