//! Looks up the device nodes of a class on a host.

use std::path::{Path, PathBuf};

use super::DeviceError;
use super::attributes::fill_advice;
use super::found::{FoundNode, MadeNode, NodeForm, NodeLack, OwnNode, Presence};
use super::loaded_driver::LoadedDriver;
use super::paths::{capture_attributes, fill_both_paths, present};
use crate::class;
use crate::device::{Access, DeviceNumber};
use crate::host::{Entry, HostView};
use crate::ownership::OwnershipError;
use crate::template::Attributes;

/// Looks up the nodes that one table of the class describes: one node, or one for each match
/// of `for_each`. A missing node is an error for the container unless `optional` is set.
pub(super) fn nodes(
    spec: &class::Node,
    attributes: &Attributes,
    optional: bool,
    host: &dyn HostView,
) -> Result<Vec<FoundNode>, DeviceError> {
    let each = capture_attributes(spec.for_each.as_ref(), attributes, host)?;
    let nodes = each
        .iter()
        .map(|attributes| node(spec, attributes, optional, host));
    nodes.collect()
}

fn node(
    spec: &class::Node,
    attributes: &Attributes,
    optional: bool,
    host: &dyn HostView,
) -> Result<FoundNode, DeviceError> {
    let (mut path, container) =
        fill_both_paths(&spec.path, spec.container_path.as_ref(), attributes)?;
    for preferred in &spec.prefer {
        let preferred = preferred.fill(attributes)?;
        let is_preferred = match host.place(&preferred) {
            Ok(place) => matches!(place.map(|place| place.entry), Some(Entry::Device(_))),
            // The look-up failed, so the preferred node may exist. With the next path the container
            // could get another device, so this path is used and its error is reported.
            Err(OwnershipError::Open { .. }) => true,
            Err(_) => false,
        };
        if is_preferred {
            path = preferred;
            break;
        }
    }
    let links = spec.links.iter().map(|link| link.fill(attributes));
    let mut links = links.collect::<Result<Vec<PathBuf>, _>>()?;
    links.retain(|link| leads_to(link, &path, host));
    let mut number = number_at(&path, optional || spec.optional, host);
    let mut group_error = None;
    let mut form = match OwnNode::from_node(spec, host) {
        Ok(own) => own.map_or(NodeForm::Bound, NodeForm::Own),
        Err(error) => {
            group_error = Some(error);
            NodeForm::Bound
        }
    };
    if !matches!(number, Presence::Found(_)) {
        let advice = spec.advice.as_ref();
        let advice = advice.map(|advice| fill_advice(advice, attributes));
        let driver = LoadedDriver::find(spec, attributes, host)?;
        if driver.is_some() {
            number = number_at(&path, false, host);
        }
        // A node is created only if nothing is at the path. If a file of another type is there, the
        // administrator has to correct that.
        let is_absent = matches!(host.entry(&path), Ok(None));
        if let (Some(driver), Some(make), true) = (&driver, &spec.make, is_absent) {
            number = Presence::Found(driver.number(&make.minor.fill(attributes)?)?);
            match OwnNode::from_make(spec, make, host) {
                Ok(own) => {
                    group_error = None;
                    form = NodeForm::Made(MadeNode {
                        driver: driver.name.clone(),
                        own,
                        advice: advice.clone(),
                    });
                }
                Err(error) => group_error = Some(error),
            }
        }
        if let Presence::Unusable(reason) = &mut number {
            if let Some(LoadedDriver { name, .. }) = driver {
                reason.push_str(&format!(", although its driver {name} is loaded"));
            }
            if let Some(advice) = &advice {
                reason.push_str(&format!("; {advice}"));
            }
        }
    }
    // Without the group of the class file, the node would have the host's group or root's, and other
    // users than intended could open it.
    if let (Some(error), Presence::Found(_)) = (group_error, &number) {
        number = Presence::Unusable(format!("{}: {error}", path.display()));
    }
    Ok(FoundNode {
        lack: matches!(number, Presence::Optional)
            .then(|| describe_lack(spec, &path, attributes))
            .flatten(),
        host: path,
        container,
        links,
        capability: spec.capability.clone(),
        access: spec.access,
        form,
        number,
    })
}

/// Looks up a node by its path alone. The host need not have the node.
pub(super) fn optional(path: PathBuf, host: &dyn HostView) -> FoundNode {
    FoundNode {
        number: number_at(&path, true, host),
        container: path.clone(),
        host: path,
        links: Vec::new(),
        capability: None,
        access: Access::default(),
        form: NodeForm::Bound,
        lack: None,
    }
}

/// Describes what fails without an optional node.
fn describe_lack(spec: &class::Node, path: &Path, attributes: &Attributes) -> Option<NodeLack> {
    let needed_for = spec.needed_for.as_ref()?;
    let path = path.display();
    let mut text = format!("{path} does not exist, and {needed_for} fails without it");
    if let Some(advice) = &spec.advice {
        text.push_str(&format!("; {}", fill_advice(advice, attributes)));
    }
    Some(NodeLack {
        text,
        is_of_switch: false,
    })
}

fn number_at(path: &Path, optional: bool, host: &dyn HostView) -> Presence<DeviceNumber> {
    present(path, optional, "a device node", host, |place| {
        match place.entry {
            Entry::Device(number) => Some(number),
            _ => None,
        }
    })
}

/// Returns whether `link` is a symbolic link of the host that leads to `node`.
fn leads_to(link: &Path, node: &Path, host: &dyn HostView) -> bool {
    let end = host.is_link(link).then(|| host.canonical(link).ok());
    end.flatten()
        .is_some_and(|end| host.canonical(node).is_ok_and(|node| node == end))
}
