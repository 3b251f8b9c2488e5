//! A device in the attachment record of a container.

use std::path::Path;

use injection_plan::plan::{GivenBy, device_key};
use injection_plan::request::{RequestedPlace, quote};
use serde::{Deserialize, Serialize};

use crate::oci::{AttachRequest, CdiGrant};

/// A device that was attached, or that the hook gave the container and that is followed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachedDevice {
    pub(crate) class: String,
    /// The device's id.
    pub(crate) device: String,
    #[serde(rename = "asked")]
    pub(crate) given_by: GivenBy,
    /// Whether the device was attached although it is not healthy.
    pub(crate) forced: bool,
    /// The alias or the path by which the device was requested, as a request has it. The device
    /// that comes back is the one with this name. `None` means that it is the one with the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The paths that the request chose for the device's nodes. It is empty if they have their
    /// usual paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) places: Vec<RequestedPlace>,
    /// Whether the container was waiting for the device when it started. Unlike a device that it
    /// was started with, such a device can be detached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) late: bool,
}

impl AttachedDevice {
    /// Whether `detach` may take the device away.
    pub(crate) fn is_detachable(&self) -> bool {
        self.given_by.is_user() || self.late
    }

    /// Returns the text that stands for the device in lists of users.
    pub(crate) fn key(&self) -> String {
        device_key(&self.class, &self.device)
    }

    /// Adds the places at which another item of the request wants the device's nodes.
    pub(super) fn add_places(&mut self, places: &[RequestedPlace]) {
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
    pub(super) fn has_name(&self, name: &str) -> bool {
        let mut names = self.name.iter();
        names.any(|known| *known == name || *known == quote(name))
    }

    /// Returns the request that means the device, wherever it is plugged in now, and wants its
    /// nodes where the container has them.
    pub(super) fn to_request(&self) -> String {
        let name = self.name.clone().unwrap_or_else(|| self.quoted_id());
        self.request_by(&name, |_| true)
    }

    /// The same by the device's id. What was requested by a path of the host is included only if
    /// `leads_to` says that the path leads to the device now.
    pub(super) fn to_request_by_id(&self, leads_to: impl Fn(&Path) -> bool) -> String {
        self.request_by(&self.quoted_id(), leads_to)
    }

    fn request_by(&self, name: &str, leads_to: impl Fn(&Path) -> bool) -> String {
        let mut items = Vec::new();
        for place in &self.places {
            match place {
                RequestedPlace::Usual => items.push(name.to_owned()),
                RequestedPlace::Link { path, .. } if leads_to(path) => {
                    items.push(quote(&path.to_string_lossy()));
                }
                RequestedPlace::Link { .. } => items.push(name.to_owned()),
                RequestedPlace::At { path, node: None } => {
                    items.push(format!("{name}:{}", path.display()));
                }
                RequestedPlace::At {
                    path,
                    node: Some(node),
                } if leads_to(node) => {
                    items.push(format!(
                        "{}:{}",
                        quote(&node.to_string_lossy()),
                        path.display()
                    ));
                }
                RequestedPlace::At { .. } => {}
            }
        }
        if items.is_empty() {
            items.push(name.to_owned());
        }
        items.join(",")
    }

    /// Returns the paths of the host by which the device was requested.
    pub(super) fn requested_paths(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().filter_map(|place| match place {
            RequestedPlace::Link { path, .. } => Some(path.as_path()),
            RequestedPlace::At { node, .. } => node.as_deref(),
            RequestedPlace::Usual => None,
        })
    }

    /// Returns the id in quotes: without them, one that looks like an index would name another
    /// device once its own is unplugged.
    fn quoted_id(&self) -> String {
        quote(&self.device)
    }

    /// Returns the device as a grant for a plan, requested by this text.
    pub(super) fn to_grant(&self, request: String) -> Option<AttachRequest> {
        Some(AttachRequest {
            grant: CdiGrant {
                class: self.class.clone().try_into().ok()?,
                device: request,
                claim: None,
            },
            forced: self.forced,
        })
    }

    /// Whether the device or its class is one of the users.
    pub(super) fn is_among(&self, users: &[String]) -> bool {
        users.contains(&self.class) || users.contains(&self.key())
    }
}
