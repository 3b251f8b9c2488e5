//! Prints devices in the output of `boathook list` and `boathook class check`.

use std::io::{self, Write};
use std::path::Path;

use device_class::DeviceClass;
use device_class::discover::{Device, Health, PathLookup};
use host_files::printable;
use injection_plan::request::{self, RequestNames, RequestText, is_usb_port};
use serde::Serialize;

use super::class_kind::ClassKind;
use super::holders::Holder;
use super::output::Style;

/// The column of the device table that says how a container requests the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestColumn {
    /// The resource name, such as `vendor.example/npu`, by which a pod requests the device.
    Resource,
    /// The environment variable by which a container outside of pods requests the device.
    Variable,
}

/// A device as `boathook list --json` prints it.
#[derive(PartialEq, Eq, Serialize)]
pub(super) struct ListedDevice {
    pub(super) class: String,
    pub(super) id: String,
    /// The environment variable, such as `DUMMY_VISIBLE_DEVICES`, that requests the device.
    pub(super) variable: String,
    pub(super) resource: String,
    index: Option<String>,
    #[serde(rename = "healthy")]
    pub(super) is_healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Other names that a container may use to request the device, written as in a request. A name
    /// may belong to several devices.
    pub(super) aliases: Vec<String>,
    /// The names in `aliases` that belong to no other device of the class.
    #[serde(skip)]
    pub(super) unique_aliases: Vec<String>,
    /// The names that belong to no other device and that stay the same when this device is
    /// unplugged and plugged in again.
    #[serde(skip)]
    pub(super) stable_names: Vec<String>,
    #[serde(skip)]
    pub(super) kind: ClassKind,
    /// True if a container may start without the device. `boathook follow` adds the device later.
    #[serde(skip)]
    is_hot_pluggable: bool,
    numa: Option<u32>,
    pub(super) nodes: Vec<String>,
    /// The device's network interfaces, such as `eth1`, that are now in the host's network
    /// namespace.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    net_interfaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<u16>,
    /// The containers that hold the device. `None` means that they are unknown, for example because
    /// the host has no kubelet checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holders: Option<Vec<Holder>>,
}

impl ListedDevice {
    /// Creates the list entry for `device`. Leaves out aliases that cannot be written in a request.
    pub(super) fn new(
        class: &DeviceClass,
        device: &Device,
        request_names: &RequestNames<'_>,
    ) -> Self {
        let all_aliases = device.aliases.iter();
        let written_aliases =
            all_aliases.filter_map(|name| request_names.format_name(device, name));
        let mut aliases: Vec<RequestText> = written_aliases.filter(is_printable).collect();
        aliases.dedup();
        let unique_aliases = aliases.iter().filter(|name| name.is_unique);
        let index = device.index.as_ref();
        let present_nodes = device
            .nodes
            .iter()
            .filter(|node| matches!(node.number, PathLookup::Found(_)));
        let host_interfaces = device
            .net_interfaces
            .iter()
            .flat_map(|interface| &interface.host_interfaces);
        ListedDevice {
            class: class.name.to_string(),
            id: device.id.to_string(),
            variable: class.spec.request.env.to_string(),
            resource: device.resource.to_string(),
            index: index
                .filter(|index| {
                    let index_name = request_names.format_name(device, index);
                    index_name.is_some_and(|name| name.is_unique || device.part_of.is_some())
                })
                .cloned(),
            is_healthy: device.health.is_healthy(),
            reason: match &device.health {
                Health::Healthy => None,
                Health::Unhealthy { reason } => Some(reason.clone()),
            },
            stable_names: find_stable_names(device, request_names, unique_aliases.clone()),
            unique_aliases: unique_aliases.map(|name| name.text.clone()).collect(),
            kind: ClassKind::from_class(class),
            is_hot_pluggable: class.spec.is_followed,
            aliases: aliases.iter().map(|name| name.text.clone()).collect(),
            numa: device.numa,
            nodes: present_nodes
                .map(|node| node.host_path.display().to_string())
                .collect(),
            net_interfaces: host_interfaces
                .map(|interface| interface.name.clone())
                .collect(),
            replicas: device.replicas,
            holders: None,
        }
    }

    /// Returns the recommended value of the environment variable: the id, or a more stable name if
    /// the id depends on the device's port or is the name of its node. If the device is
    /// hot-pluggable, the value lets a container start while the device is unplugged.
    pub(super) fn suggest_request(&self) -> String {
        let mut nodes = self.nodes.iter().map(Path::new);
        let is_node_name = nodes.any(|node| node.file_name() == Some(self.id.as_ref()));
        let stable_names = if self.is_hot_pluggable || is_node_name {
            self.stable_names.as_slice()
        } else {
            &[]
        };
        self.suggest_request_with_name(stable_names.first().unwrap_or(&self.id))
    }

