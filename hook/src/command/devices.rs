//! The devices in the output of `list` and `class check`.

use std::io::{self, Write};

use device_class::DeviceClass;
use device_class::discover::{Device, Health, Presence};
use injection_plan::request::{RequestNames, WrittenName};
use serde::Serialize;

use super::holders::Holder;
use super::output::Style;

/// The column of the table that says how containers request a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestColumn {
    /// The resource, which pods request.
    Resource,
    /// The variable, which other containers set.
    Variable,
}

/// A device in the output of `boathook list --json`.
#[derive(PartialEq, Eq, Serialize)]
pub(super) struct ListedDevice {
    pub(super) class: String,
    pub(super) id: String,
    /// The variable by which containers request it.
    pub(super) variable: String,
    pub(super) resource: String,
    index: Option<String>,
    pub(super) healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The other names by which a container may request the device, quoted as in a request. Such
    /// a name may mean several devices.
    pub(super) aliases: Vec<String>,
    /// The aliases that mean this device only.
    #[serde(skip)]
    pub(super) own_aliases: Vec<String>,
    numa: Option<u32>,
    pub(super) nodes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<u16>,
    /// The containers that hold the device. `None` means that the holders are unknown, as on a
    /// host without the kubelet's checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) holders: Option<Vec<Holder>>,
}

impl ListedDevice {
    /// Creates the entry of a device. Aliases that a request could not use are left out.
    pub(super) fn new(class: &DeviceClass, device: &Device, names: &RequestNames<'_>) -> Self {
        let aliases = device.aliases.iter();
        let aliases = aliases.filter_map(|name| names.write_name(device, name));
        let mut aliases: Vec<WrittenName> = aliases.filter(is_printable).collect();
        aliases.dedup();
        let own_aliases = aliases.iter().filter(|name| name.is_own);
        let index = device.index.as_ref();
        let present_nodes = device
            .nodes
            .iter()
            .filter(|node| matches!(node.number, Presence::Found(_)));
        ListedDevice {
            class: class.name.to_string(),
            id: device.id.to_string(),
            variable: class.spec.request.env.to_string(),
            resource: device.resource.to_string(),
            index: index
                .filter(|index| {
                    let index_name = names.write_name(device, index);
                    index_name.is_some_and(|name| name.is_own || device.part_of.is_some())
                })
                .cloned(),
            healthy: device.health.is_healthy(),
            reason: match &device.health {
                Health::Healthy => None,
                Health::Unhealthy { reason } => Some(reason.clone()),
            },
            own_aliases: own_aliases.map(|name| name.text.clone()).collect(),
            aliases: aliases.iter().map(|name| name.text.clone()).collect(),
            numa: device.numa,
            nodes: present_nodes
                .map(|node| node.host.display().to_string())
                .collect(),
            replicas: device.replicas,
            holders: None,
        }
    }

    /// Returns the text of the table cell with the containers that hold the device.
    fn holder(&self) -> String {
        let holders: Vec<_> = self.holders.iter().flatten().map(Holder::text).collect();
        match holders.is_empty() {
            true => "-".to_owned(),
            false => holders.join(", "),
        }
    }

    fn row(&self, column: RequestColumn) -> [String; 7] {
        let dash = || "-".to_owned();
        let nodes = self.nodes.join(" ");
        [
            self.class.clone(),
            self.id.clone(),
            self.index.clone().unwrap_or_else(dash),
            match column {
                RequestColumn::Resource => self.resource.clone(),
                RequestColumn::Variable => self.variable.clone(),
            },
            match self.healthy {
                true => "healthy".to_owned(),
                false => "unhealthy".to_owned(),
            },
            self.numa.map_or_else(dash, |node| node.to_string()),
            if nodes.is_empty() { dash() } else { nodes },
        ]
    }
}

/// Returns whether a name is printed unchanged, so that a user can copy it into a request. A name
/// of more than 255 bytes, the maximum length of a file name, is not worth copying.
fn is_printable(name: &WrittenName) -> bool {
    const MAX_BYTES: usize = 255;
    name.text.len() <= MAX_BYTES && printable::line(&name.text) == name.text
}

/// Prints devices with their resources.
pub(super) fn print_table(
    style: Style,
    out: &mut impl Write,
    devices: &[ListedDevice],
) -> io::Result<()> {
    print_table_with(RequestColumn::Resource, style, out, devices)
}

pub(super) fn print_table_with(
    column: RequestColumn,
    style: Style,
    out: &mut impl Write,
    devices: &[ListedDevice],
) -> io::Result<()> {
    let request = match column {
        RequestColumn::Resource => "RESOURCE",
        RequestColumn::Variable => "VARIABLE",
    };
    let head = [
        "CLASS", "DEVICE", "INDEX", request, "HEALTH", "NUMA", "NODES",
    ];
    let rows: Vec<_> = [head.map(str::to_owned)]
        .into_iter()
        .chain(devices.iter().map(|device| device.row(column)))
        .collect();
    if devices.iter().all(|device| device.holders.is_none()) {
        return style.table(out, &rows);
    }
    let holders = ["HOLDER".to_owned()]
        .into_iter()
        .chain(devices.iter().map(ListedDevice::holder));
    let rows: Vec<_> = rows
        .into_iter()
        .zip(holders)
        .map(|([a, b, c, d, e, f, g], holder)| [a, b, c, d, e, f, g, holder])
        .collect();
    style.table(out, &rows)
}
