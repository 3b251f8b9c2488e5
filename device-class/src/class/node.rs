//! Device nodes that a container gets.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

use super::path_template::PathTemplate;
use crate::device::Access;
use crate::name::{CapabilityName, GroupName};
use crate::pattern::PathPattern;
use crate::template::Template;

/// The path of the file in which the kernel lists the drivers of devices with their major numbers.
pub const PROC_DEVICES_PATH: &str = "/proc/devices";

/// # `nodes`
///
/// A device node. Short form: its path. The node in the container has the owner and mode of the
/// host's node, unless `mode`, `gid` or `group` is set.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "node"))]
pub struct Node {
    /// The path on the host, by template.
    pub path: PathTemplate,
    /// Paths that are used instead of `path` if the host has them, by template.
    #[serde(default, rename = "prefer")]
    pub preferred_paths: Vec<PathTemplate>,
    /// A pattern of host paths. The container gets one node for each matching path, and templates
    /// may use the captures of the match. It is not an error if nothing matches.
    #[serde(rename = "for_each")]
    pub path_pattern: Option<PathPattern>,
    /// Symbolic links that lead to the node, by template, such as those of udev
    /// in `/dev/dri/by-path`. The container gets those that the host has.
    #[serde(default)]
    pub links: Vec<PathTemplate>,
    /// The path in the container, if it differs from `path`.
    pub container_path: Option<PathTemplate>,
    /// The capability that a container must have to get the node.
    pub capability: Option<CapabilityName>,
    /// The access that the device rule allows: a combination of `r`, `w` and `m`. Default `rw`.
    #[serde(default)]
    pub access: Access,
    /// The mode of the node in the container, in octal, such as `0660`. With `mode`, `gid` or
    /// `group` a new node is created in the container, and the host's node is not mounted.
    pub mode: Option<NodeMode>,
    /// The number of the node's group in the container.
    pub gid: Option<GroupId>,
    /// In place of `gid`: the name of a group in the host's /etc/group, such as `dialout`, whose
    /// number is looked up on each host. Groups of other sources, such as LDAP, are not known.
    pub group: Option<GroupName>,
    /// Whether the node may be missing on the host.
    #[serde(default)]
    pub optional: bool,
    /// The driver's name in /proc/devices, as a template. While the driver is loaded, the node is
    /// required even if it is optional.
    pub driver: Option<Template>,
    /// The function that fails in a container without the node, such as `rendering`. If the node is
    /// optional, missing and not made, `boathook list`, `check`, `doctor` and the plugin report
    /// that.
    pub needed_for: Option<String>,
    /// Whether `driver` is looked up in the list of block devices in /proc/devices, instead of the
    /// list of character devices.
    #[serde(default, rename = "block")]
    pub is_block_device: bool,
    /// The node that the hook creates in the container if the host has no such node and the driver
    /// is loaded.
    #[serde(rename = "make")]
    pub node_creation: Option<NodeCreation>,
    /// The action that the administrator should take if the node is missing; appended to the
    /// message.
    pub advice: Option<String>,
}

/// # `make`
///
/// A node that the hook creates in the container's own `/dev` while the host does
/// not have the node. Its major number is that of `driver` in /proc/devices. A container
/// with a user namespace, in which no node can be created, is refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "make"))]
pub struct NodeCreation {
    /// The minor number of the node, by template.
    pub minor: Template,
    /// The mode of the created node, in octal. Default: `mode` of the entry in `nodes`; if it has
    /// none, `0660`.
    pub mode: Option<NodeMode>,
    /// The number of the created node's group. Default: `gid` or `group` of the entry in `nodes`;
    /// if it has neither, 0.
    pub gid: Option<GroupId>,
    /// In place of `gid`: the name of a group in the host's /etc/group.
    pub group: Option<GroupName>,
}

/// The number of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(pub u32);

/// The implementation is not derived, so that the error for a text in place of a number names the
/// keys that accept the name of a group.
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

/// The group of a node in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    Id(u32),
    /// The name of a group of the host.
    Name(GroupName),
}

impl Group {
    /// Returns the group that one of the two keys sets. Validation refuses both keys at once.
    fn from_keys(gid: Option<GroupId>, name: Option<&GroupName>) -> Option<Self> {
        let name = name.map(|name| Group::Name(name.clone()));
        gid.map(|GroupId(number)| Group::Id(number)).or(name)
    }
}

impl Node {
    /// Returns the group of the node in the container, if the class sets it.
    pub(crate) fn configured_group(&self) -> Option<Group> {
        Group::from_keys(self.gid, self.group.as_ref())
    }

    /// Returns the group of the node that `make` creates.
    pub(crate) fn created_node_group(&self, node_creation: &NodeCreation) -> Option<Group> {
        Group::from_keys(node_creation.gid, node_creation.group.as_ref())
            .or_else(|| self.configured_group())
    }

    /// Returns whether the node or its `make` sets a group by its name, which is looked up on the
    /// host.
    pub(crate) fn has_named_group(&self) -> bool {
        let group_name = self
            .node_creation
            .as_ref()
            .and_then(|node_creation| node_creation.group.as_ref());
        self.group.as_ref().or(group_name).is_some()
    }

    /// Returns whether the node or its `make` sets both the number and the name of a group, which
    /// is an error.
    pub(crate) fn has_two_groups(&self) -> bool {
        let node_creation = self.node_creation.as_ref();
        let creation_has_two_groups = node_creation.is_some_and(|node_creation| {
            node_creation.gid.is_some() && node_creation.group.is_some()
        });
        creation_has_two_groups || self.gid.is_some() && self.group.is_some()
    }
}

/// The permission bits of a node, written in octal: `0660`.
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
