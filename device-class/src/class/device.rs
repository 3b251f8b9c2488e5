//! A device's id, nodes and properties (`[device]`).

use std::collections::BTreeMap;

use serde::Deserialize;

#[cfg(test)]
use super::schema;
use super::{Directory, File, HealthCheck, Links, NetDevice, Node, Unmask};
use crate::name::EnvName;
use crate::template::Template;

/// # `[device]`
///
/// A device's id, nodes and properties, by templates over its attributes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "device"))]
pub struct DeviceSpec {
    /// The stable id, which should not change at a reboot. An id of more than
    /// 63 characters, or with characters that the kubelet does not accept, is
    /// shortened and gets a hash.
    pub id: Template,
    /// The device's number, as users know it; devices are sorted by it. Without
    /// `index` and `order`, devices are sorted by id and numbered from 0.
    pub index: Option<Template>,
    /// Instead of an index: devices are sorted by this and numbered from 0.
    pub order: Option<Template>,
    /// Other names that a request may use. A name that several devices share
    /// means all of them; `all`, `none` and `void` are no names.
    #[serde(default)]
    pub aliases: Vec<Template>,
    /// A sysfs path: the NUMA node is read from the first `numa_node` in it or
    /// a directory above it.
    pub numa: Option<Template>,
    /// Devices with the same value form a group, for example on one board.
    pub group: Option<Template>,
    /// A value that all devices of a resource must have in common, by template. An empty value is
    /// equal to every other one. If the values differ, the plugin reports all devices of the
    /// resource as unhealthy, because a container could not choose among them.
    pub uniform: Option<Template>,
    /// Direct connections between devices.
    pub links: Option<Links>,
    /// Checks that must pass for a device to be healthy.
    #[serde(default)]
    pub health: Vec<HealthCheck>,
    /// The device nodes: paths or tables.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOr<Node>>"))]
    pub nodes: Vec<Node>,
    /// The network interfaces of the device, which the container gets: a path or a table.
    #[cfg_attr(test, schemars(with = "Option<schema::TextOr<NetDevice>>"))]
    pub netdev: Option<NetDevice>,
    /// Files and sockets that a container gets with the device: paths or
    /// tables.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOr<File>>"))]
    pub files: Vec<File>,
    /// Directories that a container gets with the device: paths or tables.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOr<Directory>>"))]
    pub directories: Vec<Directory>,
    /// Files and directories of masked directories that a container with the
    /// device sees, by template.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOr<Unmask>>"))]
    pub unmask: Vec<Unmask>,
    /// Additional variables that a container gets with the device, by template:
    /// set by the plugin and, outside Kubernetes, by `boathook-runtime`. A hook
    /// cannot set variables. A variable that the container's configuration sets is
    /// not changed. The plugin sets the request variable to the ids, unless it is here.
    #[serde(default)]
    pub env: BTreeMap<EnvName, Template>,
}
