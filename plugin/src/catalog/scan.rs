//! The device scan: from classes and a host to resources.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use device_class::HostView;
use device_class::class::{Claims, DeviceClass};
use device_class::discover::{self, FoundNode, HealthHistory, KernelLine};
use device_class::name::{ClassName, ResourceName};
use device_class::template::Attributes;
use injection_plan::cdi::{Described, Description};
use kubelet_api::MAX_MESSAGE;

use super::Resources;
use super::cdi_files::describe;
use super::facts_programs::FactsPrograms;
use super::found::{ResourceDevices, undivided};
use super::health_programs::HealthPrograms;
use super::host_files;
use super::kernel_log::KernelLog;
use super::resource::{Resource, Terms};

/// The result of a device scan.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The resources and their devices.
    pub(crate) inventory: Resources,
    /// The omitted devices and classes, a line each with the reason.
    pub(crate) warnings: Vec<String>,
    /// The devices as specifications of CDI have them, if that was wanted.
    pub(super) described: Described,
}

/// What earlier scans read of each class's devices.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    classes: BTreeMap<ClassName, ClassMemory>,
    /// The root below which the kernel's log is; `None`: it is not read.
    host_root: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct ClassMemory {
    health: HealthHistory,
    log: Option<KernelLog>,
    programs: HealthPrograms,
    facts: FactsPrograms,
}

impl Memory {
    /// For a single scan, and one of a recorded host.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// With the kernel's log of a host.
    pub(crate) fn of_host(root: &Path) -> Self {
        Memory {
            host_root: Some(root.to_owned()),
            ..Self::default()
        }
    }
}

impl ClassMemory {
    fn new_lines(&mut self, host_root: &Path) -> io::Result<Vec<KernelLine>> {
        let log = match self.log.take() {
            Some(log) => log,
            None => KernelLog::open(host_root)?,
        };
        self.log.insert(log).new_lines()
    }
}

/// Scans for the devices of every class. A resource belongs to the first class
/// that has a device of it, since its name decides which variable is set. Of two
/// classes with the same variable only the first is scanned: the hook refuses a
/// container that sets it.
///
/// `memory` holds what earlier scans read, for health checks over time; `now` is
/// the time of this scan. With a `description` the devices get specifications of CDI,
/// and one that cannot have any is unhealthy.
pub(crate) fn scan(
    classes: &[DeviceClass],
    host: &dyn HostView,
    memory: &mut Memory,
    now: Instant,
    description: Option<Description<'_>>,
) -> Scan {
    memory
        .classes
        .retain(|name, _| classes.iter().any(|class| class.name == *name));
    let mut found: BTreeMap<ResourceName, ResourceDevices> = BTreeMap::new();
    let mut warnings = Vec::new();
    let mut claims = Claims::default();
    let mut described = Described::default();
    for class in classes {
        if let Err(claimed) = claims.env(class) {
            warnings.push(format!("{}: {claimed}", class.name));
            continue;
        }
        let mut inventory = discover::look(class, host);
        let remembered = memory.classes.entry(class.name.clone()).or_default();
        if let Some(root) = &memory.host_root {
            let programs = &mut remembered.facts;
            if programs.renew(class, &inventory, root, host, now) {
                inventory = discover::look(class, host);
            }
            let faults = programs.faults().iter();
            warnings.extend(faults.map(|line| format!("{}: {line}", class.name)));
        }
        let mut log = Vec::new();
        if let Some(root) = &memory.host_root
            && class.spec.reads_kernel_log()
            && !inventory.devices.is_empty()
        {
            log = remembered.new_lines(root).unwrap_or_else(|error| {
                warnings.push(format!(
                    "{}: faults that the kernel logs are not seen, {}/dev/kmsg cannot be read: \
                     {error}; a container has to be privileged (deploy/components/host-programs)",
                    class.name,
                    root.display()
                ));
                Vec::new()
            });
        }
        let devices = &mut inventory.devices;
        remembered.health.judge_with(devices, now, &log);
        if let Some(root) = &memory.host_root {
            let unrun = remembered.programs.judge(devices, root, now);
            warnings.extend(
                unrun
                    .into_iter()
                    .map(|line| format!("{}: {line}", class.name)),
            );
        }
        warnings.extend(
            inventory
                .warnings
                .iter()
                .map(|line| format!("{}: {line}", class.name)),
        );
        let control_nodes = control_nodes(class, &inventory.host_attributes, host);
        if let Err(reason) = &control_nodes {
            inventory.refuse(reason);
        } else if !inventory.devices.is_empty()
            && let Some(reason) = host_files::missing(class, host)
        {
            inventory.refuse(&reason);
        }
        inventory.refuse_mixed(class);
        let count_resource = class.spec.count_resource();
        inventory.devices.retain(|device| {
            let claimed = claims.claim(device.resource.as_str(), &class.name);
            if let Err(claimed) = &claimed {
                warnings.push(format!("{}: {}: {claimed}", class.name, device.id));
            }
            claimed.is_ok()
        });
        if let Some(description) = description {
            let nodes = control_nodes.unwrap_or_default();
            inventory = describe(description, class, inventory, nodes, &mut described);
        }
        let terms = Arc::new(Terms::of(class, description.is_some()));
        for device in inventory.devices {
            if let Some(name) = &count_resource {
                match claims.claim(name.as_str(), &class.name) {
                    Ok(()) => found
                        .entry(name.clone())
                        .or_insert_with(|| ResourceDevices::new(Arc::new(Terms::of_count(class))))
                        .add(undivided(&device)),
                    Err(claimed) => warnings.push(format!("{}: {claimed}", class.name)),
                }
            }
            found
                .entry(device.resource.clone())
                .or_insert_with(|| ResourceDevices::new(Arc::clone(&terms)))
                .add(device);
        }
    }
    let full = found.iter().filter(|(_, found)| found.left_out > 0);
    warnings.extend(full.map(|(name, found)| {
        format!(
            "{name}: {} devices left out, the kubelet accepts no list of more than \
             {MAX_MESSAGE} bytes; use fewer replicas or shorter ids",
            found.left_out
        )
    }));
    let inventory = found.into_iter().map(|(name, found)| {
        let resource = Resource::new(name.clone(), found.terms, found.devices);
        (name, Arc::new(resource))
    });
    Scan {
        inventory: inventory.collect(),
        warnings,
        described,
    }
}

/// The nodes that a container gets with any device of the class.
///
/// # Errors
/// One that is not optional is missing, or unfit: the hook would refuse the container.
fn control_nodes(
    class: &DeviceClass,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, String> {
    let capabilities = class.spec.request.defaults();
    let nodes = discover::control_nodes(class, &capabilities, attributes, host)
        .map_err(|error| error.to_string())?;
    match nodes.iter().find_map(|node| node.number.unfit()) {
        Some(reason) => Err(reason.to_owned()),
        None => Ok(nodes),
    }
}

#[cfg(test)]
mod tests;
