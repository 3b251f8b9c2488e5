//! The paths of device nodes in the container that a request chooses, by a symbolic link of the host
//! or by a path after the name of a device.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use device_class::DeviceClass;
use device_class::discover::{Device, FoundNode, Inventory, PathTarget, as_path};
use device_class::name::DeviceId;
use serde::{Deserialize, Serialize};

use super::list::Item;
use super::names::{RequestNames, ResolvedItem, split_kind};
use super::{RequestError, Selection};

/// The maximum length in bytes of a path in the container. The kernel accepts 4095 bytes.
const MAX_PATH_BYTES: usize = 1024;

/// The entries of /dev that every container has, which no requested path may replace, because
/// programs rely on them: the default devices of the OCI runtime specification (config-linux), and
/// the mounts that engines make.
const RUNTIME_DEV_ENTRIES: [&str; 17] = [
    "console",
    "core",
    "fd",
    "full",
    "hugepages",
    "mqueue",
    "null",
    "ptmx",
    "pts",
    "random",
    "shm",
    "stderr",
    "stdin",
    "stdout",
    "tty",
    "urandom",
    "zero",
];

/// The path in the container that a request chooses for the nodes of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestedNodePath {
    /// The nodes have their usual paths.
    Usual,
    /// The nodes have their usual paths, and the container gets the link `path` of the host as well,
    /// which leads to one of them.
    Link {
        path: PathBuf,
        /// The path of the node on the host.
        node: PathBuf,
    },
    /// The request chooses the path in the container of one node. The other nodes of the device
    /// have their usual paths.
    #[serde(rename = "at")]
    ContainerPath {
        path: PathBuf,
        /// The path of the node on the host. `None` means that the device has only one node.
        node: Option<PathBuf>,
    },
}

/// Checks the path in the container of an item by its text alone, without the files of the host.
pub(super) fn check_container_path(item: &Item) -> Result<(), RequestError> {
    let Some(path) = &item.container_path else {
        return Ok(());
    };
    let refuse = |reason| {
        Err(RequestError::BadContainerPath {
            path: path.to_string_lossy().into_owned(),
            reason,
        })
    };
    let text = path.to_str().unwrap_or_default();
    let access = text.rsplit_once(':').map_or("", |(_, access)| access);
    if text.contains(":/")
        || (1..=3).contains(&access.len()) && access.chars().all(|c| "rwm".contains(c))
    {
        return Err(RequestError::ContainerPath {
            item: format!("{}:{text}", item.to_name_text()),
            host: item.to_name_text(),
        });
    }
    if item.text.is_empty() {
        return refuse("there is no device before it");
    }
    if text.len() > MAX_PATH_BYTES {
        return refuse("it is too long");
    }
    if text.chars().any(char::is_control) {
        return refuse("it has control characters");
    }
    if !is_plain(path) {
        return refuse(
            "it is not a plain path below /dev, without `.`, `..` and a slash at its end",
        );
    }
    let first = path.iter().nth(2).unwrap_or_default();
    if RUNTIME_DEV_ENTRIES
        .iter()
        .any(|name| OsStr::new(name) == first)
    {
        return refuse("each container has something of its own there");
    }
    Ok(())
}

/// Returns whether a path is absolute, has only plain components, and has no `.`, `..` or extra
/// slash.
fn is_plain(path: &Path) -> bool {
    let mut components = path.components();
    let begins_at_root = components.next() == Some(Component::RootDir);
    let has_plain_components =
        components.all(|component| matches!(component, Component::Normal(_)));
    let normalized_path: PathBuf = path.components().collect();
    begins_at_root && has_plain_components && normalized_path.as_os_str() == path.as_os_str()
}

/// Returns the error for an item that has one path in the container and means several nodes.
pub(super) fn several_nodes_error(item: &Item, meaning: String) -> RequestError {
    let path = item.container_path.as_deref().unwrap_or(Path::new(""));
    RequestError::SeveralNodesForPath {
        item: item.to_name_text(),
        path: path.to_string_lossy().into_owned(),
        meaning,
    }
}

impl Selection {
    /// Returns an error if an item has a path in the container. `requester` is the party that cannot
    /// respect such a path, as text for the message.
    pub(crate) fn check_no_container_path(
        &self,
        requester: &'static str,
    ) -> Result<(), RequestError> {
        let Selection::Items(items) = self else {
            return Ok(());
        };
        let items = items.iter();
        let mut item_paths = items.filter_map(|item| Some((item, item.container_path.as_deref()?)));
        let Some((item, path)) = item_paths.next() else {
            return Ok(());
        };
        Err(RequestError::UnsupportedContainerPath {
            item: item.to_name_text(),
            path: path.to_string_lossy().into_owned(),
            requester,
        })
    }

