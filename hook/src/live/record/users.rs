//! The devices that need the rules and files of a record. Several devices can share a rule or a
//! file, which is removed together with the last device that needs it.

use device_class::device::DeviceRule;
use injection_plan::plan::{InjectionStep, StepUser};

use super::{AttachedDevice, AttachmentRecord, CreatedFile, RecordedRule, list_step_rules};

impl AttachmentRecord {
    /// Adds devices, rules and files. A rule or file that the record has already gets the new users as
    /// well.
    pub(crate) fn add_content(
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

    /// Removes devices, with the rules and files that no other device needs. Returns them as a record
    /// of the same container.
    pub(crate) fn remove_devices(&mut self, is_removed: impl Fn(&AttachedDevice) -> bool) -> Self {
        let (removed, kept) = self.devices.drain(..).partition(is_removed);
        self.devices = kept;
        let devices = &self.devices;
        self.announced
            .retain(|key, _| devices.iter().any(|device| device.device_ref() == *key));
        let is_needed = |users: &[StepUser]| {
            users.is_empty() || devices.iter().any(|device| device.is_needed_by_any(users))
        };
        let (rules, kept) = self
            .rules
            .drain(..)
            .partition(|rule| !is_needed(&rule.users));
        self.rules = kept;
        let (files, kept) = self
            .files
            .drain(..)
            .partition(|file| !is_needed(&file.users));
        self.files = kept;
        AttachmentRecord {
            devices: removed,
            rules,
            files,
            ..self.without_content()
        }
    }

    /// Adds the users of steps to recorded rules and files, which may be recorded for another device
    /// only: the container lacked a shared rule or file only when the first device was attached. A
    /// device that needs less access than the recorded rule gets a rule of its own, which stays when
    /// the other device is detached.
    pub(crate) fn add_users(&mut self, steps: &[InjectionStep]) {
        let devices = self.devices.clone();
        let users_with_device = |users: &[StepUser]| -> Vec<StepUser> {
            let has_device = |user: &&StepUser| devices.iter().any(|it| it.matches_user(user));
            users.iter().filter(has_device).cloned().collect()
        };
        for rule in list_step_rules(steps) {
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
            for file in self
                .files
                .iter_mut()
                .filter(|file| file.is_created_by(step))
            {
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

/// Adds users to the users of a rule or file. An empty list means that the rule or file stays,
/// whatever is detached. If one of the lists is empty, the result is empty.
pub(in crate::live) fn merge_users(users: &mut Vec<StepUser>, new_users: Vec<StepUser>) {
    if users.is_empty() || new_users.is_empty() {
        return users.clear();
    }
    for user in new_users {
        if !users.contains(&user) {
            users.push(user);
        }
    }
}
