//! A device of a container, as the container's attachment record describes it.

use std::path::Path;

use device_class::name::{ClassName, DeviceId, DeviceRef};
use injection_plan::plan::{GrantOrigin, StepOwner};
use injection_plan::request::{DeviceList, DeviceListItem, RequestedNodePath, quote};
use serde::{Deserialize, Serialize};

use crate::attachment::record::device_text;
use crate::oci::{AttachRequest, CdiGrant};

/// A device of a container. Either a user attached it while the container was running, or the hook
/// injected it and `boathook follow` keeps its nodes up to date.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerDevice {
    pub class: ClassName,
    /// The id of the device, which is unique within its class.
    #[serde(
        rename = "device",
        deserialize_with = "device_text::device_id::deserialize"
    )]
    pub device_id: DeviceId,
    #[serde(rename = "asked")]
    pub grant_origin: GrantOrigin,
    /// Whether a user attached the device with `--force`. In this case, the kubelet may not have
    /// allocated the device to the container's pod.
    #[serde(rename = "forced")]
    pub is_forced: bool,
    /// The alias or the path by which the device was requested. When the device is plugged in
    /// again, it is recognized by this name, even if its id has changed. Without a name, it is
    /// recognized by its id.
    #[serde(
        default,
        with = "device_text::name",
        skip_serializing_if = "Option::is_none"
    )]
    pub name: Option<DeviceListItem>,
    /// The paths in the container for the device's nodes, as the request chose them. The list is
    /// empty if the nodes have their default paths.
    #[serde(default, rename = "places", skip_serializing_if = "Vec::is_empty")]
    pub node_paths: Vec<RequestedNodePath>,
    /// Whether the device was requested at the container's start, but was plugged in only later.
    /// Such a device can be detached. A device that was injected at the start cannot.
    #[serde(default, rename = "late", skip_serializing_if = "std::ops::Not::not")]
    pub has_arrived_late: bool,
}

impl ContainerDevice {
    /// Reports whether `boathook detach` may take the device away from the container. A device that
    /// was injected at the container's start stays until the container ends.
    pub fn is_detachable(&self) -> bool {
        self.grant_origin.is_user() || self.has_arrived_late
    }

    /// Returns the reference to the device in plans and records: its class and its id.
    pub fn device_ref(&self) -> DeviceRef {
        DeviceRef::new(&self.class, &self.device_id)
    }

    /// Returns the name of the device for messages. Usually it is the device's id. If another
    /// device has this id now, the record has only a substitute id, and the requested name is
    /// returned.
    pub fn label(&self) -> String {
        match &self.name {
            Some(name)
                if device_text::make_substitute_id(name).as_ref() == Some(&self.device_id) =>
            {
                name.to_name_text()
            }
            _ => self.device_id.to_string(),
        }
    }

    /// Adds paths for the device's nodes, because a request may list the same device several times
    /// with different paths. An empty list stands for the default path, which is then added first.
    /// A path that is already in the list is not added again.
    pub fn add_node_paths(&mut self, node_paths: &[RequestedNodePath]) {
        for node_path in node_paths {
            if self.node_paths.is_empty() {
                self.node_paths.push(RequestedNodePath::DefaultPath);
            }
            if !self.node_paths.contains(node_path) {
                self.node_paths.push(node_path.clone());
            }
        }
    }

    /// Reports whether the device was requested by the name `name`, with or without quotes.
    pub fn has_name(&self, name: &str) -> bool {
        let recorded_name = self.name.as_ref().map(DeviceListItem::to_name_text);
        recorded_name.is_some_and(|name_text| name_text == name || name_text == quote(name))
    }

    /// Returns a device list that requests this device by its requested name, and its nodes at
    /// their paths in the container. The name is valid even if the device is now plugged in at
    /// another port and has another id.
    pub fn to_device_list(&self) -> DeviceList {
        self.build_request(&self.requested_name(), |_| true)
    }

    /// Returns the alias or the path by which the device was requested. Returns its id if there is
    /// no such name.
    pub fn requested_name(&self) -> DeviceListItem {
        self.name.clone().unwrap_or_else(|| self.to_quoted_id())
    }

    /// Returns a device list that requests this device by its id, and its nodes at their paths in
    /// the container. Leaves out a host path if `leads_to_device` returns false for it, because the
    /// path may lead to another device now.
    pub fn to_request_by_id(&self, leads_to_device: impl Fn(&Path) -> bool) -> DeviceList {
        self.build_request(&self.to_quoted_id(), leads_to_device)
    }

    fn build_request(
        &self,
        name: &DeviceListItem,
        leads_to_device: impl Fn(&Path) -> bool,
    ) -> DeviceList {
        let mut items = Vec::new();
        for node_path in &self.node_paths {
            match node_path {
                RequestedNodePath::DefaultPath => items.push(name.clone()),
                RequestedNodePath::Link { link_path, .. } if leads_to_device(link_path) => {
                    items.push(DeviceListItem::from_quoted_name(
                        &link_path.to_string_lossy(),
                    ));
                }
                RequestedNodePath::Link { .. } => items.push(name.clone()),
                RequestedNodePath::ContainerPath {
                    container_path,
                    host_path: None,
                } => {
                    items.push(name.clone().with_container_path(container_path));
                }
                RequestedNodePath::ContainerPath {
                    container_path,
                    host_path: Some(host_path),
                } if leads_to_device(host_path) => {
                    let item = DeviceListItem::from_quoted_name(&host_path.to_string_lossy());
                    items.push(item.with_container_path(container_path));
                }
                RequestedNodePath::ContainerPath { .. } => {}
            }
        }
        if items.is_empty() {
            items.push(name.clone());
        }
        DeviceList::from_items(items)
    }

    /// Returns the host paths by which the device was requested, such as
    /// `/dev/serial/by-id/usb-modem`.
    pub fn requested_paths(&self) -> impl Iterator<Item = &Path> {
        self.node_paths
            .iter()
            .filter_map(|node_path| match node_path {
                RequestedNodePath::Link { link_path, .. } => Some(link_path.as_path()),
                RequestedNodePath::ContainerPath { host_path, .. } => host_path.as_deref(),
                RequestedNodePath::DefaultPath => None,
            })
    }

    /// Returns the id in quotes. Without quotes, an id such as `1` would be an index, which selects
    /// another device after this device is unplugged.
    fn to_quoted_id(&self) -> DeviceListItem {
        DeviceListItem::from_quoted_name(self.device_id.as_str())
    }

    /// Returns a request to attach this device, so that the planner includes the device in a new
    /// plan. `request` is the device list to use, with the device's name and the paths of its
    /// nodes.
    pub fn to_attach_request(&self, request: DeviceList) -> AttachRequest {
        AttachRequest {
            grant: CdiGrant {
                class: self.class.clone(),
                devices: request,
                claim_uid: None,
            },
            is_forced: self.is_forced,
        }
    }

    /// Reports whether `owner`, an owner of an injection step, is this device or its class.
    pub fn matches_owner(&self, owner: &StepOwner) -> bool {
        match owner {
            StepOwner::Device(device) => {
                (&device.class, &device.id) == (&self.class, &self.device_id)
            }
            StepOwner::Class(class) => *class == self.class,
        }
    }

    /// Reports whether the owners of an injection step include this device or its class.
    pub fn matches_any_owner(&self, owners: &[StepOwner]) -> bool {
        owners.iter().any(|owner| self.matches_owner(owner))
    }
}
