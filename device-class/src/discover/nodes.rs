//! Looks up the device nodes of a class on a host.

use std::path::{Path, PathBuf};

use super::DeviceError;
use super::attributes::fill_advice;
use super::found::{
    CreatedNode, FoundNode, NodeAbsence, NodeInjectionMethod, NodePermissions, PathLookup,
};
use super::loaded_driver::LoadedDriver;
use super::paths::{fill_both_paths, list_attribute_sets, look_up_path};
use crate::class;
use crate::device::{Access, DeviceNumber};
use crate::host::{Entry, HostView};
use crate::ownership::OwnershipError;
use crate::template::Attributes;

/// Looks up the nodes of one entry of `nodes` in the class file. An entry has one node, or one for
/// each path that matches its `for_each`. The hook refuses a container if a required node is
/// missing. With `is_optional`, no node is required.
pub(super) fn find_nodes(
    spec: &class::Node,
    attributes: &Attributes,
    is_optional: bool,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, DeviceError> {
    let attribute_sets = list_attribute_sets(spec.path_pattern.as_ref(), attributes, host)?;
    let nodes = attribute_sets
        .iter()
        .map(|attributes| find_node(spec, attributes, is_optional, host));
    nodes.collect()
}

fn find_node(
    spec: &class::Node,
    attributes: &Attributes,
    is_optional: bool,
    host: &dyn HostView,
) -> Result<FoundNode, DeviceError> {
    let (mut path, container_path) =
        fill_both_paths(&spec.path, spec.container_path.as_ref(), attributes)?;
    for template in &spec.preferred_paths {
        let preferred_path = template.fill(attributes)?;
        let may_exist = match host.find_trusted_file(&preferred_path) {
            Ok(host_file) => matches!(
                host_file.map(|host_file| host_file.entry),
                Some(Entry::Device(_))
            ),
            // The look-up failed, so the node may exist. The next path is not tried, because it
            // could be the node of another device. `look_up_number` below looks up this path again
            // and keeps the error.
            Err(OwnershipError::Open { .. }) => true,
            Err(_) => false,
        };
        if may_exist {
            path = preferred_path;
            break;
        }
    }
    let links = spec.links.iter().map(|link| link.fill(attributes));
    let mut links = links.collect::<Result<Vec<PathBuf>, _>>()?;
    links.retain(|link| is_link_to(link, &path, host));
    let mut number = look_up_number(&path, is_optional || spec.optional, host);
    let mut group_error = None;
    let mut form = match NodePermissions::from_node(spec, host) {
        Ok(permissions) => permissions.map_or(
            NodeInjectionMethod::BindMount,
            NodeInjectionMethod::NodeCopy,
        ),
        Err(error) => {
            group_error = Some(error);
            NodeInjectionMethod::BindMount
        }
    };
    if !matches!(number, PathLookup::Found(_)) {
        let advice = spec.advice.as_ref();
        let advice = advice.map(|advice| fill_advice(advice, attributes));
        let driver = LoadedDriver::find(spec, attributes, host)?;
        if driver.is_some() {
            number = look_up_number(&path, false, host);
        }
        // The hook creates a node in the container only if the host has nothing at the path. If
        // there is a file of another type, the hook refuses the container, and the administrator
        // has to remove the file.
        let is_absent = matches!(host.entry(&path), Ok(None));
        if let (Some(driver), Some(node_creation), true) = (&driver, &spec.node_creation, is_absent)
        {
            number =
                PathLookup::Found(driver.device_number(&node_creation.minor.fill(attributes)?)?);
            match NodePermissions::from_node_creation(spec, node_creation, host) {
                Ok(permissions) => {
                    group_error = None;
                    form = NodeInjectionMethod::CreatedNode(CreatedNode {
                        driver: driver.name.clone(),
                        permissions,
                        advice: advice.clone(),
                        is_optional: (is_optional || spec.optional) && spec.needed_for.is_none(),
                    });
                }
                Err(error) => group_error = Some(error),
            }
        }
        if let PathLookup::Unusable(reason) = &mut number {
            if let Some(LoadedDriver { name, .. }) = driver {
                reason.push_str(&format!(", although its driver {name} is loaded"));
            }
            if let Some(advice) = &advice {
                reason.push_str(&format!("; {advice}"));
            }
        }
    }
    // A node whose group cannot be found on the host is unusable. With another group, such as
    // root's or that of the host's node, the wrong users in the container could open it.
    if let (Some(error), PathLookup::Found(_)) = (group_error, &number) {
        number = PathLookup::Unusable(format!("{}: {error}", path.display()));
    }
    Ok(FoundNode {
        absence: matches!(number, PathLookup::OptionalAbsent)
            .then(|| describe_node_absence(spec, &path, attributes))
            .flatten(),
        host_path: path,
        container_path,
        links,
        has_udev_links: spec.has_udev_links,
        capability: spec.capability.clone(),
        access: spec.access,
        form,
        number,
    })
}

/// Looks up a device node whose path comes from a list file and not from `nodes` of a class. It is
/// not an error if the host does not have the node.
pub(super) fn find_optional_node(path: PathBuf, host: &dyn HostView) -> FoundNode {
    FoundNode {
        number: look_up_number(&path, true, host),
        container_path: path.clone(),
        host_path: path,
        links: Vec::new(),
        has_udev_links: false,
        capability: None,
        access: Access::default(),
        form: NodeInjectionMethod::BindMount,
        absence: None,
    }
}

/// Describes what fails without an optional node. Returns `None` if the class does not set
/// `needed_for`.
fn describe_node_absence(
    spec: &class::Node,
    path: &Path,
    attributes: &Attributes,
) -> Option<NodeAbsence> {
    let needed_for = spec.needed_for.as_ref()?;
    let path = path.display();
    let mut message = format!("{path} does not exist, and {needed_for} fails without it");
    if let Some(advice) = &spec.advice {
        message.push_str(&format!("; {}", fill_advice(advice, attributes)));
    }
    Some(NodeAbsence {
        message,
        can_be_selected_by_switch: false,
    })
}

fn look_up_number(path: &Path, is_optional: bool, host: &dyn HostView) -> PathLookup<DeviceNumber> {
    look_up_path(
        path,
        is_optional,
        "a device node",
        host,
        |host_file| match host_file.entry {
            Entry::Device(number) => Some(number),
            _ => None,
        },
    )
}

/// Returns whether `link` is a symbolic link on the host that leads to `node_path`, directly or
/// through other links.
pub(super) fn is_link_to(link: &Path, node_path: &Path, host: &dyn HostView) -> bool {
    let target = host.is_link(link).then(|| host.canonicalize(link).ok());
    target.flatten().is_some_and(|target| {
        host.canonicalize(node_path)
            .is_ok_and(|real_path| real_path == target)
    })
}
