//! Collects the device nodes, rules, files and libraries that all requests of one container need.
//! The injection plan is made from them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::device::{Access, DeviceNumber};
use device_class::discover::{
    BitmaskFile, DeviceNetInterfaces, FileSource, FoundClass, FoundNode, NodeInjectionMethod,
};
use device_class::host::ProgramAbi;
use device_class::name::{DeviceId, DeviceRef, excerpt};

use super::authority::GrantedFiles;
use super::request_warnings::find_absence_reason;
use super::{
    Authority, CapabilityNeed, Grant, GrantOrigin, ImageLibraries, InjectionStep, PlanError,
    PlanInput, StepOwner, prepare,
};
use crate::request::{
    AwaitedDevice, RefusedRequest, RequestError, RequestNames, RequestSource, RequestedNodePath,
    Selection,
};

/// A device node of the host that the container gets at one path.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PlannedNode {
    pub(super) source: PathBuf,
    pub(super) number: DeviceNumber,
    pub(super) form: NodeInjectionMethod,
}

/// A directory of the container that will be hidden by a tmpfs, and the files that the tmpfs shows.
#[derive(Default)]
pub(super) struct PlannedMask {
    pub(super) files: BTreeMap<PathBuf, String>,
    /// The files that list the container's devices as a bit mask. The number has the bits of these
    /// devices.
    pub(super) bit_masks: BTreeMap<PathBuf, (BitmaskFile, u64)>,
    /// The files and directories of the host that are visible in the tmpfs. The key is the path in
    /// the container, the value is the path on the host.
    pub(super) visible_host_paths: BTreeMap<PathBuf, PathBuf>,
    /// The symbolic links of the host's /proc or /sys that are visible in the tmpfs, each with its
    /// target.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
    pub(super) owners: BTreeSet<StepOwner>,
}

pub(super) struct PlannedLibrary {
    pub(super) source: PathBuf,
    /// The names of the symbolic links to the library. They are created in the library's directory.
    pub(super) links: BTreeSet<String>,
    /// The names with which programs open the library: its sonames and additional names.
    pub(super) names: BTreeSet<String>,
    /// The subset of `names` for which links are created in the image's library directory, too.
    pub(super) image_links: BTreeSet<String>,
    pub(super) owners: BTreeSet<StepOwner>,
}

/// The device rule for one device number, before the rule is added to the plan.
#[derive(Default)]
pub(super) struct PlannedRule {
    /// The access to the device number that each device or class needs.
    pub(super) access_by_owner: BTreeMap<StepOwner, Access>,
    /// The path of the device's node on the host, if the host has one.
    pub(super) host_node_path: Option<PathBuf>,
}

/// Collects the parts of an injection plan. Each path in the container and each device number has
/// one entry, however many requests need it. The entry lists its owners: the devices and classes
/// that need it.
#[derive(Default)]
pub(super) struct PlanBuilder {
    pub(super) grants: Vec<Grant>,
    pub(super) warnings: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) preparations: Vec<InjectionStep>,
    pub(super) rules: BTreeMap<DeviceNumber, PlannedRule>,
    pub(super) nodes: BTreeMap<PathBuf, (PlannedNode, BTreeSet<StepOwner>)>,
    /// The paths in the container that requests chose for device nodes.
    pub(super) requested_paths: BTreeSet<PathBuf>,
    /// The symbolic links to device nodes, each with the path of its node in the container.
    pub(super) links: BTreeMap<PathBuf, (PathBuf, BTreeSet<StepOwner>)>,
    pub(super) masks: BTreeMap<PathBuf, PlannedMask>,
    pub(super) directories: BTreeMap<PathBuf, (PathBuf, BTreeSet<StepOwner>)>,
    pub(super) files: BTreeMap<PathBuf, (FileSource, BTreeSet<StepOwner>)>,
    /// The paths in the container of the files that are not optional.
    pub(super) required_files: BTreeSet<PathBuf>,
    pub(super) libraries: BTreeMap<(ProgramAbi, String), PlannedLibrary>,
    /// The sonames of libraries with a warning that a file of the host is left out. Because of this
    /// set, the plan has only one such warning for each library.
    pub(super) warned_sonames: BTreeSet<String>,
    /// The paths of the mounted directories to which the container may write.
    pub(super) writable_directories: BTreeSet<PathBuf>,
    pub(super) required_directories: BTreeSet<PathBuf>,
    /// The environment variables. Each has the values of all devices, in the order of the devices.
    pub(super) env: BTreeMap<String, Vec<String>>,
    /// The mounted directories in which the dynamic loader must find libraries. Each has the names
    /// of its libraries.
    pub(super) library_directories: Vec<(PathBuf, Vec<String>)>,
    /// The directories of the image that the dynamic loader searches before the mounted
    /// directories.
    pub(super) image_libraries: Vec<ImageLibraries>,
    /// The network interfaces that move into the container, each with the devices to which they
    /// belong.
    pub(super) net_interfaces: Vec<(DeviceNetInterfaces, BTreeSet<StepOwner>)>,
    pub(super) needs: Vec<CapabilityNeed>,
    /// The paths of optional files that the host does not have. The key is the label of the device
    /// or class that lists the files.
    pub(super) missing_files: BTreeMap<String, Vec<String>>,
}

