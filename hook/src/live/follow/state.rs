//! The state that the follower keeps from one look at the containers to the next. A child process
//! looks, and returns the new state as text.

use std::collections::{BTreeMap, BTreeSet};

use device_class::name::{ClassName, DeviceRef};
use serde::{Deserialize, Serialize};

use crate::live::reconcile::{PresentDevice, PresentNode, RemovedDevices};
use crate::live::record::{Announcement, RecordedRule};

#[derive(Default, Serialize, Deserialize)]
pub(super) struct FollowerState {
    /// By container id: what the container needed when it was changed for the last time.
    pub(super) devices: BTreeMap<String, ContainerState>,
    /// By container id: when the last change failed, in seconds since the follower started, and
    /// the error.
    pub(super) failed: BTreeMap<String, (u64, String)>,
    /// By class: why the class cannot be used.
    pub(super) unusable: BTreeMap<ClassName, String>,
    /// The messages for records that cannot be read.
    #[serde(default)]
    pub(super) unreadable: BTreeSet<String>,
}

/// All on which it depends whether a container needs a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ContainerState {
    /// A container with the same id that was started later needs its own change.
    pub(super) start_time: u64,
    /// The followed devices, each with the device as the host has it.
    pub(super) followed: Vec<(DeviceRef, Option<PresentDevice>)>,
    /// The nodes that the classes have for all their devices together.
    pub(super) class_nodes: Vec<PresentNode>,
    /// By device: what is announced of it. `None` means that its class has no `announce`.
    pub(super) announcements: Vec<Option<Vec<Announcement>>>,
    pub(super) removed: RemovedDevices,
    /// The rules that the record had before the change. Another process may revoke a rule while the
    /// change is under way, and the device may be back by the next look: then only the record shows
    /// that the container lacks the rule.
    pub(super) rules: Vec<RecordedRule>,
}

impl FollowerState {
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
