//! Builds a device from a candidate, which is a path on the host that `[[discover]]` matched: fills
//! in the templates of the class with the candidate's attributes, and looks up the device's nodes
//! and files on the host.

use crate::collect_by_insertion;
use std::fmt;
use std::io;
use std::path::Path;

use super::driver_root::DriverRoot;
use super::naming::find_name_origin;
use super::source::DeviceCandidate;
use super::{
    DeferredCheck, DeferredRule, Device, DeviceNetInterfaces, FoundNode, Health,
    NetInterfaceSearch, StateFile, attributes, files, find_host_program, health, links, mask,
    nodes, paths, sharing,
};
use crate::class::{DeviceClass, HealthCheck, HealthTest, Source};
use crate::driver_properties::DriverProperties;
use crate::host::{HostView, MAX_ATTRIBUTE_BYTES};
use crate::name::{DeviceId, ResourceName, is_reserved_name};
use crate::template::{Attributes, Template};

/// A message that explains why a path that `[[discover]]` matched cannot become a device, or why
/// the nodes, libraries and files of a class cannot be looked up.
#[derive(Debug)]
pub struct DeviceError(pub(super) String);

impl DeviceError {
    pub(super) fn io(path: impl AsRef<Path>, error: &io::Error) -> Self {
        DeviceError(format!("{}: {error}", path.as_ref().display()))
    }
}

