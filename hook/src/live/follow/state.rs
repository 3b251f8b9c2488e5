//! The state that the follower keeps from one look at the containers to the next. A child process
//! looks, and returns the new state as text.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

#[derive(Default, Serialize, Deserialize)]
pub(super) struct FollowerState {
    /// By container id: the devices when the container was changed for the last time.
    pub(super) devices: BTreeMap<String, String>,
    /// By container id: when the last change failed, in seconds since the follower started, and
    /// the error.
    pub(super) failed: BTreeMap<String, (u64, String)>,
    /// By class: why the class cannot be used.
    pub(super) unusable: BTreeMap<String, String>,
    /// The messages for records that cannot be read.
    #[serde(default)]
    pub(super) unreadable: BTreeSet<String>,
}

impl FollowerState {
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}