    /// Returns the recommended value of the environment variable if the user knows the device by
    /// the name `name`. A `?` after the name of a hot-pluggable device lets a container start
    /// without it.
    pub(super) fn suggest_request_with_name(&self, name: &str) -> String {
        if self.is_hot_pluggable {
            request::format_awaited_name(name)
        } else {
            name.to_owned()
        }
    }

    /// Returns the table cell with the containers that hold the device, or `-` if there are none.
    fn format_holders(&self) -> String {
        let holders: Vec<_> = self
            .holders
            .iter()
            .flatten()
            .map(Holder::describe)
            .collect();
        if holders.is_empty() {
            "-".to_owned()
        } else {
            holders.join(", ")
        }
    }

    fn to_row(&self, column: RequestColumn) -> [String; 7] {
        let empty_cell = || "-".to_owned();
        let nodes = self.nodes.iter().chain(&self.net_interfaces);
        let nodes = nodes.map(String::as_str).collect::<Vec<_>>().join(" ");
        [
            self.class.clone(),
            self.id.clone(),
            self.index.clone().unwrap_or_else(empty_cell),
            match column {
                RequestColumn::Resource => self.resource.clone(),
                RequestColumn::Variable => self.variable.clone(),
            },
            if self.is_healthy {
                "healthy".to_owned()
            } else {
                "unhealthy".to_owned()
            },
            self.numa.map_or_else(empty_cell, |node| node.to_string()),
            if nodes.is_empty() {
                empty_cell()
            } else {
                nodes
            },
        ]
    }
}

/// Returns whether a user can copy the name from the output into a request: it contains no control
/// characters and has at most 255 bytes.
fn is_printable(name: &RequestText) -> bool {
    const MAX_NAME_BYTES: usize = 255;
    name.text.len() <= MAX_NAME_BYTES && printable::escape_line(&name.text) == name.text
}

pub(super) fn print_table(
    style: Style,
    out: &mut impl Write,
    devices: &[ListedDevice],
) -> io::Result<()> {
    print_table_with_column(RequestColumn::Resource, style, out, devices)
}

pub(super) fn print_table_with_column(
    column: RequestColumn,
    style: Style,
    out: &mut impl Write,
    devices: &[ListedDevice],
) -> io::Result<()> {
    let column_title = match column {
        RequestColumn::Resource => "RESOURCE",
        RequestColumn::Variable => "VARIABLE",
    };
    let title_row = [
        "CLASS",
        "DEVICE",
        "INDEX",
        column_title,
        "HEALTH",
        "NUMA",
        "NODES",
    ];
    let rows: Vec<_> = [title_row.map(str::to_owned)]
        .into_iter()
        .chain(devices.iter().map(|device| device.to_row(column)))
        .collect();
    if devices.iter().all(|device| device.holders.is_none()) {
        return style.write_table(out, &rows);
    }
    let holder_cells = ["HOLDER".to_owned()]
        .into_iter()
        .chain(devices.iter().map(ListedDevice::format_holders));
    let rows: Vec<_> = rows
        .into_iter()
        .zip(holder_cells)
        .map(|([a, b, c, d, e, f, g], holder)| [a, b, c, d, e, f, g, holder])
        .collect();
    style.write_table(out, &rows)
}

/// Returns the names of the device that stay the same when it is plugged in elsewhere, such as a
/// serial number. Names of device nodes are left out, because the kernel numbers them in the order
/// in which devices appear. USB ports, such as 1-2.4, and names from udev that another device may
/// get are left out too.
fn find_stable_names<'a>(
    device: &Device,
    request_names: &RequestNames<'_>,
    names: impl Iterator<Item = &'a RequestText>,
) -> Vec<String> {
    let is_node_name = |name: &str| {
        let mut nodes = device.nodes.iter();
        nodes.any(|node| node.host_path.file_name() == Some(name.as_ref()))
    };
    names
        .filter(|name| !is_own_usb_port(device, name.text.trim_matches('"')))
        .filter(|name| !request_names.may_lose_udev_name(device, name.text.trim_matches('"')))
        .map(|name| name.text.clone())
        .filter(|name| !is_node_name(name))
        .collect()
}

/// Returns whether a name is the USB port of the device, such as 1-2.4. A serial number can have
/// the same form, but it is not part of the device's id.
fn is_own_usb_port(device: &Device, name: &str) -> bool {
    is_usb_port(name) && device.id.as_str().contains(name)
}
