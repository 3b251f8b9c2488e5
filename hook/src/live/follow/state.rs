//! What was seen before. A child looks, and hands it to its parent as a list: the program is
//! smaller than with names.

use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct FollowerState {
    /// By container: its devices when it was last looked at.
    pub(super) devices: BTreeMap<String, String>,
    /// By container: when it could not be changed, in seconds since this began, and why.
    pub(super) failed: BTreeMap<String, (u64, String)>,
    /// By class: why it cannot be used.
    pub(super) unusable: BTreeMap<String, String>,
}

impl FollowerState {
    pub(super) fn text(&self) -> String {
        let list = (&self.devices, &self.failed, &self.unusable);
        serde_json::to_string(&list).unwrap_or_default()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (devices, failed, unusable) = serde_json::from_str(text).ok()?;
        Some(FollowerState {
            devices,
            failed,
            unusable,
        })
    }
}
