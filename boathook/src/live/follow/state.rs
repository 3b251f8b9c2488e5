//! The state that `boathook follow` keeps from one pass to the next. A child process runs the pass
//! and returns the new state as text.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};

use device_class::name::{ClassName, DeviceRef};
use hook::attachment::{Announcement, RecordedRule};
use serde::{Deserialize, Serialize};

use crate::live::reconcile::{HostDevice, HostDeviceNode, RemovedDevices};

/// The results of previous passes: which containers were changed, and which changes failed.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct FollowerState {
    /// The digest of each container's state after its last change. The key is the container id. The
    /// states themselves are not kept, because they would need megabytes if many containers have
    /// many devices.
    pub(super) digests: BTreeMap<String, Option<StateDigest>>,
    /// The failed changes, by container id. A value contains the time of the failure, in seconds
    /// since `boathook follow` started, and the error.
    pub(super) failures: BTreeMap<String, (u64, String)>,
    /// The number of passes in which a container was still being started, by container id.
    pub(super) start_attempts: BTreeMap<String, u32>,
    /// True if the last pass found a container that is still being started and cannot be changed
    /// yet. The next pass then begins 100 milliseconds later.
    pub(super) has_starting_container: bool,
    /// True if the rules of a container are revoked, but its nodes are not yet replaced. The next
    /// pass replaces them, without the pause after a failure.
    pub(super) needs_another_pass: bool,
    /// The classes that cannot be used, each with the error, which is logged only once.
    pub(super) unusable_classes: BTreeMap<ClassName, String>,
    /// The error messages about records that cannot be read. Each message is logged only once.
    #[serde(default, rename = "unreadable_records")]
    pub(super) record_errors: BTreeSet<String>,
}

/// The devices and rules of a container. The container must be changed if its state now differs
/// from its state after the last change.
#[derive(Serialize)]
pub(super) struct ContainerState {
    /// The start time of the first process. It distinguishes this container from one that was
    /// started later with the same id.
    pub(super) start_time: u64,
    /// The container's devices that `boathook follow` tracks, each with the device on the host now.
    /// `None` means that the host does not have the device.
    pub(super) followed_devices: Vec<(DeviceRef, Option<HostDevice>)>,
    /// The device nodes that belong to a whole class, and not to one of its devices.
    pub(super) class_nodes: Vec<HostDeviceNode>,
    /// The announcements of each device. `None` means that the class of the device does not have
    /// `announce = true`.
    pub(super) announcements: Vec<Option<Vec<Announcement>>>,
    pub(super) removed_devices: RemovedDevices,
    /// The recorded rules before the change. If another process revokes a rule during the change,
    /// this list is different in the next pass. Without the list, a device that is back by then
    /// would look unchanged.
    pub(super) rules: Vec<RecordedRule>,
}

/// The keyed hash of a [`ContainerState`]. The key is random, so that no container can cause two
/// states with the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StateDigest(u64);

impl ContainerState {
    /// Returns the hash of this state with the key `key`. Returns `None` if a path in the state is
    /// not UTF-8, because such a state cannot be serialized.
    pub(super) fn to_digest(&self, key: &RandomState) -> Option<StateDigest> {
        let text = serde_json::to_string(self).ok()?;
        Some(StateDigest(key.hash_one(text)))
    }
}

impl FollowerState {
    pub(super) fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use device_class::device::DeviceRule;
    use injection_plan::plan::StepOwner;

    use super::*;
    use hook::sys::process::{MAX_ANSWER_BYTES, run_in_child};

    /// Returns the state of a container with this number of devices.
    fn container_with(devices: u32) -> ContainerState {
        let class = "chips".parse().unwrap();
        let device = |id: u32| {
            let id = format!("a-device-with-a-long-serial-number-{id}");
            DeviceRef::new(&class, &id.try_into().unwrap())
        };
        let rule = |id: u32| RecordedRule {
            rule: DeviceRule::parse(&format!("c 10:{id} rw")).unwrap(),
            owners: vec![StepOwner::Device(device(id))],
            host_node: None,
            keeps_spec_access: false,
        };
        ContainerState {
            start_time: 7,
            followed_devices: (0..devices).map(|id| (device(id), None)).collect(),
            class_nodes: Vec::new(),
            announcements: vec![None; devices as usize],
            removed_devices: RemovedDevices::default(),
            rules: (0..devices).map(rule).collect(),
        }
    }

    #[test]
    fn the_state_of_500_containers_with_256_devices_comes_back_from_a_child() {
        let key = RandomState::new();
        let text = serde_json::to_string(&container_with(256)).unwrap();
        assert!(
            500 * text.len() > 16 * MAX_ANSWER_BYTES,
            "the states themselves are too long"
        );
        let answer = run_in_child(Duration::from_secs(60), || {
            let digest = container_with(256).to_digest(&key);
            let ids = (0..500).map(|id| format!("{id:064}"));
            let digests = ids.map(|id| (id, digest)).collect();
            let state = FollowerState {
                digests,
                ..FollowerState::default()
            };
            state.to_text()
        });
        let state = FollowerState::parse(&answer.unwrap().expect("the whole state")).unwrap();
        assert_eq!(state.digests.len(), 500);
        let is_same_file = |devices| {
            let digest = container_with(devices).to_digest(&key);
            state.digests.values().all(|it| *it == digest)
        };
        assert!(is_same_file(256));
        assert!(!is_same_file(255));
    }
}