    /// Returns the node paths that the request chooses, by device. The result has only devices that
    /// the request names by a link of the host or with a path in the container. The nodes of other
    /// devices have their usual paths.
    ///
    /// # Errors
    /// Returns an error if an item with one path in the container means several nodes.
    pub fn find_node_paths(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> Result<BTreeMap<DeviceId, Vec<RequestedNodePath>>, RequestError> {
        let mut node_paths: BTreeMap<DeviceId, Vec<RequestedNodePath>> = BTreeMap::new();
        let Selection::Items(items) = self else {
            return Ok(node_paths);
        };
        let is_plain_name =
            |item: &Item| item.container_path.is_none() && !item.text.contains("/dev/");
        if items.iter().all(is_plain_name) {
            return Ok(node_paths);
        }
        let names = RequestNames::new(class, inventory);
        for item in items {
            // An item with an error is skipped, because `choose_devices` resolves it as well and reports the
            // error.
            let positions = match names.resolve(item) {
                Ok(ResolvedItem::Devices(positions)) => positions,
                Ok(ResolvedItem::Range(_)) if item.container_path.is_some() => {
                    let meaning = "a range of devices".to_owned();
                    return Err(several_nodes_error(item, meaning));
                }
                Ok(ResolvedItem::Range(_)) | Err(_) => continue,
            };
            let (_, text) = split_kind(item, &class.spec);
            let path = as_path(text);
            let single_device = names.find_single(&positions);
            let Some(container_path) = &item.container_path else {
                for device in positions.devices_in(inventory) {
                    let link = path.and_then(|path| find_link_to_node(path, &names));
                    let node_path = link.unwrap_or(RequestedNodePath::Usual);
                    node_paths
                        .entry(device.id.clone())
                        .or_default()
                        .push(node_path);
                }
                continue;
            };
            let Some(device) = single_device else {
                return Err(several_nodes_error(item, "several devices".to_owned()));
            };
            let node = match path.and_then(|path| names.find_node(path)) {
                Some(PathTarget::Devices { node, .. }) => Some(node.clone()),
                _ => None,
            };
            let node = match (node, device.nodes.as_slice()) {
                // A single node is not recorded by its path, so that it keeps its path in the
                // container if the host gives it another name.
                (_, [] | [_]) => None,
                (Some(node), _) => Some(node),
                (None, nodes) => {
                    let paths = nodes.iter().map(|node| node.host.display().to_string());
                    let paths: Vec<String> = paths.collect();
                    let meaning = format!("a device with the nodes {}", paths.join(", "));
                    return Err(several_nodes_error(item, meaning));
                }
            };
            let path = container_path.clone();
            let node_path = RequestedNodePath::ContainerPath { path, node };
            node_paths
                .entry(device.id.clone())
                .or_default()
                .push(node_path);
        }
        // A device that is requested only by its name has its usual paths.
        node_paths.retain(|_, device_paths| {
            device_paths
                .iter()
                .any(|path| *path != RequestedNodePath::Usual)
        });
        Ok(node_paths)
    }
}

/// Returns the link that the container gets for a device that is requested by `path`. Returns
/// `None` if the path is not a link, but the node itself.
fn find_link_to_node(path: &Path, names: &RequestNames<'_>) -> Option<RequestedNodePath> {
    match names.find_node(path) {
        Some(PathTarget::Devices { node, .. }) if node != path && is_plain(path) => {
            Some(RequestedNodePath::Link {
                path: path.to_owned(),
                node: node.clone(),
            })
        }
        _ => None,
    }
}

impl RequestedNodePath {
    /// Returns the nodes that a container gets for one node of a device, with the paths and links of
    /// `requested_paths`: one node for each path.
    pub(crate) fn list_container_nodes(
        requested_paths: &[Self],
        device: &Device,
        node: &FoundNode,
    ) -> Vec<FoundNode> {
        let is_for_node = |host_path: &Option<PathBuf>| match host_path {
            Some(host_path) => *host_path == node.host,
            None => device.nodes.len() == 1,
        };
        let mut container_paths = Vec::new();
        let mut links = node.links.clone();
        let mut has_usual_path = requested_paths.is_empty();
        for requested_path in requested_paths {
            match requested_path {
                RequestedNodePath::Usual => has_usual_path = true,
                RequestedNodePath::Link {
                    path,
                    node: link_target,
                } => {
                    has_usual_path = true;
                    if *link_target == node.host && *path != node.container && !links.contains(path)
                    {
                        links.push(path.clone());
                    }
                }
                RequestedNodePath::ContainerPath {
                    path,
                    node: host_path,
                } if is_for_node(host_path) => {
                    container_paths.push(path.clone());
                }
                // The path is for another node of the device.
                RequestedNodePath::ContainerPath { .. } => {}
            }
        }
        if has_usual_path || container_paths.is_empty() {
            container_paths.insert(0, node.container.clone());
        }
        let nodes = container_paths
            .into_iter()
            .zip(0..)
            .map(|(container, index)| FoundNode {
                container,
                links: if index == 0 {
                    links.clone()
                } else {
                    Vec::new()
                },
                ..node.clone()
            });
        nodes.collect()
    }
}
