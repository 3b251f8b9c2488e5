//! Looks up a class on a host: its devices, and the nodes, libraries and files of `[[edits]]` in
//! the class file.

use std::io;
use std::path::{Path, PathBuf};

use super::driver_root::DriverRoot;
use super::edits::{self, EditSelection};
use super::node_paths::{NodePaths, PathTarget};
use super::{DeviceError, FoundEdits, Inventory, find_devices, source, udev_links};
use crate::class::{DeviceClass, PathTemplateError};
use crate::host::HostView;
use crate::name::ClassName;
use crate::template::Attributes;

/// The devices of a class on a host, and the edits (nodes, libraries and files) for one container.
#[derive(Debug, Clone)]
pub struct FoundClass {
    pub inventory: Inventory,
    /// The nodes, libraries and files of `[[edits]]`, which a container gets once, regardless of
    /// the number of its devices.
    pub edits: FoundEdits,
}

/// The reason why the nodes, libraries and files of a class's `[[edits]]` cannot be looked up.
#[derive(Debug, thiserror::Error)]
pub enum LookUpError {
    /// The template `driver_root` of the class cannot be filled in.
    #[error("class {class}: driver_root: {error}")]
    Template {
        class: ClassName,
        error: PathTemplateError,
    },
    /// The directory that `driver_root` names does not exist or cannot be opened.
    #[error("class {class}: driver_root {} cannot be opened: {error}", path.display())]
    DriverRoot {
        class: ClassName,
        path: PathBuf,
        error: io::Error,
    },
    /// A template cannot be filled in, or ld.so.cache cannot be used.
    #[error("class {class}: {error}")]
    Edits {
        class: ClassName,
        error: DeviceError,
    },
}

/// Finds the devices of a class, and the edits (nodes, libraries and files) for a container with
/// this selection. Nodes are looked up on the host. Libraries and files are looked up in the driver
/// root, which is the host's root unless the class file or config.toml names another directory.
pub fn look_up_class(
    class: &DeviceClass,
    selection: EditSelection<'_>,
    host: &dyn HostView,
) -> Result<FoundClass, LookUpError> {
    let mut inventory = find_devices(class, host);
    inventory.paths = look_up_device_paths(&inventory, selection.paths, host);
    udev_links::add_device_links(class, &mut inventory, selection.requested_devices, host);
    // Without the driver, the attributes that are read from it are unknown. So the templates for
    // the paths of its files cannot be filled in, and the container gets none of them.
    if inventory.missing_driver_message.is_some() {
        let edits = FoundEdits::default();
        return Ok(FoundClass { inventory, edits });
    }
    let attributes = &inventory.host_attributes;
    let to_error = |error| LookUpError::Edits {
        class: class.name.clone(),
        error,
    };
    let root = fill_driver_root(class, attributes, host)?;
    let root = root.map(|path| {
        let result = open_root(host, &path);
        result.map_err(|error| LookUpError::DriverRoot {
            class: class.name.clone(),
            path,
            error,
        })
    });
    let root = root.transpose()?;
    let driver_root = match &root {
        Some((view, path)) => DriverRoot {
            view: &**view,
            path,
        },
        None => DriverRoot::from_host(host),
    };
    let edits = edits::find_edits(class, selection, attributes, host, driver_root);
    let mut edits = edits.map_err(to_error)?;
    udev_links::add_node_links(&mut edits.nodes, host);
    Ok(FoundClass { inventory, edits })
}

/// Looks up device paths from a container's request, such as `/dev/npu0`. Returns each path with
/// the result of its look-up, such as the devices to which the path leads.
fn look_up_device_paths(
    inventory: &Inventory,
    paths: &[PathBuf],
    host: &dyn HostView,
) -> Vec<(PathBuf, PathTarget)> {
    if paths.is_empty() {
        return Vec::new();
    }
    let requestable_devices = inventory
        .devices
        .iter()
        .chain(&inventory.partitioned_devices);
    let nodes = NodePaths::new(requestable_devices, host);
    let paths = paths.iter();
    paths.map(|path| (path.clone(), nodes.find(path))).collect()
}

/// Finds only those parts of a class that can change while a container runs: the devices, the nodes
/// of `[[edits]]`, and the masks over /sys/class and /sys/bus. The nodes and masks are those for a
/// container with the class's default capabilities. `paths` are the host paths by which containers
/// have requested devices.
pub fn look_up_nodes(
    class: &DeviceClass,
    paths: &[PathBuf],
    host: &dyn HostView,
) -> Result<FoundClass, LookUpError> {
    let mut inventory = find_devices(class, host);
    inventory.paths = look_up_device_paths(&inventory, paths, host);
    udev_links::add_device_links(class, &mut inventory, None, host);
    let mut edits = FoundEdits::default();
    if inventory.missing_driver_message.is_none() {
        let capabilities = class.spec.request.find_default_capabilities();
        let attributes = &inventory.host_attributes;
        let to_error = |error| LookUpError::Edits {
            class: class.name.clone(),
            error,
        };
        let nodes = edits::find_control_nodes(class, &capabilities, attributes, host);
        edits.nodes = nodes.map_err(to_error)?;
        udev_links::add_node_links(&mut edits.nodes, host);
        let masks = edits::find_symlink_directory_masks(class, &capabilities, attributes, host);
        edits.masks = masks.map_err(to_error)?;
    }
    Ok(FoundClass { inventory, edits })
}

/// Returns the reason why the hook would refuse every container that has a device of the class and
/// the default capabilities, for example a missing library. Returns `None` if every required node,
/// library and file can be used, or if the host has no device of the class.
pub fn find_refusal_reason(class: &DeviceClass, host: &dyn HostView) -> Option<String> {
    let capabilities = class.spec.request.find_default_capabilities();
    match look_up_class(class, (&capabilities).into(), host) {
        Ok(found_class) if found_class.inventory.devices.is_empty() => None,
        Ok(found_class) => found_class
            .edits
            .unusable_reasons()
            .next()
            .map(str::to_owned),
        Err(error) => Some(error.to_string()),
    }
}

/// Opens a driver root. Returns a [`HostView`] of its files, and its path with symbolic links
/// resolved.
fn open_root<'a>(
    host: &'a dyn HostView,
    path: &Path,
) -> io::Result<(Box<dyn HostView + 'a>, PathBuf)> {
    let view = host.open_driver_root(path)?;
    let host_file = host.find_trusted_file(path).map_err(io::Error::other)?;
    Ok((
        view,
        host_file.map_or_else(|| path.into(), |host_file| host_file.path),
    ))
}

/// Fills in the path of the driver root. Returns `None` if the driver root is the host's root
/// directory: the class names no other directory, or the host does not meet the conditions for it.
fn fill_driver_root(
    class: &DeviceClass,
    attributes: &Attributes,
    host: &dyn HostView,
) -> Result<Option<PathBuf>, LookUpError> {
    let mut conditions = class.spec.driver_root_conditions.iter();
    if !conditions.all(|condition| source::is_condition_met(condition, attributes, host)) {
        return Ok(None);
    }
    let template = class.spec.driver_root.as_ref();
    let result = template.map(|template| template.fill(attributes));
    result.transpose().map_err(|error| LookUpError::Template {
        class: class.name.clone(),
        error,
    })
}
