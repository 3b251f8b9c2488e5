//! The attachment record of one container: the devices that were attached or are followed, and
//! all that was changed in the container for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use device_class::device::DeviceRule;
use device_class::name::{DeviceId, DeviceRef};
use injection_plan::plan::{InjectionStep, SpecRule, StepUser};
use oci_spec::runtime::LinuxDeviceCgroup;
use serde::{Deserialize, Serialize};

use super::attached_device::AttachedDevice;
use super::awaited_device::AwaitedDevice;
use super::created_file::CreatedFile;
use super::follow::Announcement;
use super::record_form;
use super::recorded_rule::{RecordedRule, rules_of_steps};
use crate::oci::AttachRequest;

/// The devices of one start of a container, and what was changed in the container for them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttachmentRecord {
    pub(crate) id: String,
    /// The container's first process.
    pub(crate) pid: i32,
    /// The start time of the first process, in clock ticks since the boot (proc_pid_stat(5),
    /// field 22). A container with the same id that is started later has another one.
    #[serde(rename = "started")]
    pub(crate) start_time: u64,
    pub(crate) bundle: PathBuf,
    /// Whether the first process is the init process of a PID namespace. When it ends, the kernel
    /// ends all other processes of the container.
    #[serde(default)]
    pub(crate) is_init: bool,
    /// The path of the container's cgroup in its hierarchy. The container's processes may have
    /// moved to cgroups below it.
    #[serde(default)]
    pub(crate) cgroup: PathBuf,
    /// The inode number of the cgroup's directory. It is 0 if the container has no cgroup of its
    /// own, or if an older version wrote the record.
    #[serde(default)]
    pub(crate) cgroup_inode: u64,
    /// The device rules of the specification. `None` means that an older version wrote the
    /// record.
    #[serde(default, rename = "spec", skip_serializing_if = "Option::is_none")]
    pub(crate) spec_rules: Option<Vec<LinuxDeviceCgroup>>,
    pub(crate) devices: Vec<AttachedDevice>,
    /// The devices that the container requested at its start and the host did not have. A device
    /// that comes moves to `devices`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) waiting: Vec<AwaitedDevice>,
    /// The device rules that the container lacked before they were added.
    pub(crate) rules: Vec<RecordedRule>,
    /// The files that were created in the container's root.
    #[serde(rename = "made")]
    pub(crate) files: Vec<CreatedFile>,
    /// Whether `rules` has all rules that the hook added at the container's start and that the
    /// specification does not have.
    #[serde(default, rename = "whole")]
    pub(crate) has_all_rules: bool,
    /// Whether the hook gave the container nothing at its start.
    #[serde(default)]
    pub(crate) was_given_nothing: bool,
    /// The device rules of the specification that were revoked.
    #[serde(default, rename = "withdrawn", skip_serializing_if = "Vec::is_empty")]
    pub(crate) revoked_spec_rules: Vec<RecordedRule>,
    /// The announcements that the container's programs have received, by device.
    #[serde(
        default,
        rename = "told",
        with = "record_form::by_device",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub(crate) announced: BTreeMap<DeviceRef, BTreeSet<Announcement>>,
}

impl AttachmentRecord {
    /// Returns the devices that a user attached, as grants for a plan.
    pub(crate) fn attached_grants(&self) -> Vec<AttachRequest> {
        let attached = self.devices.iter().filter(|it| it.given_by.is_user());
        attached
            .map(|device| device.to_grant(device.to_request()))
            .collect()
    }

    /// Adds what the record does not have yet. What it has gets the new users as well.
    pub(crate) fn add(
        &mut self,
        devices: Vec<AttachedDevice>,
        rules: Vec<RecordedRule>,
        files: Vec<CreatedFile>,
    ) {
        for device in devices {
            let is_known = self
                .devices
                .iter()
                .any(|it| it.device_ref() == device.device_ref());
            if !is_known {
                self.devices.push(device);
            }
        }
        for rule in rules {
            self.revoked_spec_rules.retain(|it| it.rule != rule.rule);
            if let Some(known) = self.rules.iter_mut().find(|it| it.rule == rule.rule) {
                merge_users(&mut known.users, rule.users);
                known.host_node = rule.host_node.or(known.host_node.take());
            } else {
                self.rules.push(rule);
            }
        }
        for file in files {
            if let Some(known) = self.files.iter_mut().find(|it| it.is_same(&file)) {
                merge_users(&mut known.users, file.users);
            } else {
                self.files.push(file);
            }
        }
    }

