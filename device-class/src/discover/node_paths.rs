//! Finds the devices that a path of the host names: the path is a device node, or a link that
//! leads to one.

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
    Devices(Vec<DeviceId>),
    /// The path leads to no node of a device. The text is the reason, for people.
    Nothing(String),
}

/// An index of the nodes of devices by their paths on the host.
pub(super) struct NodePaths<'a> {
    host: &'a dyn HostView,
    /// Two paths of each node with the id of its device: the path in the class, and the path
    /// with links resolved.
    users: Vec<(PathBuf, DeviceId)>,
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
                for path in places.into_iter().flatten() {
                    paths.users.push((path, device.id.clone()));
                }
            }
        }
        paths
    }

    /// Finds the devices of the node at `path`, following links. A path on which another user
    /// than root can create links names no device.
    pub(super) fn find(&self, path: &Path) -> NamedByPath {
        let users = self.find_users(path);
        if !users.is_empty() {
            return NamedByPath::Devices(users);
        }
        let node = present(path, false, "a device node", self.host, |place| {
            matches!(place.entry, Entry::Device(_)).then_some(place.path)
        });
        match node {
            Presence::Found(node) => match self.find_users(&node) {
                users if !users.is_empty() => NamedByPath::Devices(users),
                _ if node == path => NamedByPath::Nothing("it is a node of none of them".into()),
                _ => NamedByPath::Nothing(format!(
                    "it leads to {}, which is a node of none of them",
                    node.display()
                )),
            },
            Presence::Optional => NamedByPath::Nothing("the host does not have it".into()),
            Presence::Unfit(reason) => NamedByPath::Nothing(reason),
        }
    }

    /// Returns the devices of a node, each once. The linear search compares texts, which is fast
    /// enough for all paths of the longest request.
    fn find_users(&self, node: &Path) -> Vec<DeviceId> {
        let users = self.users.iter();
        let users = users.filter(|(path, _)| path.as_os_str() == node.as_os_str());
        let mut ids: Vec<DeviceId> = users.map(|(_, id)| id.clone()).collect();
        ids.dedup();
        ids
    }
}
