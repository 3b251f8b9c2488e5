//! The paths in the container that a request names: links of the host, and paths for nodes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use device_class::DeviceClass;
use device_class::discover::{Device, FoundNode, Inventory, NamedByPath, as_path};
use device_class::name::DeviceId;
use serde::{Deserialize, Serialize};

use super::list::Item;
use super::names::{Meaning, RequestNames, split_kind};
use super::{RequestError, Selection};

/// The longest path in the container, in bytes. The kernel takes paths of 4095 bytes.
const MAX_PATH: usize = 1024;

/// The nodes and directories below /dev that every container has (OCI runtime specification,
/// config-linux, "Default Devices"; the mounts that engines make). Programs rely on them.
const OF_RUNTIME: [&str; 17] = [
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

/// One way in which a request names a device: it says where the container has the device's node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestedPlace {
    /// The nodes have their usual paths.
    Usual,
    /// The nodes have their usual paths, and this link of the host leads to one of them.
    Link {
        path: PathBuf,
        /// The path of the node on the host.
        node: PathBuf,
    },
    /// A node has this path in the container.
    At {
        path: PathBuf,
        /// The path of the node on the host. `None` means the only node of the device.
        node: Option<PathBuf>,
    },
}

/// Checks the container path of an item. No files of the host are needed for this.
pub(super) fn check_path(item: &Item) -> Result<(), RequestError> {
    let Some(path) = &item.container_path else {
        return Ok(());
    };
    let refused = |reason| {
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
            item: format!("{}:{text}", item.name_text()),
            host: item.name_text(),
        });
    }
    if item.text.is_empty() {
        return refused("there is no device before it");
    }
    if text.len() > MAX_PATH {
        return refused("it is too long");
    }
    if text.chars().any(char::is_control) {
        return refused("it has control characters");
    }
    if !is_plain(path) {
        return refused(
            "it is not a plain path below /dev, without `.`, `..` and a slash at its end",
        );
    }
    let first = path.iter().nth(2).unwrap_or_default();
    if OF_RUNTIME.iter().any(|name| OsStr::new(name) == first) {
        return refused("each container has something of its own there");
    }
    Ok(())
}

/// Whether a path has plain components alone, and is written as such.
fn is_plain(path: &Path) -> bool {
    let mut components = path.components();
    let begins_at_root = components.next() == Some(Component::RootDir);
    let is_plain = components.all(|it| matches!(it, Component::Normal(_)));
    let written: PathBuf = path.components().collect();
    begins_at_root && is_plain && written.as_os_str() == path.as_os_str()
}

/// Returns the error of an item that has a path in the container and means more than one node.
pub(super) fn several(item: &Item, meant: String) -> RequestError {
    let path = item.container_path.as_deref().unwrap_or(Path::new(""));
    RequestError::SeveralForPath {
        item: item.name_text(),
        path: path.to_string_lossy().into_owned(),
        meant,
    }
}

impl Selection {
    /// Returns an error if an item has a path in the container. `whose` is the party that decides
    /// the paths of the request's devices, as text.
    pub(crate) fn check_no_path(&self, requester: &'static str) -> Result<(), RequestError> {
        let Selection::These(items) = self else {
            return Ok(());
        };
        let placed = items.iter();
        let mut placed = placed.filter_map(|item| Some((item, item.container_path.as_deref()?)));
        let Some((item, path)) = placed.next() else {
            return Ok(());
        };
        Err(RequestError::UnkeptContainerPath {
            item: item.name_text(),
            path: path.to_string_lossy().into_owned(),
            requester,
        })
    }

