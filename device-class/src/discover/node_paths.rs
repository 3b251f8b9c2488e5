//! Finds devices by a path on the host from a container's request. The path is a device node, or a
//! symbolic link to one.

use std::path::{Path, PathBuf};

use super::paths::look_up_path;
use super::{Device, PathLookup};
use crate::host::{Entry, HostView};
use crate::name::DeviceId;

/// The prefix of a path in a container's list of requested devices. No device name begins with it.
const DEV_PREFIX: &str = "/dev/";

/// The maximum number of devices that a message lists for a directory.
const MAX_LISTED_DEVICES: usize = 8;

/// Returns `text` as a path if it begins with `/dev/`, such as `/dev/bus/usb/001/004`. `text` is
/// one entry in a container's list of requested devices. Any other text is the name of a device.
pub fn parse_dev_path(text: &str) -> Option<&Path> {
    text.starts_with(DEV_PREFIX).then_some(Path::new(text))
}

/// The result of looking up a path by which a container requests devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathTarget {
    /// The path leads to a device node. These devices have the node.
    Devices {
        ids: Vec<DeviceId>,
        /// The path of the node in the class file. The requested path is this path or a link to it.
        node_path: PathBuf,
    },
    /// The path does not exist on the host. The text is a message for users.
    Absent(String),
    /// The path does not lead to a node of a device of the class. The text tells users where it
    /// leads.
    NoDevice(String),
}

/// The device nodes of a class by their paths on the host. With it, a container can request a
/// device by a path instead of a name.
pub(super) struct NodePaths<'a> {
    host: &'a dyn HostView,
    /// There are two entries for each node: one with its path in the class file, and one with the
    /// same path after its symbolic links are resolved.
    entries: Vec<DevicePath>,
    /// The symbolic links to nodes that the class file lists, each with its device. They are used
    /// only for messages, if a container requests a directory.
    links: Vec<(PathBuf, DeviceId)>,
}

/// A path of a device node, and the device to which the node belongs.
struct DevicePath {
    path: PathBuf,
    /// The path of the node in the class file. It is `path`, or a symbolic link to `path`.
    node_path: PathBuf,
    id: DeviceId,
}

impl<'a> NodePaths<'a> {
    pub(super) fn new<'d>(
        devices: impl IntoIterator<Item = &'d Device>,
        host: &'a dyn HostView,
    ) -> Self {
        let mut paths = Self {
            host,
            entries: Vec::new(),
            links: Vec::new(),
        };
        for device in devices {
            for node in &device.nodes {
                let host_file = host.find_trusted_file(&node.host_path).ok().flatten();
                let node_paths = [
                    Some(node.host_path.clone()),
                    host_file.map(|host_file| host_file.path),
                ];
                let entries = node_paths.into_iter().flatten().map(|path| DevicePath {
                    path,
                    node_path: node.host_path.clone(),
                    id: device.id.clone(),
                });
                paths.entries.extend(entries);
                let links = node.links.iter();
                paths
                    .links
                    .extend(links.map(|link| (link.clone(), device.id.clone())));
            }
        }
        paths
    }

    /// Finds the devices that have the node to which `path` leads. Follows symbolic links. Finds no
    /// device if a user other than root could have created a link on the path.
    pub(super) fn find(&self, path: &Path) -> PathTarget {
        if let Some(devices) = self.find_by_exact_path(path) {
            return devices;
        }
        let node = look_up_path(path, false, "a device node", self.host, |host_file| {
            matches!(host_file.entry, Entry::Device(_)).then_some(host_file.path)
        });
        match node {
            PathLookup::Found(node) => match self.find_by_exact_path(&node) {
                Some(devices) => devices,
                None => {
                    let subject = if node == path {
                        "it is".to_owned()
                    } else {
                        format!("it leads to {}, which is", node.display())
                    };
                    PathTarget::NoDevice(format!(
                        "{subject} a node of none of them: `boathook list {}` shows the class that has \
                         it, or how to write one",
                        node.display()
                    ))
                }
            },
            PathLookup::OptionalAbsent => PathTarget::Absent("the host does not have it".into()),
            PathLookup::Unusable(reason)
                if matches!(self.host.find_trusted_file(path), Ok(None)) =>
            {
                PathTarget::Absent(reason)
            }
            PathLookup::Unusable(reason) => {
                let devices = self.list_devices_below(path);
                PathTarget::NoDevice(if devices.is_empty() {
                    reason
                } else {
                    format!("{reason}; name the devices in it, {devices}, or request `all`")
                })
            }
        }
    }

    /// Returns the ids of the devices that have a node or a link below `directory`, as text for a
    /// message. Lists at most [`MAX_LISTED_DEVICES`] ids, and then `and others`.
    fn list_devices_below(&self, directory: &Path) -> String {
        let mut ids: Vec<&str> = Vec::new();
        let entries = self.entries.iter().map(|entry| (&entry.path, &entry.id));
        let links = self.links.iter().map(|(path, id)| (path, id));
        for (path, id) in entries.chain(links) {
            let id = id.as_str();
            if path.starts_with(directory) && !ids.contains(&id) {
                ids.push(id);
            }
            if ids.len() > MAX_LISTED_DEVICES {
                ids[MAX_LISTED_DEVICES] = "and others";
                break;
            }
        }
        ids.join(", ")
    }

    /// Returns the devices that have a node at exactly this path. The search is linear, because a
    /// request has only a few paths.
    fn find_by_exact_path(&self, path: &Path) -> Option<PathTarget> {
        let entries = self.entries.iter();
        let entries = entries.filter(|entry| entry.path.as_os_str() == path.as_os_str());
        let (mut ids, mut node_paths) = (Vec::new(), Vec::new());
        for entry in entries {
            ids.push(entry.id.clone());
            node_paths.push(entry.node_path.clone());
        }
        ids.dedup();
        let node_path = node_paths.into_iter().next()?;
        Some(PathTarget::Devices { ids, node_path })
    }
}
