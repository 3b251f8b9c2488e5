//! The id, the nodes and the properties of a device (`[device]`).

use std::collections::BTreeMap;

use serde::Deserialize;

#[cfg(test)]
use super::schema;
use super::{Directory, File, HealthCheck, Links, NetDevice, Node, UnmaskedPath};
use crate::name::EnvName;
use crate::template::Template;

/// # `[device]`
///
/// The id, the nodes and the properties of a device. The values are templates that use the
/// attributes of the device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "device"))]
pub struct DeviceSpec {
    /// The stable id, which should not change at a reboot. If the id is longer than 63 characters,
    /// or has characters that the kubelet does not accept, it is shortened and a hash is appended.
    pub id: Template,
    /// The number by which users know the device. Devices are sorted by it. Without `index` and
    /// `order`, devices are sorted by id and numbered from 0.
    pub index: Option<Template>,
    /// Instead of `index`: a value by which the devices are sorted. They are then numbered from 0.
    pub order: Option<Template>,
    /// Other names of the device that a request may use. If several devices have the same alias, it
    /// means all of them. `all`, `none` and `void` cannot be aliases.
    #[serde(default)]
    pub aliases: Vec<Template>,
    /// A path in sysfs. The NUMA node is read from the file `numa_node` in this directory, or in
    /// the nearest directory above it.
    pub numa: Option<Template>,
    /// A value that is the same for devices that belong together, for example on one board. These
    /// devices are a group.
    pub group: Option<Template>,
    /// A value that must be the same for all devices of a resource. Devices for which it is empty
    /// are not compared. If the values differ, the plugin reports all devices of the resource as
    /// unhealthy, because a container could not choose among them.
    pub uniform: Option<Template>,
    /// Direct connections between devices.
    pub links: Option<Links>,
    /// Checks that must pass for a device to be healthy.
    #[serde(default)]
    pub health: Vec<HealthCheck>,
    /// The nodes of the device: paths or tables.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOrTable<Node>>"))]
    pub nodes: Vec<Node>,
    /// The network interfaces of the device, which are moved into the container: a path or a table.
    #[cfg_attr(test, schemars(with = "Option<schema::TextOrTable<NetDevice>>"))]
    pub netdev: Option<NetDevice>,
    /// Files and sockets that a container gets with the device: paths or tables.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOrTable<File>>"))]
    pub files: Vec<File>,
    /// Directories that a container gets with the device: paths or tables.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOrTable<Directory>>"))]
    pub directories: Vec<Directory>,
    /// Templates for files and directories in masked directories that are visible to a container
    /// with the device.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "Vec<schema::TextOrTable<UnmaskedPath>>"))]
    pub unmask: Vec<UnmaskedPath>,
    /// Templates for environment variables that a container gets with the device. The plugin sets
    /// them or, outside Kubernetes, `boathook-runtime`; a hook cannot set variables. A variable
    /// that the container's configuration already sets is not changed. The plugin sets the request
    /// variable to the ids of the devices, unless the request variable is here. The empty text `""`
    /// sets no variable: with it a class leaves out a variable of the class that it extends.
    #[serde(default)]
    pub env: BTreeMap<EnvName, Template>,
}
