//! The paths in the container that a request chooses for device nodes. The request names a device
//! by a symbolic link of the host, or writes a path after the name of the device.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use device_class::DeviceClass;
use device_class::discover::{Device, FoundNode, Inventory, PathTarget, parse_dev_path};
use device_class::name::DeviceId;
use serde::{Deserialize, Serialize};

use super::cdi_name::split_cdi_kind;
use super::list::DeviceListItem;
use super::names::{RequestNames, ResolvedItem};
use super::{RequestError, Selection};

/// The maximum length in bytes of a path in the container. The kernel accepts 4095 bytes.
const MAX_PATH_BYTES: usize = 1024;

/// The names in /dev that no requested path may replace, because every container has these files
/// and programs rely on them. They are the default devices of the OCI runtime specification
/// (config-linux), and the mounts of engines.
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

/// The path in the container that a request chooses for a device's nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestedNodePath {
    /// The nodes have their default paths, which the class file determines.
    #[serde(rename = "usual")]
    DefaultPath,
    /// The nodes have their default paths. In addition, the container gets a symbolic link to one
    /// of the nodes, at the path of the host's link.
    Link {
        #[serde(rename = "path")]
        link_path: PathBuf,
        /// The path of the node on the host.
        #[serde(rename = "node")]
        host_path: PathBuf,
    },
    /// One node of the device has the path that the request sets. The other nodes have their
    /// default paths.
    #[serde(rename = "at")]
    ContainerPath {
        #[serde(rename = "path")]
        container_path: PathBuf,
        /// The path of the node on the host. `None` means that the device has only this node.
        #[serde(rename = "node")]
        host_path: Option<PathBuf>,
    },
}

