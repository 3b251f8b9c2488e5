//! Collects a plan, over all requests of a container.

use device_class::inserted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::device::{Access, DeviceNumber};
use device_class::discover::{
    Device, FileSource, FoundClass, FoundEdits, FoundNode, FoundText, Inventory, NodeForm,
};
use device_class::host::Programs;
use device_class::name::{CapabilityName, DeviceId, excerpt};
use device_class::{DeviceClass, similar};

use super::authority::Files;
use super::user::User;
use super::{Asked, GivenBy, Grant, ImageLibraries, InjectionStep, PlanError, prepare};
use crate::request::{RefusedRequest, Request, RequestError, RequestSource, Selection};
use crate::requirement;

/// A node of the host for a place in the container.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PlannedNode {
    pub(super) source: PathBuf,
    pub(super) number: DeviceNumber,
    pub(super) form: NodeForm,
}

/// A masked directory, with what is visible in it.
#[derive(Default)]
pub(super) struct PlannedMask {
    pub(super) files: BTreeMap<PathBuf, String>,
    /// Files that say which devices there are, and their bits.
    pub(super) texts: BTreeMap<PathBuf, (FoundText, u64)>,
    pub(super) shown: BTreeMap<PathBuf, PathBuf>,
    pub(super) users: BTreeSet<User>,
}

pub(super) struct PlannedLibrary {
    pub(super) source: PathBuf,
    /// Further names for it beside the file.
    pub(super) links: BTreeSet<String>,
    pub(super) users: BTreeSet<User>,
}

/// The device rule for one device number.
#[derive(Default)]
pub(super) struct PlannedRule {
    /// The access that each user of the device needs.
    pub(super) needed: BTreeMap<User, Access>,
    /// The device's node on the host, if the host has one.
    pub(super) host_node: Option<PathBuf>,
}

/// The parts of all requests, each place and device once.
#[derive(Default)]
pub(super) struct PlanBuilder {
    pub(super) grants: Vec<Grant>,
    pub(super) warnings: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) preparations: Vec<InjectionStep>,
    pub(super) rules: BTreeMap<DeviceNumber, PlannedRule>,
    pub(super) nodes: BTreeMap<PathBuf, (PlannedNode, BTreeSet<User>)>,
    /// Links, with the nodes that they lead to.
    pub(super) links: BTreeMap<PathBuf, (PathBuf, BTreeSet<User>)>,
    pub(super) masks: BTreeMap<PathBuf, PlannedMask>,
    pub(super) directories: BTreeMap<PathBuf, (PathBuf, BTreeSet<User>)>,
    pub(super) files: BTreeMap<PathBuf, (FileSource, BTreeSet<User>)>,
    pub(super) libraries: BTreeMap<(Programs, String), PlannedLibrary>,
    /// Places in the container, of directories that it may write to.
    pub(super) writable: BTreeSet<PathBuf>,
    /// Variables, each with its values in the order of the devices.
    pub(super) env: BTreeMap<String, Vec<String>>,
    pub(super) searched: Vec<(PathBuf, Vec<String>)>,
    /// Directories of the image that come before them.
    pub(super) image_libraries: Vec<ImageLibraries>,
    /// Optional parts that the host lacks, by device or class.
    pub(super) absent: BTreeMap<String, Vec<String>>,
}