    /// Removes rules that were revoked, and notes which of them the specification has.
    pub(crate) fn remove_revoked(&mut self, revoked: &[RecordedRule]) {
        self.rules.retain(|rule| !revoked.contains(rule));
        for rule in revoked {
            if self.spec_allows_alone(&rule.rule) && !self.revoked_spec_rules.contains(rule) {
                self.revoked_spec_rules.push(rule.clone());
            }
        }
    }

    /// Whether the specification has a rule that allows this device and no other. A record
    /// without the specification's rules counts as having one.
    fn spec_allows_alone(&self, rule: &DeviceRule) -> bool {
        let wanted = SpecRule::from(rule);
        self.parse_spec_rules().is_none_or(|spec| {
            spec.iter().any(|known| {
                (known.allow, known.kind) == (true, wanted.kind)
                    && (known.major, known.minor) == (wanted.major, wanted.minor)
            })
        })
    }

    /// Returns the device rules of the specification, if the record has them.
    pub(super) fn parse_spec_rules(&self) -> Option<Vec<SpecRule>> {
        self.spec_rules.as_deref().map(crate::oci::device_rules)
    }

    /// Removes devices, with the rules and files that no other device needs. Returns what was
    /// removed as a record of the same container.
    pub(crate) fn take(&mut self, is_taken: impl Fn(&AttachedDevice) -> bool) -> Self {
        let (taken, left) = self.devices.drain(..).partition(is_taken);
        self.devices = left;
        let devices = &self.devices;
        self.announced
            .retain(|key, _| devices.iter().any(|device| device.device_ref() == *key));
        let is_needed = |users: &[StepUser]| {
            users.is_empty() || devices.iter().any(|device| device.is_among(users))
        };
        let (rules, left) = self
            .rules
            .drain(..)
            .partition(|rule| !is_needed(&rule.users));
        self.rules = left;
        let (files, left) = self
            .files
            .drain(..)
            .partition(|file| !is_needed(&file.users));
        self.files = left;
        AttachmentRecord {
            devices: taken,
            rules,
            files,
            ..self.without_content()
        }
    }

    /// Gives devices the ids that they have now. All are renamed at once, because two devices may
    /// have exchanged their ids. A device that would have the id of another one is not renamed.
    /// Returns the renamed devices, by what they were before.
    pub(super) fn rename_devices(
        &mut self,
        ids: &BTreeMap<DeviceRef, DeviceId>,
    ) -> BTreeMap<DeviceRef, DeviceRef> {
        let mut renamed = BTreeMap::new();
        let mut ids = ids.clone();
        let recorded: Vec<DeviceRef> = self.devices.iter().map(|it| it.device_ref()).collect();
        ids.retain(|device, _| recorded.contains(device));
        // To leave one device as it is can take the id that another one would get.
        loop {
            renamed.clear();
            let kept = recorded.iter().filter(|device| !ids.contains_key(device));
            let mut used: BTreeSet<DeviceRef> = kept.cloned().collect();
            let count = ids.len();
            for device in &recorded {
                let Some(id) = ids.get(device) else { continue };
                let new = DeviceRef::new(&device.class, id);
                if used.insert(new.clone()) {
                    renamed.insert(device.clone(), new);
                } else {
                    ids.remove(device);
                }
            }
            if ids.len() == count {
                break;
            }
        }
        for device in &mut self.devices {
            if let Some(new) = renamed.get(&device.device_ref()) {
                device.device.clone_from(&new.id);
            }
        }
        let rules = self.rules.iter_mut().chain(&mut self.revoked_spec_rules);
        let users = rules.map(|rule| &mut rule.users);
        let users = users.chain(self.files.iter_mut().map(|file| &mut file.users));
        for user in users.flatten() {
            if let Some(new) = user.device().and_then(|device| renamed.get(device)) {
                *user = StepUser::Device(new.clone());
            }
        }
        let announced = std::mem::take(&mut self.announced).into_iter();
        let announced = announced.map(|(old, it)| (renamed.get(&old).cloned().unwrap_or(old), it));
        self.announced = announced.collect();
        renamed
    }

