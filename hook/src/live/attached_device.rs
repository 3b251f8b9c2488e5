//! A device in the attachment record of a container.

use injection_plan::plan::{GivenBy, device_key};
use serde::{Deserialize, Serialize};

use crate::oci::{Attached, CdiGrant};

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
}

impl AttachedDevice {
    /// Returns the text that stands for the device in lists of users.
    pub(crate) fn key(&self) -> String {
        device_key(&self.class, &self.device)
    }

    /// Returns the text by which a request means the device, wherever it is plugged in now.
    pub(super) fn to_request(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.quoted_id())
    }

    /// Returns the id in quotes: without them, one that looks like an index would name another
    /// device once its own is unplugged.
    pub(super) fn quoted_id(&self) -> String {
        format!("\"{}\"", self.device)
    }

    /// Returns the device as a grant for a plan, requested by this text.
    pub(super) fn to_grant(&self, request: String) -> Option<Attached> {
        Some(Attached {
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