impl PlanBuilder {
    pub(super) fn add(&mut self, asked: &Asked<'_>) -> Result<(), PlanError> {
        let Asked {
            class: spec,
            request,
            found: FoundClass { inventory, edits },
            authority,
        } = asked;
        let choice = authority.choose(spec, request, inventory)?;
        let devices = choice.devices;
        let harmless;
        let edits = match choice.files {
            Files::Harmless => {
                harmless = edits.harmless();
                &harmless
            }
            Files::All | Files::Nothing => edits,
        };
        let absent = nothing_of_class(request, inventory, edits);
        self.warnings.extend(choice.note.or_else(|| {
            let absent = absent.as_ref()?;
            Some(format!("{}: {absent}", request.source))
        }));
        // `all` on a host without devices does not require the files.
        let gives_files = choice.files != Files::Nothing
            && (request.selection != Selection::FilesOnly || absent.is_none());
        if gives_files {
            let checked = request.check_capabilities(spec);
            checked.map_err(|error| RefusedRequest {
                asked_by: request.source.to_string(),
                error,
            })?;
            self.requirements(asked, &devices)?;
        }
        let class = request.class.to_string();
        let whole = User::class(&class);
        // Who wants all does not expect fewer.
        let told = match request.selection {
            Selection::All => &mut self.warnings,
            _ => &mut self.notes,
        };
        let warnings = inventory.warnings.iter();
        told.extend(warnings.map(|warning| format!("{class}: {warning}")));
        let hidden = inventory.hidden.iter().map(DeviceId::as_str);
        self.left_out(&class, "hidden", hidden);
        let forbidden = spec.settings.forbid.iter().map(|name| name.as_str());
        self.left_out(&class, "forbidden", forbidden);
        self.note_capabilities(spec, request);
        self.note_health(request, inventory, &devices);
        for (device, action) in prepare::actions(spec, request, &devices)? {
            let user = User::device(&class, device.id.as_str());
            self.preparations.push(InjectionStep::new(action, [user]));
        }
        let capabilities = spec.spec.request.with_implied(&request.capabilities);
        let is_asked = |node: &&FoundNode| node.is_for(&capabilities);
        for device in &devices {
            let user = User::device(&class, device.id.as_str());
            for node in device.nodes.iter().filter(is_asked) {
                self.node(node, &user)?;
            }
        }
        if !devices.is_empty() {
            for node in edits.nodes.iter().filter(is_asked) {
                self.node(node, &whole)?;
            }
        }
        if gives_files {
            self.edits(edits, &devices, &whole)?;
        }
        for device in &devices {
            let user = User::device(&class, device.id.as_str());
            self.files(&device.files, &user)?;
            self.directories(&device.directories, &user)?;
            self.show(device, &user)?;
            for (name, value) in &device.env {
                let values = self.env.entry(name.to_string()).or_default();
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
        }
        self.grants.push(Grant {
            devices: devices.iter().map(|device| device.id.to_string()).collect(),
            available: inventory.devices.len(),
            class,
            asked_by: request.source.to_string(),
            given_by: match &request.source {
                RequestSource::Attach { devices } => GivenBy::from(devices.clone()),
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
        });
        Ok(())
    }

    /// Notes what config.toml takes from the class.
    fn left_out<'b>(&mut self, class: &str, how: &str, names: impl Iterator<Item = &'b str>) {
        let names: Vec<&str> = names.collect();
        if !names.is_empty() {
            let names = names.join(", ");
            self.notes
                .push(format!("{class}: {how} by config.toml: {names}"));
        }
    }

    /// Checks the image's requirements on the host and on each device.
    fn requirements(&mut self, asked: &Asked<'_>, devices: &[&Device]) -> Result<(), PlanError> {
        let Some(spec) = &asked.class.spec.request.requirements else {
            return Ok(());
        };
        // Devices that are alike are checked once.
        let mut all: BTreeSet<requirement::Values> = BTreeSet::new();
        let host = [&asked.found.inventory.host_attributes];
        let attributes = devices.iter().map(|device| &device.attributes);
        let attributes = host
            .into_iter()
            .filter(|_| devices.is_empty())
            .chain(attributes);
        for known in attributes {
            let values = spec.values.iter().filter_map(|(name, value)| {
                let value = value.fill(known).ok();
                // What the host does not show is not known.
                let is_known = value.as_ref().is_none_or(|value| !value.is_empty());
                is_known.then(|| (name.clone(), value))
            });
            all.insert(inserted(values));
        }
        for (env, text) in &asked.request.requirements {
            let mut notes = BTreeSet::new();
            for values in &all {
                let unknown = requirement::check(text, values).map_err(|error| RefusedRequest {
                    asked_by: asked.request.source.to_string(),
                    error: RequestError::Requirement {
                        env: env.clone(),
                        text: text.clone(),
                        error,
                    },
                })?;
                notes.extend(unknown);
            }
            if !notes.is_empty() {
                let unknown: Vec<String> = notes.into_iter().collect();
                self.notes.push(format!(
                    "{}: cannot be evaluated, assuming it is met: {}",
                    excerpt(env),
                    unknown.join(", ")
                ));
            }
        }
        Ok(())
    }

    fn note_health(&mut self, request: &Request, inventory: &Inventory, given: &[&Device]) {
        let ill = inventory
            .devices
            .iter()
            .filter(|device| !device.health.is_healthy());
        for device in ill {
            let is_given = given.iter().any(|other| other.id == device.id);
            if is_given {
                self.warnings.push(format!(
                    "injecting {} as requested although it is {}",
                    device.id, device.health
                ));
            } else if request.selection == Selection::All {
                self.warnings.push(format!(
                    "{}: {} is left out: it is {}",
                    request.source, device.id, device.health
                ));
            }
        }
    }

    /// Images list all capabilities that they could use, so one that the class does not
    /// have is a mistake only if it looks like another, or if none is left.
    fn note_capabilities(&mut self, class: &DeviceClass, request: &Request) {
        let known = class.spec.capabilities();
        let known = || known.iter().map(CapabilityName::as_str);
        for name in &request.unknown_capabilities {
            let near = known().find(|known| similar::is_typo(name, known));
            let none_is_left = request.capabilities.is_empty() && known().next().is_some();
            let hint = match near {
                Some(near) => format!("; did you mean {near}?"),
                None => String::new(),
            };
            let text = format!("{} has no capability {name}{hint}", request.class);
            match near.is_some() || none_is_left {
                true => self.warnings.push(text),
                false => self.notes.push(text),
            }
        }
    }
}

/// Why a request for `all` or `none` gets nothing on this host, if that is so.
/// Many images set these by default, also for hosts without such hardware.
fn nothing_of_class(
    request: &Request,
    inventory: &Inventory,
    edits: &FoundEdits,
) -> Option<String> {
    let class = &request.class;
    if !inventory.devices.is_empty() {
        return None;
    }
    // Nodes are added with devices only.
    let files = FoundEdits {
        nodes: Vec::new(),
        ..edits.clone()
    };
    let reason = match (&request.selection, &inventory.no_driver) {
        (_, Some(no_driver)) => no_driver,
        (Selection::FilesOnly, None) => files.unfit().next()?,
        (_, None) if !inventory.hidden.is_empty() => "config.toml hides all devices of it",
        (_, None) => "this host has no device of it",
    };
    Some(format!("not injecting anything of {class}: {reason}"))
}