    /// Adds the users of steps to what the record has for another device already: of two devices
    /// that need the same thing, the container lacked it only for the first. A device that needs
    /// less access than the recorded rule gets a rule of its own, which stays when the other
    /// device is detached.
    pub(crate) fn add_users(&mut self, steps: &[InjectionStep]) {
        let devices = self.devices.clone();
        let users_with_device = |users: &[StepUser]| -> Vec<StepUser> {
            let has_device = |user: &&StepUser| devices.iter().any(|it| it.is_user(user));
            users.iter().filter(has_device).cloned().collect()
        };
        for rule in rules_of_steps(steps) {
            let users = users_with_device(&rule.users);
            if !users.is_empty() {
                self.add_rule_users(&rule.rule, users);
            }
        }
        for step in steps {
            let users = users_with_device(&step.users);
            if users.is_empty() {
                continue;
            }
            for file in self.files.iter_mut().filter(|file| file.is_from(step)) {
                merge_users(&mut file.users, users.clone());
            }
        }
    }

    fn add_rule_users(&mut self, needed: &DeviceRule, users: Vec<StepUser>) {
        let mut wider = None;
        for known in &mut self.rules {
            if known.rule.number != needed.number {
                continue;
            }
            if needed.access.contains(known.rule.access) {
                merge_users(&mut known.users, users.clone());
            } else if known.rule.access.contains(needed.access) {
                if known.users.is_empty() {
                    // The wider rule stays, whatever is detached.
                    return;
                }
                wider = Some(known.clone());
            }
        }
        let is_known = self.rules.iter().any(|known| known.rule == *needed);
        if let Some(wider) = wider.filter(|_| !is_known) {
            self.rules.push(RecordedRule {
                rule: *needed,
                users,
                ..wider
            });
        }
    }

    /// Returns a record of the same container without devices, rules and files.
    pub(crate) fn without_content(&self) -> Self {
        AttachmentRecord {
            devices: Vec::new(),
            waiting: Vec::new(),
            rules: Vec::new(),
            files: Vec::new(),
            has_all_rules: false,
            revoked_spec_rules: Vec::new(),
            announced: BTreeMap::new(),
            ..self.clone()
        }
    }

    /// Whether both records are from the same start of the same container.
    pub(super) fn is_from_same_start(&self, other: &Self) -> bool {
        (self.pid, self.start_time) == (other.pid, other.start_time)
    }

    /// Adds to a record that an older version wrote what `new`, a record of the same start, has
    /// and it lacks.
    pub(super) fn with_missing_fields(mut self, new: Self) -> Self {
        if self.spec_rules.is_none() {
            self.spec_rules = new.spec_rules;
            self.is_init = new.is_init;
        }
        if self.cgroup_inode == 0 && self.cgroup == new.cgroup {
            self.cgroup_inode = new.cgroup_inode;
        }
        self
    }

    /// Whether the record has anything for which its file is kept.
    pub(super) fn has_content(&self) -> bool {
        let has_devices =
            !self.devices.is_empty() || !self.waiting.is_empty() || !self.rules.is_empty();
        has_devices || !self.files.is_empty() || self.has_all_rules
    }
}