impl<E: std::error::Error> From<E> for DeviceError {
    fn from(error: E) -> Self {
        DeviceError(error.to_string())
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) fn build_device(
    class: &DeviceClass,
    source: &Source,
    candidate: &DeviceCandidate,
    properties: &DriverProperties,
    host: &dyn HostView,
) -> Result<Device, DeviceError> {
    let spec = &class.spec.device;
    let attributes = &candidate.attributes;
    let fill_optional = |template: Option<&Template>| {
        template
            .map(|template| template.fill(attributes))
            .transpose()
    };
    let mut nodes: Vec<FoundNode> = Vec::new();
    for node in spec.nodes.iter().chain(&source.nodes) {
        nodes.extend(nodes::find_nodes(node, attributes, false, host)?);
    }
    let net_interfaces = spec.netdev.as_ref().map(|netdev| {
        let search = NetInterfaceSearch::new(netdev, attributes);
        let host_interfaces = search.find(host)?;
        Ok::<_, DeviceError>(DeviceNetInterfaces {
            search,
            host_interfaces,
        })
    });
    let net_interfaces = net_interfaces.transpose()?;
    let driver_root = DriverRoot::from_host(host);
    let mut files = Vec::new();
    for file in &spec.files {
        let attribute_sets =
            paths::list_attribute_sets(file.path_pattern.as_ref(), attributes, host)?;
        for attributes in attribute_sets.iter() {
            files.push(files::find_file(
                file,
                None,
                attributes,
                false,
                driver_root,
            )?);
        }
    }
    let directories = spec.directories.iter();
    let directories =
        directories.map(|spec| files::find_directory(spec, attributes, false, driver_root));
    let directories = directories.collect::<Result<Vec<_>, _>>()?;
    let mut unmasked_entries = Vec::new();
    for unmask in spec.unmask.iter().chain(&source.unmask) {
        let attribute_sets =
            paths::list_attribute_sets(unmask.path_pattern.as_ref(), attributes, host)?;
        for attributes in attribute_sets.iter() {
            unmasked_entries.push(mask::find_unmasked_entry(unmask, attributes, host)?);
        }
    }
    let (health, deferred_checks, whole_device_fault) = {
        let checks = spec.health.iter().chain(&source.health);
        let is_enabled = |check: &&HealthCheck| {
            class.settings.runs_health_programs || !matches!(check.test, HealthTest::Program(_))
        };
        let checks = checks.filter(is_enabled);
        // A virtual device (`count` in `[[discover]]`) stands for no hardware, so it may have no
        // node.
        let needs_node = source.virtual_device_count.is_none()
            && spec.nodes.iter().chain(&source.nodes).next().is_some();
        match health::check_device(checks, &nodes, needs_node, candidate, host) {
            // The check has failed only for the device as a whole, so its partitions could still be
            // used. But a class without `[[parts]]`, or with shared devices, has no partitions. So
            // the device is unhealthy.
            (Health::Healthy, deferred_checks, Some(reason))
                if class.spec.parts.is_empty() || class.spec.sharing.is_some() =>
            {
                let health = Health::Unhealthy {
                    reason: reason.clone(),
                };
                (health, deferred_checks, Some(reason))
            }
            results => results,
        }
    };
    let deferred_checks = set_program_paths(class, attributes, deferred_checks, host);
    let state = match &class.spec.prepare {
        Some(prepare) => Some(read_state(&prepare.state_file, candidate, host)?),
        None => None,
    };
    let id = spec.id.fill(attributes)?;
    let resource = class.spec.resource.fill(attributes)?;
    let replicas = match class.settings.find_replica_count(&resource) {
        Some(count) => Some(count.get()),
        None => sharing::fill_replica_count(class.spec.sharing.as_ref(), attributes)?,
    };
    let env = spec
        .env
        .iter()
        .filter(|(_, value)| !value.is_empty_text())
        .map(|(name, value)| Ok((name.clone(), value.fill(attributes)?)));
    let aliases: Result<Vec<_>, _> = spec.aliases.iter().map(|a| a.fill(attributes)).collect();
    // An index or alias may be a text that the hardware reports. If it is empty or a reserved word
    // such as `all`, a request cannot name a device by it, so it is left out.
    let is_name = |text: &String| !text.is_empty() && !is_reserved_name(text);
    let index = fill_optional(spec.index.as_ref().or(spec.order.as_ref()))?;
    let to_id = |text: &str| match class.spec.sharing {
        None => DeviceId::from_hardware(text),
        Some(_) => DeviceId::shared_from_hardware(text),
    };
    let whole_device_id = fill_optional(source.part_of.as_ref())?;
    let sysfs_dir = fill_optional(spec.numa.as_ref())?;
    let sysfs_dir = sysfs_dir.and_then(|path| host.canonicalize(Path::new(&path)).ok());
    Ok(Device {
        id: to_id(&id)?,
        can_request_whole_device: source.can_request_whole_device,
        part_of: whole_device_id
            .map(|whole_device_id| to_id(&whole_device_id))
            .transpose()?,
        resource: ResourceName::try_from(resource)?,
        name_origin: find_name_origin(class, source, attributes, properties),
        index: index.filter(|text| spec.index.is_none() || is_name(text)),
        replicas,
        aliases: aliases?.into_iter().filter(is_name).collect(),
        health,
        whole_device_fault,
        deferred_checks,
        numa: sysfs_dir
            .as_deref()
            .and_then(|sysfs_dir| read_numa_node(sysfs_dir, host)),
        group: fill_optional(spec.group.as_ref())?,
        connections: links::find_connections(spec, sysfs_dir, attributes, properties, host)?,
        nodes,
        net_interfaces,
        files,
        directories,
        unmasked_entries,
        env: collect_by_insertion(env.collect::<Result<Vec<_>, DeviceError>>()?),
        state,
        attributes: attributes.clone(),
    })
}

/// Finds the programs that the health checks run. If this host has a program at another path than
/// the class file says, this path is set in the result (`DeferredCheck`) of the check.
fn set_program_paths(
    class: &DeviceClass,
    attributes: &Attributes,
    mut deferred_checks: Vec<DeferredCheck>,
    host: &dyn HostView,
) -> Vec<DeferredCheck> {
    for deferred_check in &mut deferred_checks {
        let DeferredRule::Program {
            program,
            host_program,
            ..
        } = &mut deferred_check.rule
        else {
            continue;
        };
        let path = program.command.first().map(|path| path.fill(attributes));
        if let Some(Ok(path)) = path {
            let found_program = find_host_program(class, Path::new(&path), host);
            *host_program =
                (found_program.path.as_os_str() != path.as_str()).then_some(found_program);
        }
    }
    deferred_checks
}

fn read_state(
    file: &Template,
    candidate: &DeviceCandidate,
    host: &dyn HostView,
) -> Result<StateFile, DeviceError> {
    let path = attributes::resolve_path(file, candidate.path.as_deref(), &candidate.attributes)?;
    let bytes = host.read(&path, MAX_ATTRIBUTE_BYTES).ok();
    let content = bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    Ok(StateFile { path, content })
}

/// Returns the NUMA node of the device whose directory in sysfs is `directory`. Reads the file
/// `numa_node` in this directory or in the nearest directory above it. Returns `None` if there is
/// no such file, or if its value is -1, which means that the firmware reports no NUMA node.
fn read_numa_node(directory: &Path, host: &dyn HostView) -> Option<u32> {
    const MAX_NODE_BYTES: usize = 16;
    let node = directory
        .ancestors()
        .find_map(|ancestor| host.read(&ancestor.join("numa_node"), MAX_NODE_BYTES).ok())?;
    String::from_utf8_lossy(&node).trim().parse().ok()
}