    /// Returns where the request wants the nodes of the devices that it names by a link of the
    /// host or with a path in the container. Other devices are left out: their nodes have their
    /// usual paths.
    ///
    /// # Errors
    /// Returns an error if a path in the container is for several nodes.
    pub fn places(
        &self,
        class: &DeviceClass,
        inventory: &Inventory,
    ) -> Result<BTreeMap<DeviceId, Vec<RequestedPlace>>, RequestError> {
        let mut places: BTreeMap<DeviceId, Vec<RequestedPlace>> = BTreeMap::new();
        let Selection::These(items) = self else {
            return Ok(places);
        };
        let is_plain_name =
            |item: &Item| item.container_path.is_none() && !item.text.contains("/dev/");
        if items.iter().all(is_plain_name) {
            return Ok(places);
        }
        let names = RequestNames::new(class, inventory);
        for item in items {
            // The choice of the devices resolves the same item, and reports its errors.
            let meant = match names.resolve(item) {
                Ok(Meaning::Devices(meant)) => meant,
                Ok(Meaning::Range(_)) if item.container_path.is_some() => {
                    let meant = "a range of devices".to_owned();
                    return Err(several(item, meant));
                }
                Ok(Meaning::Range(_)) | Err(_) => continue,
            };
            let (_, text) = split_kind(item, &class.spec);
            let path = as_path(text);
            let single = names.find_single(&meant);
            let Some(place) = &item.container_path else {
                for device in meant.find_in(inventory) {
                    let link = path.and_then(|path| link_to_node(path, &names));
                    let place = link.unwrap_or(RequestedPlace::Usual);
                    places.entry(device.id.clone()).or_default().push(place);
                }
                continue;
            };
            let Some(device) = single else {
                return Err(several(item, "several devices".to_owned()));
            };
            let node = match path.and_then(|path| names.find_node(path)) {
                Some(NamedByPath::Devices { node, .. }) => Some(node.clone()),
                _ => None,
            };
            let node = match (node, device.nodes.as_slice()) {
                // The only node keeps its place if it comes back under another name.
                (_, [] | [_]) => None,
                (Some(node), _) => Some(node),
                (None, nodes) => {
                    let paths = nodes.iter().map(|node| node.host.display().to_string());
                    let paths: Vec<String> = paths.collect();
                    let meant = format!("a device with the nodes {}", paths.join(", "));
                    return Err(several(item, meant));
                }
            };
            let path = place.clone();
            let place = RequestedPlace::At { path, node };
            places.entry(device.id.clone()).or_default().push(place);
        }
        // A device that is requested by its name alone has its usual paths.
        places.retain(|_, places| places.iter().any(|it| *it != RequestedPlace::Usual));
        Ok(places)
    }
}

/// Returns the place of a device that is requested by a path, if the path is a link to the node.
fn link_to_node(path: &Path, names: &RequestNames<'_>) -> Option<RequestedPlace> {
    match names.find_node(path) {
        Some(NamedByPath::Devices { node, .. }) if node != path && is_plain(path) => {
            Some(RequestedPlace::Link {
                path: path.to_owned(),
                node: node.clone(),
            })
        }
        _ => None,
    }
}

impl RequestedPlace {
    /// Returns the nodes that a container gets for a node of a device, which is requested at these
    /// places.
    pub(crate) fn place_node(places: &[Self], device: &Device, node: &FoundNode) -> Vec<FoundNode> {
        let is_of_node = |named: &Option<PathBuf>| match named {
            Some(named) => *named == node.host,
            None => device.nodes.len() == 1,
        };
        let mut placed = Vec::new();
        let mut links = node.links.clone();
        let mut is_usual = places.is_empty();
        for place in places {
            match place {
                RequestedPlace::Usual => is_usual = true,
                RequestedPlace::Link { path, node: linked } => {
                    is_usual = true;
                    if *linked == node.host && *path != node.container && !links.contains(path) {
                        links.push(path.clone());
                    }
                }
                RequestedPlace::At { path, node: named } if is_of_node(named) => {
                    placed.push(path.clone());
                }
                // The device's other nodes have their usual paths.
                RequestedPlace::At { .. } => {}
            }
        }
        if is_usual || placed.is_empty() {
            placed.insert(0, node.container.clone());
        }
        let nodes = placed
            .into_iter()
            .zip(0..)
            .map(|(container, position)| FoundNode {
                container,
                links: if position == 0 {
                    links.clone()
                } else {
                    Vec::new()
                },
                ..node.clone()
            });
        nodes.collect()
    }
}
