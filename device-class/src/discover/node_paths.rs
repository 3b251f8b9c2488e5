//! Finds the devices that a request names by a path of the host, which is a device node or a link to
//! one.

use std::path::{Path, PathBuf};

use super::paths::present;
use super::{Device, Presence};
use crate::host::{Entry, HostView};
use crate::name::DeviceId;

/// The prefix that makes a text of a request a path. No device has a name with this prefix.
const DEV: &str = "/dev/";

/// Returns the text as a path if it begins with `/dev/`, and `None` if it names a device.
pub fn as_path(text: &str) -> Option<&Path> {
    text.starts_with(DEV).then_some(Path::new(text))
}

/// The result of looking up a path of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedByPath {
    /// The path leads to a node of these devices.
    Devices {
        ids: Vec<DeviceId>,
        /// The path of the node, as the class has it. The requested path is this one, or a link
        /// that leads to it.
        node: PathBuf,
    },
    /// The host has nothing at this path. The text is a message about that.
    Absent(String),
    /// The path does not lead to a node of a device of the class. The text is a message about that.
    Nothing(String),
}

/// An index of the nodes of devices by their paths on the host.
pub(super) struct NodePaths<'a> {
    host: &'a dyn HostView,
    /// Two paths of each node: the path in the class, and the path with links resolved.
    users: Vec<NodeUser>,
}

/// A path of a node, and the device that has the node.
struct NodeUser {
    path: PathBuf,
    /// The path of the node in the class.
    node: PathBuf,
    id: DeviceId,
}

impl<'a> NodePaths<'a> {
    pub(super) fn new<'d>(
        devices: impl IntoIterator<Item = &'d Device>,
        host: &'a dyn HostView,
    ) -> Self {
        let mut paths = Self {
            host,
            users: Vec::new(),
        };
        for device in devices {
            for node in &device.nodes {
                let place = host.place(&node.host).ok().flatten();
                let places = [Some(node.host.clone()), place.map(|place| place.path)];
                let users = places.into_iter().flatten().map(|path| NodeUser {
                    path,
                    node: node.host.clone(),
                    id: device.id.clone(),
                });
                paths.users.extend(users);
            }
        }
        paths
    }

    /// Finds the devices of the node at `path`, following links. A path on which another user
    /// than root can create links names no device.
    pub(super) fn find(&self, path: &Path) -> NamedByPath {
        if let Some(devices) = self.find_users(path) {
            return devices;
        }
        let node = present(path, false, "a device node", self.host, |place| {
            matches!(place.entry, Entry::Device(_)).then_some(place.path)
        });
        match node {
            Presence::Found(node) => match self.find_users(&node) {
                Some(devices) => devices,
                None if node == path => NamedByPath::Nothing("it is a node of none of them".into()),
                None => NamedByPath::Nothing(format!(
                    "it leads to {}, which is a node of none of them",
                    node.display()
                )),
            },
            Presence::Optional => NamedByPath::Absent("the host does not have it".into()),
            Presence::Unusable(reason) if matches!(self.host.place(path), Ok(None)) => {
                NamedByPath::Absent(reason)
            }
            Presence::Unusable(reason) => NamedByPath::Nothing(reason),
        }
    }

    /// Returns the devices that have a node at exactly this path. A linear search is fast enough,
    /// because the number of paths in a request is bounded.
    fn find_users(&self, path: &Path) -> Option<NamedByPath> {
        let users = self.users.iter();
        let users = users.filter(|user| user.path.as_os_str() == path.as_os_str());
        let (mut ids, mut nodes) = (Vec::new(), Vec::new());
        for user in users {
            ids.push(user.id.clone());
            nodes.push(user.node.clone());
        }
        ids.dedup();
        let node = nodes.into_iter().next()?;
        Some(NamedByPath::Devices { ids, node })
    }
}
