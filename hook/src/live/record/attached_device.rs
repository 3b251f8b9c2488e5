//! A device in the attachment record of a container.

use std::path::Path;

use device_class::name::{ClassName, DeviceId, DeviceRef};
use injection_plan::plan::{GivenBy, StepUser};
use injection_plan::request::{DeviceList, Item, RequestedPlace, quote};
use serde::{Deserialize, Serialize};

use crate::live::record::device_text;
use crate::oci::{AttachRequest, CdiGrant};

/// A device of a container: one that a user attached, or a followed one that the hook gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachedDevice {
    pub(crate) class: ClassName,
    /// The device's id.
    #[serde(deserialize_with = "device_text::id::deserialize")]
    pub(crate) device: DeviceId,
    #[serde(rename = "asked")]
    pub(crate) given_by: GivenBy,
    /// Whether the device was attached although it is not healthy.
    pub(crate) forced: bool,
    /// The alias or the path by which the device was requested, as a request has it. The device
    /// that comes back is the one with this name. `None` means that it is the one with the id.
    #[serde(
        default,
        with = "device_text::name",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) name: Option<Item>,
    /// The paths that the request chose for the device's nodes. It is empty if they have their
    /// usual paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) places: Vec<RequestedPlace>,
    /// Whether the container got the device after its start, for which it had waited. Unlike a device
    /// of its start, such a device can be detached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) late: bool,
}

impl AttachedDevice {
    /// Whether `detach` may take the device away.
    pub(crate) fn is_detachable(&self) -> bool {
        self.given_by.is_user() || self.late
    }

    pub(crate) fn device_ref(&self) -> DeviceRef {
        DeviceRef::new(&self.class, &self.device)
    }

    /// Returns the id for messages, or the name while the record has no id of the device.
    pub(crate) fn label(&self) -> String {
        match &self.name {
            Some(name) if device_text::substitute_id(name).as_ref() == Some(&self.device) => {
                name.name_text()
            }
            _ => self.device.to_string(),
        }
    }

    /// Adds the places at which another item of the request wants the device's nodes.
    pub(in crate::live) fn add_places(&mut self, places: &[RequestedPlace]) {
        for place in places {
            if self.places.is_empty() {
                self.places.push(RequestedPlace::Usual);
            }
            if !self.places.contains(place) {
                self.places.push(place.clone());
            }
        }
    }

    /// Whether the device was requested by this name, as text or in quotes.
    pub(in crate::live) fn has_name(&self, name: &str) -> bool {
        let known = self.name.as_ref().map(Item::name_text);
        known.is_some_and(|known| known == name || known == quote(name))
    }

    /// Returns the request for the device, wherever it is plugged in now, with the paths where the
    /// container has its nodes.
    pub(in crate::live) fn to_request(&self) -> DeviceList {
        self.build_request(&self.requested_name(), |_| true)
    }

    /// Returns the alias or the path by which the device was requested, or its id.
    pub(in crate::live) fn requested_name(&self) -> Item {
        self.name.clone().unwrap_or_else(|| self.quoted_id())
    }

    /// Returns the request for the device by its id, with the paths where the container has its
    /// nodes. A path of the host is included only if `leads_to` returns that it leads to the device
    /// now.
    pub(in crate::live) fn to_request_by_id(&self, leads_to: impl Fn(&Path) -> bool) -> DeviceList {
        self.build_request(&self.quoted_id(), leads_to)
    }

    fn build_request(&self, name: &Item, leads_to: impl Fn(&Path) -> bool) -> DeviceList {
        let mut items = Vec::new();
        for place in &self.places {
            match place {
                RequestedPlace::Usual => items.push(name.clone()),
                RequestedPlace::Link { path, .. } if leads_to(path) => {
                    items.push(Item::quoted(&path.to_string_lossy()));
                }
                RequestedPlace::Link { .. } => items.push(name.clone()),
                RequestedPlace::At { path, node: None } => {
                    items.push(name.clone().at_path(path));
                }
                RequestedPlace::At {
                    path,
                    node: Some(node),
                } if leads_to(node) => {
                    items.push(Item::quoted(&node.to_string_lossy()).at_path(path));
                }
                RequestedPlace::At { .. } => {}
            }
        }
        if items.is_empty() {
            items.push(name.clone());
        }
        DeviceList::from_items(items)
    }

    /// Returns the paths of the host by which the device was requested.
    pub(in crate::live) fn requested_paths(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().filter_map(|place| match place {
            RequestedPlace::Link { path, .. } => Some(path.as_path()),
            RequestedPlace::At { node, .. } => node.as_deref(),
            RequestedPlace::Usual => None,
        })
    }

    /// Returns the id in quotes: without them, one that looks like an index would name another
    /// device once its own is unplugged.
    fn quoted_id(&self) -> Item {
        Item::quoted(self.device.as_str())
    }

    /// Returns the device as a grant for a plan, by this request.
    pub(in crate::live) fn to_grant(&self, request: DeviceList) -> AttachRequest {
        AttachRequest {
            grant: CdiGrant {
                class: self.class.clone(),
                devices: request,
                claim: None,
            },
            forced: self.forced,
        }
    }

    /// Whether `user` is the device or its class.
    pub(in crate::live) fn matches_user(&self, user: &StepUser) -> bool {
        match user {
            StepUser::Device(device) => (&device.class, &device.id) == (&self.class, &self.device),
            StepUser::Class(class) => *class == self.class,
        }
    }

    /// Whether the device or its class is one of the users.
    pub(in crate::live) fn is_needed_by_any(&self, users: &[StepUser]) -> bool {
        users.iter().any(|user| self.matches_user(user))
    }
}