/// Returns an error unless the container path of an item is a plain path below /dev that does not
/// replace a file of every container, such as `/dev/null`. Only the text is checked, without access
/// to the host's files.
pub(super) fn check_container_path(item: &DeviceListItem) -> Result<(), RequestError> {
    let Some(path) = &item.container_path else {
        return Ok(());
    };
    let refuse = |reason| {
        Err(RequestError::InvalidContainerPath {
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
    if !is_normalized(path) {
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

/// Returns whether a path is absolute and normalized: it has no `.`, no `..` and no superfluous
/// slash.
fn is_normalized(path: &Path) -> bool {
    let mut components = path.components();
    let begins_at_root = components.next() == Some(Component::RootDir);
    let has_only_names = components.all(|component| matches!(component, Component::Normal(_)));
    let normalized_path: PathBuf = path.components().collect();
    begins_at_root && has_only_names && normalized_path.as_os_str() == path.as_os_str()
}

/// Returns the error for an item that sets one container path but stands for several nodes.
pub(super) fn several_nodes_error(item: &DeviceListItem, meaning: String) -> RequestError {
    let path = item.container_path.as_deref().unwrap_or(Path::new(""));
    RequestError::SeveralNodesForPath {
        item: item.to_name_text(),
        path: path.to_string_lossy().into_owned(),
        meaning,
    }
}

impl Selection {
    /// Returns an error if an item has a container path. `requester` names the party that cannot
    /// choose such paths, for the error message.
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

    /// Returns the paths in the container that the request chooses for device nodes, by device id.
    /// A device is in the result if the request names it by a symbolic link of the host, or sets a
    /// path in the container for it. The nodes of all other devices have their default paths.
    ///
    /// # Errors
    /// Returns an error if an item sets one container path for several nodes.
    pub fn find_node_paths(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> Result<BTreeMap<DeviceId, Vec<RequestedNodePath>>, RequestError> {
        let mut node_paths: BTreeMap<DeviceId, Vec<RequestedNodePath>> = BTreeMap::new();
        let Selection::Items(items) = self else {
            return Ok(node_paths);
        };
        let has_no_path =
            |item: &DeviceListItem| item.container_path.is_none() && !item.text.contains("/dev/");
        if items.iter().all(has_no_path) {
            return Ok(node_paths);
        }
        let names = RequestNames::new(class, inventory);
        for item in items {
            // An item with an error is skipped here, because `choose_devices` resolves the item as
            // well and reports the error.
            let positions = match names.resolve_item(item) {
                Ok(ResolvedItem::Devices(positions)) => positions,
                Ok(ResolvedItem::Range(_)) if item.container_path.is_some() => {
                    let meaning = "a range of devices".to_owned();
                    return Err(several_nodes_error(item, meaning));
                }
                Ok(ResolvedItem::Range(_)) | Err(_) => continue,
            };
            let (_, text) = split_cdi_kind(item, &class.spec);
            let path = parse_dev_path(text);
            let single_device = names.find_single_device(&positions);
            let Some(container_path) = &item.container_path else {
                for device in positions.select_devices(inventory) {
                    let link = path.and_then(|path| find_link_to_node(path, &names));
                    let node_path = link.unwrap_or(RequestedNodePath::DefaultPath);
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
            let requested_node = match path.and_then(|path| names.find_path_target(path)) {
                Some(PathTarget::Devices { node_path, .. }) => Some(node_path.clone()),
                _ => None,
            };
            let host_path = match (requested_node, device.nodes.as_slice()) {
                // If the device has only one node, its host path is not stored. So the node keeps
                // its container path even if its name on the host changes later.
                (_, [] | [_]) => None,
                (Some(node), _) => Some(node),
                (None, nodes) => {
                    let host_paths = nodes
                        .iter()
                        .map(|node| node.host_path.display().to_string());
                    let paths: Vec<String> = host_paths.collect();
                    let meaning = format!("a device with the nodes {}", paths.join(", "));
                    return Err(several_nodes_error(item, meaning));
                }
            };
            let node_path = RequestedNodePath::ContainerPath {
                container_path: container_path.clone(),
                host_path,
            };
            node_paths
                .entry(device.id.clone())
                .or_default()
                .push(node_path);
        }
        // The result has only devices with at least one path that is not the default one.
        node_paths.retain(|_, device_paths| {
            device_paths
                .iter()
                .any(|path| *path != RequestedNodePath::DefaultPath)
        });
        Ok(node_paths)
    }
}

/// Returns the symbolic link that the container gets if a request names a device by the host path
/// `path`. Returns `None` if `path` is the node itself, or is not normalized.
fn find_link_to_node(path: &Path, names: &RequestNames<'_>) -> Option<RequestedNodePath> {
    match names.find_path_target(path) {
        Some(PathTarget::Devices { node_path, .. }) if node_path != path && is_normalized(path) => {
            Some(RequestedNodePath::Link {
                link_path: path.to_owned(),
                host_path: node_path.clone(),
            })
        }
        _ => None,
    }
}

impl RequestedNodePath {
    /// Returns the nodes that a container gets for one node of a device: one for each container
    /// path in `requested_paths`. `node` is the node on the host.
    pub(crate) fn list_container_nodes(
        requested_paths: &[Self],
        device: &Device,
        node: &FoundNode,
    ) -> Vec<FoundNode> {
        let matches_node = |host_path: &Option<PathBuf>| match host_path {
            Some(host_path) => *host_path == node.host_path,
            None => device.nodes.len() == 1,
        };
        let mut container_paths = Vec::new();
        let mut links = node.links.clone();
        let mut has_default_path = requested_paths.is_empty();
        for requested_path in requested_paths {
            match requested_path {
                RequestedNodePath::DefaultPath => has_default_path = true,
                RequestedNodePath::Link {
                    link_path,
                    host_path,
                } => {
                    has_default_path = true;
                    let is_new = *link_path != node.container_path && !links.contains(link_path);
                    if *host_path == node.host_path && is_new {
                        links.push(link_path.clone());
                    }
                }
                RequestedNodePath::ContainerPath {
                    container_path,
                    host_path,
                } if matches_node(host_path) => {
                    container_paths.push(container_path.clone());
                }
                // This path is for another node of the device.
                RequestedNodePath::ContainerPath { .. } => {}
            }
        }
        if has_default_path || container_paths.is_empty() {
            container_paths.insert(0, node.container_path.clone());
        }
        let nodes = container_paths
            .into_iter()
            .zip(0..)
            .map(|(container, index)| FoundNode {
                container_path: container,
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