impl PlanBuilder {
    /// Adds the devices, files and notes of one request to the plan.
    ///
    /// # Errors
    /// Returns an error if the request is refused, or if a required file does not exist on the
    /// host.
    pub(super) fn add_request(&mut self, input: &PlanInput<'_>) -> Result<(), PlanError> {
        let PlanInput {
            class,
            request,
            found_class: FoundClass { inventory, edits },
            authority,
        } = input;
        let grant = authority.choose_devices(class, request, inventory)?;
        let devices = grant.devices;
        let refuse = |error| RefusedRequest::new(&request.source, error);
        let restricted_edits;
        let edits = match grant.files {
            GrantedFiles::WithoutDeviceAccess => {
                restricted_edits = edits.without_device_access();
                &restricted_edits
            }
            GrantedFiles::All | GrantedFiles::Nothing => edits,
        };
        let awaited_devices = self.find_awaited_devices(input).map_err(refuse)?;
        let absence_reason = find_absence_reason(request, inventory, edits);
        self.warnings.extend(grant.note.or_else(|| {
            let reason = absence_reason
                .as_ref()
                .filter(|_| awaited_devices.is_empty())?;
            Some(format!("{}: {reason}", request.source))
        }));
        // The request `none` gets the class's files only on a host that has them. Many images make
        // this request by default, and their containers must start on every host.
        let should_add_files = grant.files != GrantedFiles::Nothing
            && (request.selection != Selection::FilesOnly || absence_reason.is_none());
        if should_add_files {
            request.check_capabilities(class).map_err(refuse)?;
            self.check_requirements(input, &devices)?;
        }
        let class_name = &request.class;
        let class_owner = StepOwner::Class(class_name.clone());
        // `inventory.warnings` has a message for each device that the scan of the host left out. If
        // a container requests all devices, it gets fewer than expected, so the messages become
        // warnings.
        let messages = match request.selection {
            Selection::All => &mut self.warnings,
            _ => &mut self.notes,
        };
        let warnings = inventory.warnings.iter();
        messages.extend(warnings.map(|warning| format!("{class_name}: {warning}")));
        let hidden_names = inventory.hidden_ids.iter().map(DeviceId::as_str);
        self.add_restricted_names_note(class_name, "hidden", hidden_names);
        let forbidden_names = class
            .settings
            .forbidden_capabilities
            .iter()
            .map(|name| name.as_str());
        self.add_restricted_names_note(class_name, "forbidden", forbidden_names);
        self.add_unknown_capability_notes(class, request);
        self.warn_about_unhealthy_devices(request, inventory, &devices);
        self.warn_about_shared_names(input, &devices);
        self.warn_about_host_indexes(request, devices.len());
        for (device, action) in prepare::plan_preparations(class, request, &devices)? {
            let owner = StepOwner::Device(DeviceRef::new(class_name, &device.id));
            self.preparations.push(InjectionStep::new(action, [owner]));
        }
        let capabilities = class
            .spec
            .request
            .add_implied_capabilities(&request.capabilities);
        let is_requested = |node: &&FoundNode| node.matches_capabilities(&capabilities);
        let mut node_paths = request
            .selection
            .find_node_paths(class, inventory)
            .map_err(refuse)?;
        node_paths.retain(|id, _| devices.iter().any(|device| device.id == *id));
        for device in &devices {
            let owner = StepOwner::Device(DeviceRef::new(class_name, &device.id));
            let device_paths = node_paths.get(&device.id).map_or(&[][..], Vec::as_slice);
            for node in device.nodes.iter().filter(is_requested) {
                for container_node in
                    RequestedNodePath::list_container_nodes(device_paths, device, node)
                {
                    if container_node.container_path != node.container_path {
                        self.requested_paths
                            .insert(container_node.container_path.clone());
                    }
                    self.add_node(&container_node, &owner)?;
                }
            }
        }
        if !devices.is_empty() {
            for need in CapabilityNeed::list_needed_capabilities(class, &devices) {
                if !self.needs.contains(&need) {
                    self.needs.push(need);
                }
            }
            for node in edits.nodes.iter().filter(is_requested) {
                self.add_node(node, &class_owner)?;
            }
        }
        if should_add_files {
            self.add_edits(edits, &devices, &class_owner)?;
        }
        for device in &devices {
            let owner = StepOwner::Device(DeviceRef::new(class_name, &device.id));
            self.add_files(&device.files, &owner)?;
            self.add_directories(&device.directories, &owner)?;
            self.add_visible_files(device, &owner)?;
            self.add_net_interfaces(device, &owner);
            for (name, value) in &device.env {
                let values = self.env.entry(name.to_string()).or_default();
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
        }
        let similar_devices = if awaited_devices
            .iter()
            .any(|awaited| *awaited != AwaitedDevice::All)
        {
            let names = RequestNames::new(class, inventory);
            let similar_devices = awaited_devices.iter().filter_map(|awaited| {
                Some((
                    awaited.to_request_text(),
                    names.find_similar_device(awaited)?,
                ))
            });
            similar_devices.collect()
        } else {
            BTreeMap::new()
        };
        let mut fulfilled_requests = Vec::new();
        if class.spec.is_followed
            && request.source.can_await_devices()
            && matches!(authority, Authority::Requester { .. })
        {
            fulfilled_requests = request.selection.find_fulfilled_requests(class, inventory);
            fulfilled_requests.retain(|(_, id)| devices.iter().any(|device| device.id == *id));
        }
        self.grants.push(Grant {
            similar_devices,
            awaited_devices,
            fulfilled_requests,
            has_access_to_all_devices: false,
            detached_names: Vec::new(),
            devices: devices.iter().map(|device| device.id.clone()).collect(),
            available_count: inventory.devices.len(),
            class: class_name.clone(),
            requested_by: request.source.to_string(),
            grant_origin: match &request.source {
                RequestSource::Attach { devices } => GrantOrigin::from(devices.as_str().to_owned()),
                RequestSource::Env { .. }
                | RequestSource::Annotation { .. }
                | RequestSource::Cdi { .. } => GrantOrigin::Hook,
            },
            authorized_by: authority.to_string(),
            is_followed: class.spec.is_followed,
            names: if class.spec.is_followed {
                request.selection.find_stable_names(class, inventory)
            } else {
                BTreeMap::new()
            },
            node_paths,
        });
        Ok(())
    }

    /// Returns the requested devices that the container gets when they arrive on the host. A pod
    /// awaits no devices, because the kubelet never allocates a device that does not exist. If
    /// devices cannot be awaited, adds messages with the reason and returns an empty list.
    fn find_awaited_devices(
        &mut self,
        input: &PlanInput<'_>,
    ) -> Result<Vec<AwaitedDevice>, RequestError> {
        let (class, request) = (input.class, input.request);
        let Authority::Requester { .. } = input.authority else {
            if request.selection.has_awaited_item()
                && matches!(input.authority, Authority::Kubelet(_))
            {
                self.notes.push(format!(
                    "{}: a device cannot come later in a pod, which has those that the kubelet recorded \
                     for it",
                    request.source
                ));
            }
            return Ok(Vec::new());
        };
        if !request.source.can_await_devices() {
            return Ok(Vec::new());
        }
        let awaited_devices = request
            .selection
            .find_awaited_devices(class, &input.found_class.inventory)?;
        if class.spec.is_followed {
            let inventory = &input.found_class.inventory;
            let messages = request
                .selection
                .describe_unmatchable_items(class, inventory);
            let source = &request.source;
            self.warnings.extend(
                messages
                    .iter()
                    .map(|message| format!("{source}: {message}")),
            );
            return Ok(awaited_devices);
        }
        let class_name = &request.class;
        for device in awaited_devices
            .iter()
            .filter(|device| **device != AwaitedDevice::All)
        {
            let name = excerpt(&device.to_request_text());
            let reason = if class.spec.device.netdev.is_some() {
                "a container gets a network interface only when it is started".to_owned()
            } else if class.spec.can_be_followed() {
                format!("set `follow = true` in [class.{class_name}] of config.toml")
            } else {
                format!(
                    "class {class_name} cannot be followed, so start the container again when the \
                     device is there"
                )
            };
            self.warnings.push(format!(
                "{class_name}: this host does not have {name}, and nothing gives it later: {reason}"
            ));
        }
        Ok(Vec::new())
    }
}
