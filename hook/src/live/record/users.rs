//! The devices that need the rules and files of a record. Several devices can share a rule or a
//! file, which is removed together with the last device that needs it.

use device_class::device::DeviceRule;
use injection_plan::plan::{InjectionStep, StepUser};

use super::{AttachedDevice, AttachmentRecord, CreatedFile, RecordedRule, rules_of_steps};

impl AttachmentRecord {
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
}

/// Merges two lists of users. An empty list means that no single device needs the thing, and that
/// it stays; so does the merged one.
pub(in crate::live) fn merge_users(known: &mut Vec<StepUser>, more: Vec<StepUser>) {
    if known.is_empty() || more.is_empty() {
        return known.clear();
    }
    for user in more {
        if !known.contains(&user) {
            known.push(user);
        }
    }
}
