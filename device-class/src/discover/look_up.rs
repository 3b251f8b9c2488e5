//! Looks up the devices and the edits of a class on a host in one call.

use std::io;
use std::path::{Path, PathBuf};

use super::driver_root::DriverRoot;
use super::edits::{self, EditSelection};
use super::node_paths::{NamedByPath, NodePaths};
use super::{DeviceError, FoundEdits, Inventory, devices};
use crate::class::{DeviceClass, PathTemplateError};
use crate::host::HostView;
use crate::name::ClassName;
use crate::template::Attributes;

/// The devices of a class on a host, and the edits for a container with certain capabilities.
#[derive(Debug, Clone)]
pub struct FoundClass {
    pub inventory: Inventory,
    /// The edits that a container gets once, regardless of the number of its devices.
    pub edits: FoundEdits,
}

/// An error that keeps all edits of a class from being looked up.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    /// The template `driver_root` of the class cannot be filled in.
    #[error("class {class}: driver_root: {error}")]
    Template {
        class: ClassName,
        error: PathTemplateError,
    },
    /// The directory of the driver root does not exist or cannot be opened.
    #[error("class {class}: driver_root {} cannot be opened: {error}", path.display())]
    DriverRoot {
        class: ClassName,
        path: PathBuf,
        error: io::Error,
    },
    /// A template cannot be filled in, or the loader's cache cannot be used.
    #[error("class {class}: {error}")]
    Edits {
        class: ClassName,
        error: DeviceError,
    },
}

/// Finds the devices of a class, and the edits that a container gets in addition. Nodes are
/// looked up on the host; libraries and files are looked up in the driver root, which differs
/// from the host's root if the configuration or the class names one.
pub fn look_up(
    class: &DeviceClass,
    wanted: EditSelection<'_>,
    host: &dyn HostView,
) -> Result<FoundClass, LookUpError> {
    let mut inventory = devices(class, host);
    inventory.paths = find_paths(&inventory, wanted.paths, host);
    // If the driver is not loaded, its attributes are unknown, and the paths of its files cannot
    // be filled in.
    if inventory.no_driver.is_some() {
        let edits = FoundEdits::default();
        return Ok(FoundClass { inventory, edits });
    }
    let attributes = &inventory.host_attributes;
    let failed = |error| LookUpError::Edits {
        class: class.name.clone(),
        error,
    };
    let root = driver_root(class, attributes)?;
    let root = root.map(|path| {
        let opened = open_root(host, &path);
        opened.map_err(|error| LookUpError::DriverRoot {
            class: class.name.clone(),
            path,
            error,
        })
    });
    let root = root.transpose()?;
    let driver = match &root {
        Some((view, path)) => DriverRoot {
            view: &**view,
            path,
        },
        None => DriverRoot::of_host(host),
    };
    let edits = edits::edits(class, wanted, attributes, host, driver);
    let edits = edits.map_err(failed)?;
    Ok(FoundClass { inventory, edits })
}

/// Finds the devices to which paths of the host lead.
fn find_paths(
    inventory: &Inventory,
    paths: &[PathBuf],
    host: &dyn HostView,
) -> Vec<(PathBuf, NamedByPath)> {
    if paths.is_empty() {
        return Vec::new();
    }
    let requestable = inventory.devices.iter().chain(&inventory.divided);
    let nodes = NodePaths::new(requestable, host);
    let paths = paths.iter();
    paths.map(|path| (path.clone(), nodes.find(path))).collect()
}

/// Finds the devices of a class, and the additional nodes and the kernel's lists of devices that a
/// container with the default capabilities of the class gets. Libraries and files are not looked
/// up. `paths` are paths on the host by which devices may be requested.
pub fn look_up_nodes(
    class: &DeviceClass,
    paths: &[PathBuf],
    host: &dyn HostView,
) -> Result<FoundClass, LookUpError> {
    let mut inventory = devices(class, host);
    inventory.paths = find_paths(&inventory, paths, host);
    let mut edits = FoundEdits::default();
    if inventory.no_driver.is_none() {
        let capabilities = class.spec.request.capabilities_by_default();
        let attributes = &inventory.host_attributes;
        let failed = |error| LookUpError::Edits {
            class: class.name.clone(),
            error,
        };
        let nodes = edits::control_nodes(class, &capabilities, attributes, host);
        edits.nodes = nodes.map_err(failed)?;
        let masks = edits::find_device_lists(class, &capabilities, attributes, host);
        edits.masks = masks.map_err(failed)?;
    }
    Ok(FoundClass { inventory, edits })
}

/// Returns the reason why the hook would refuse every container with a device of the class and the
/// default capabilities: the host lacks a node, library or file that is not optional. Returns `None`
/// if nothing is missing, or if the host has no device of the class.
pub fn missing(class: &DeviceClass, host: &dyn HostView) -> Option<String> {
    let capabilities = class.spec.request.capabilities_by_default();
    match look_up(class, (&capabilities).into(), host) {
        Ok(found) if found.inventory.devices.is_empty() => None,
        Ok(found) => found.edits.unusable_reasons().next().map(str::to_owned),
        Err(error) => Some(error.to_string()),
    }
}

/// Opens a driver root. Also returns its path without links.
fn open_root<'a>(
    host: &'a dyn HostView,
    path: &Path,
) -> io::Result<(Box<dyn HostView + 'a>, PathBuf)> {
    let view = host.driver_root(path)?;
    let place = host.place(path).map_err(io::Error::other)?;
    Ok((view, place.map_or_else(|| path.into(), |place| place.path)))
}

/// Fills in the path of the driver root. Returns `None` if the driver root is the host's root.
fn driver_root(
    class: &DeviceClass,
    attributes: &Attributes,
) -> Result<Option<PathBuf>, LookUpError> {
    let template = class.spec.driver_root.as_ref();
    let filled = template.map(|template| template.fill(attributes));
    filled.transpose().map_err(|error| LookUpError::Template {
        class: class.name.clone(),
        error,
    })
}