/// Merges two lists of users. An empty list means that no single device needs the thing, and that
/// it stays; so does the merged one.
pub(super) fn merge_users(known: &mut Vec<StepUser>, more: Vec<StepUser>) {
    if known.is_empty() || more.is_empty() {
        return known.clear();
    }
    for user in more {
        if !known.contains(&user) {
            known.push(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use injection_plan::plan::{Action, GivenBy};

    use super::*;

    fn device(id: &str) -> AttachedDevice {
        AttachedDevice {
            class: "chips".parse().unwrap(),
            device: id.to_owned().try_into().unwrap(),
            given_by: GivenBy::from(id.to_owned()),
            forced: false,
            name: None,
            places: Vec::new(),
            late: false,
        }
    }

    fn chip(id: &str) -> DeviceRef {
        device(id).device_ref()
    }

    fn parse(rule: &str) -> DeviceRule {
        DeviceRule::parse(rule).unwrap()
    }

    #[test]
    fn a_rule_that_stays_is_not_taken_with_a_device() {
        let rule = |users: &[&str]| RecordedRule {
            rule: parse("c 10:183 rw"),
            users: users.iter().map(|id| StepUser::Device(chip(id))).collect(),
            host_node: None,
            beside_spec: false,
        };
        for [first, second] in [[vec![], vec!["chip-0"]], [vec!["chip-0"], vec![]]] {
            let mut record = AttachmentRecord::default();
            record.add(vec![device("chip-0")], vec![rule(&first)], Vec::new());
            record.add(Vec::new(), vec![rule(&second)], Vec::new());
            assert_eq!(record.take(|_| true).rules, []);
            assert_eq!(record.rules, [rule(&[])]);
        }
    }

    /// Returns a step that allows the device `id` this access.
    fn allow(id: &str, rule: &str) -> InjectionStep {
        InjectionStep {
            action: Action::Allow {
                rule: parse(rule),
                in_spec: false,
                users_by_access: [].into(),
                host_node: None,
            },
            user_labels: id.to_owned(),
            users: vec![StepUser::Device(chip(id))],
        }
    }

    #[test]
    fn a_rule_that_another_device_needs_stays_recorded() {
        let allow = |id| allow(id, "c 10:183 rw");
        let mut record = AttachmentRecord::default();
        let first = rules_of_steps(&[allow("chip-0")]).collect();
        record.add(vec![device("chip-0"), device("chip-1")], first, Vec::new());
        record.add_users(&[allow("chip-0"), allow("chip-1"), allow("chip-2")]);
        let taken = record.take(|device| device.device.as_str() == "chip-0");
        assert_eq!(taken.rules, []);
        let taken = record.take(|_| true);
        assert_eq!((taken.rules.len(), record.rules.len()), (1, 0));
    }

    #[test]
    fn a_rule_of_another_access_does_not_replace_a_needed_one() {
        let mut record = AttachmentRecord::default();
        let steps = ["c 10:183 w", "c 10:183 r"].map(|rule| allow("chip-0", rule));
        let rules = steps
            .iter()
            .map(std::slice::from_ref)
            .flat_map(rules_of_steps);
        let mut rules: Vec<_> = rules.collect();
        rules[0].users.clear();
        record.add(vec![device("chip-0"), device("chip-1")], rules, Vec::new());
        record.add_users(&[allow("chip-1", "c 10:183 r")]);
        let taken = record.take(|device| device.device.as_str() == "chip-0");
        assert_eq!(taken.rules, [], "chip-1 needs it");
    }

    #[test]
    fn devices_are_renamed_all_at_once() {
        for (ids, wanted) in [
            (&[("0", "7")][..], ["7", "1", "2"]),
            (&[("0", "1"), ("1", "0")], ["1", "0", "2"]),
            (&[("0", "1"), ("1", "2"), ("2", "0")], ["1", "2", "0"]),
            (&[("0", "1"), ("1", "7")], ["1", "7", "2"]),
            // Another device has the id, or gets it.
            (&[("0", "1")], ["0", "1", "2"]),
            (&[("0", "1"), ("1", "2")], ["0", "1", "2"]),
            (&[("0", "7"), ("1", "7")], ["7", "1", "2"]),
            (&[("9", "0")], ["0", "1", "2"]),
        ] {
            let mut record = AttachmentRecord::default();
            let (mut rules, mut steps) = (Vec::new(), Vec::new());
            for id in ["0", "1", "2"] {
                steps.push(allow(id, &format!("c 10:{id} rw")));
                record.announced.insert(chip(id), BTreeSet::new());
            }
            rules.extend(rules_of_steps(&steps));
            record.add(["0", "1", "2"].map(device).into(), rules, Vec::new());
            let map = ids.iter().map(|(old, new)| (chip(old), chip(new).id));
            let renamed = record.rename_devices(&map.collect());
            let now: Vec<&str> = record.devices.iter().map(|it| it.device.as_str()).collect();
            assert_eq!(now, wanted, "{ids:?}");
            let users = record.rules.iter().flat_map(|it| &it.users).cloned();
            let now = wanted.map(|id| StepUser::Device(chip(id)));
            assert_eq!(users.collect::<Vec<_>>(), now, "{ids:?}");
            let changed = ["0", "1", "2"].iter().zip(wanted);
            let changed = changed.filter(|(old, new)| **old != *new);
            let changed = changed.map(|(old, new)| (chip(old), chip(new)));
            assert_eq!(renamed, changed.collect(), "{ids:?}");
            assert_eq!(record.announced.len(), 3, "{ids:?}");
        }
    }

    #[test]
    fn a_device_that_needs_less_access_keeps_only_that() {
        let steps = [
            allow("chip-0", "c 10:183 rw"),
            allow("chip-1", "c 10:183 r"),
        ];
        for lacking in [&steps[..], &steps[..1]] {
            let mut record = AttachmentRecord::default();
            let rules = rules_of_steps(lacking).collect();
            record.add(vec![device("chip-0"), device("chip-1")], rules, Vec::new());
            record.add_users(&steps);
            let taken = record.take(|device| device.device.as_str() == "chip-0");
            let of = |record: &AttachmentRecord| -> Vec<String> {
                record.rules.iter().map(|it| it.rule.to_string()).collect()
            };
            assert_eq!(of(&taken), ["c 10:183 rw"]);
            assert_eq!(of(&record), ["c 10:183 r"]);
        }
    }
}
