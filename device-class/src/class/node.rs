//! Device nodes that a container gets (`nodes`), such as `/dev/npu0`.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use super::path_template::PathTemplate;
use crate::device::Access;
use crate::name::{CapabilityName, GroupName};
use crate::pattern::PathPattern;
use crate::template::Template;

/// The path of the kernel's list of drivers with their major numbers: a line such as `195 npu`, in
/// one section for character devices and one for block devices.
pub const PROC_DEVICES_PATH: &str = "/proc/devices";

/// # `nodes`
///
/// A device node that the container gets. Short form: its path. The node in the container has the
/// owner and mode of the host's node, unless `mode`, `gid` or `group` is set.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "node"))]
pub struct Node {
    /// A template for the path on the host.
    pub path: PathTemplate,
    /// Templates for paths that are used instead of `path` if they exist on the host.
    #[serde(default, rename = "prefer")]
    pub preferred_paths: Vec<PathTemplate>,
    /// A pattern of host paths. The container gets one node for each matching path; it is not an
    /// error if none matches. Templates may use the attributes that the pattern captures.
    #[serde(rename = "for_each")]
    pub path_pattern: Option<PathPattern>,
    /// Templates for symbolic links to the node, such as those of udev in `/dev/dri/by-path`. The
    /// container gets the links that exist on the host.
    #[serde(default)]
    pub links: Vec<PathTemplate>,
    /// Whether the container also gets all other links to the node that udev has made on the host,
    /// such as those in `/dev/serial/by-id` and those of own rules with `SYMLINK`.
    #[serde(default, rename = "udev_links")]
    pub has_udev_links: bool,
    /// The path in the container, if it differs from `path`.
    pub container_path: Option<PathTemplate>,
    /// Only a container with this capability gets the node.
    pub capability: Option<CapabilityName>,
    /// The operations that the cgroup rule for the node allows: a combination of `r` (read), `w`
    /// (write) and `m` (create a node). Default `rw`.
    #[serde(default)]
    pub access: Access,
    /// The mode of the node in the container, in octal, such as `0660`. If `mode`, `gid` or `group`
    /// is set, or SELinux labels the container, it gets a new node instead of a mount of the host's.
    /// If only `mode` is set, the group of the new node is 0. If only the group is set, its mode is
    /// `0660`.
    pub mode: Option<NodeMode>,
    /// The group id (gid) that owns the node in the container.
    pub gid: Option<GroupId>,
    /// Instead of `gid`: the name of a group in the host's /etc/group, such as `dialout`. Its id is
    /// looked up on each host. Groups of other sources, such as LDAP, are not known.
    pub group: Option<GroupName>,
    /// Whether the node may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// A template for the driver's name in /proc/devices. While the driver is loaded, the node must
    /// exist, even with `optional`.
    pub driver: Option<Template>,
    /// What fails in a container that does not have the node, such as `rendering`. If the node is
    /// optional, missing and not created by `make`, then `boathook list`, `check`, `doctor` and the
    /// plugin report this.
    pub needed_for: Option<String>,
    /// Whether the driver drives block devices, so that `driver` is searched in the list of block
    /// devices in /proc/devices. Default: `driver` is searched in the list of character devices.
    #[serde(default, rename = "block")]
    pub is_block_device: bool,
    /// How the hook creates the node in the container if the host does not have the node although
    /// the driver is loaded.
    #[serde(rename = "make")]
    pub node_creation: Option<NodeCreation>,
    /// The instruction for the administrator if the node is missing. The message ends with this
    /// text.
    pub advice: Option<String>,
}

/// # `make`
///
/// How the hook creates a node in the container's own `/dev` if the host does not have the node.
/// The node's major number is that of `driver` in /proc/devices. In a container with a user
/// namespace no node can be created, so such a container is refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "make"))]
pub struct NodeCreation {
    /// A template for the minor number of the node.
    pub minor: Template,
    /// The mode of the created node, in octal. Default: `mode` of the entry in `nodes`; if it has
    /// none, `0660`.
    pub mode: Option<NodeMode>,
    /// The group id (gid) that owns the created node. Default: `gid` or `group` of the entry in
    /// `nodes`; if it has neither, 0.
    pub gid: Option<GroupId>,
    /// Instead of `gid`: the name of a group in the host's /etc/group.
    pub group: Option<GroupName>,
}

/// The id (gid) of a group, as a number in a class file or in config.toml.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(pub u32);

/// This implementation is written by hand, so that the error for a text in place of the number
/// names the keys that accept the name of a group.
impl<'de> Deserialize<'de> for GroupId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct GroupIdVisitor;

        impl Visitor<'_> for GroupIdVisitor {
            type Value = GroupId;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "the number of a group (for a name use `group`, and in config.toml \
                     `node_group`)",
                )
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<GroupId, E> {
                let number = u32::try_from(number).ok();
                number
                    .map(GroupId)
                    .ok_or_else(|| E::custom("is not the number of a group"))
            }
        }

        deserializer.deserialize_i64(GroupIdVisitor)
    }
}

/// The group that owns a node in a container, as a class file or config.toml names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    Id(u32),
    /// The name of a group in the host's /etc/group, such as `dialout`.
    Name(GroupName),
}

impl Group {
    /// Returns the group that one of the two keys `gid` and `group` sets. Validation refuses a
    /// table with both keys.
    fn from_keys(gid: Option<GroupId>, name: Option<&GroupName>) -> Option<Self> {
        let name = name.map(|name| Group::Name(name.clone()));
        gid.map(|GroupId(number)| Group::Id(number)).or(name)
    }
}

impl Node {
    /// Returns the group that owns the node in the container, or `None` if the class does not set
    /// one.
    pub(crate) fn configured_group(&self) -> Option<Group> {
        Group::from_keys(self.gid, self.group.as_ref())
    }

    /// Returns the group of a node that the hook creates (`make`): the group in `make`, or else the
    /// group of the entry in `nodes`.
    pub(crate) fn created_node_group(&self, node_creation: &NodeCreation) -> Option<Group> {
        Group::from_keys(node_creation.gid, node_creation.group.as_ref())
            .or_else(|| self.configured_group())
    }

    /// Returns whether the node or its `make` has a group name, whose id must be looked up on the
    /// host.
    pub(crate) fn has_named_group(&self) -> bool {
        let group_name = self
            .node_creation
            .as_ref()
            .and_then(|node_creation| node_creation.group.as_ref());
        self.group.as_ref().or(group_name).is_some()
    }

    /// Returns whether the node or its `make` has both a group id and a group name, which is an
    /// error.
    pub(crate) fn has_two_groups(&self) -> bool {
        let node_creation = self.node_creation.as_ref();
        let creation_has_two_groups = node_creation.is_some_and(|node_creation| {
            node_creation.gid.is_some() && node_creation.group.is_some()
        });
        creation_has_two_groups || self.gid.is_some() && self.group.is_some()
    }
}

/// The permission bits of a node. A class file has them as octal text, such as `0660`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeMode(u32);

impl NodeMode {
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl TryFrom<String> for NodeMode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match u32::from_str_radix(&text, 8) {
            Ok(bits @ 0..=0o777) => Ok(NodeMode(bits)),
            _ => Err(format!(
                "mode `{text}` is not an octal number from 0000 to 0777"
            )),
        }
    }
}
