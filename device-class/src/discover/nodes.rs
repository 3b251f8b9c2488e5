//! Looks up the device nodes of a class on a host.

use std::path::{Path, PathBuf};

use super::DeviceError;
use super::attributes::fill_advice;
use super::found::{FoundNode, MadeNode, NodeForm, OwnNode, Presence};
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
            // The lookup failed, so the preferred node may exist. Falling back to the next path
            // could give the container another device, so the error is reported for this path.
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
        // A node is made only where the path does not exist. A file of another type at the path
        // is a fault of the host that an administrator must see.
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
        if let Presence::Unfit(reason) = &mut number {
            if let Some(LoadedDriver { name, .. }) = driver {
                reason.push_str(&format!(", although its driver {name} is loaded"));
            }
            if let Some(advice) = &advice {
                reason.push_str(&format!("; {advice}"));
            }
        }
    }
    // A node of the host's group or of root's would be open to other users than the class says.
    if let (Some(error), Presence::Found(_)) = (group_error, &number) {
        number = Presence::Unfit(format!("{}: {error}", path.display()));
    }
    Ok(FoundNode {
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
    }
}

fn number_at(path: &Path, optional: bool, host: &dyn HostView) -> Presence<DeviceNumber> {
    present(path, optional, "a device node", host, |place| {
        match place.entry {
            Entry::Device(number) => Some(number),
            _ => None,
        }
    })
}

/// Whether `link` is a symbolic link of the host that leads to `node`.
fn leads_to(link: &Path, node: &Path, host: &dyn HostView) -> bool {
    let end = host.is_link(link).then(|| host.canonical(link).ok());
    end.flatten()
        .is_some_and(|end| host.canonical(node).is_ok_and(|node| node == end))
}
