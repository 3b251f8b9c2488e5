//! Records which devices and classes need each rule and file of an attachment record: its owners.
//! If several devices need a rule or file, it is removed together with the last of these devices.

use device_class::device::DeviceRule;
use injection_plan::plan::{InjectionStep, StepOwner};

use super::{AttachmentRecord, ContainerDevice, CreatedFile, RecordedRule, list_step_rules};

impl AttachmentRecord {
    /// Adds devices, rules and files to the record. If the record already has a rule or file, only
    /// the new owners (the devices and classes that need it) are added.
    pub fn add_attachments(
        &mut self,
        devices: Vec<ContainerDevice>,
        rules: Vec<RecordedRule>,
        files: Vec<CreatedFile>,
    ) {
        for device in devices {
            let is_recorded = self
                .devices
                .iter()
                .any(|recorded_device| recorded_device.device_ref() == device.device_ref());
            if !is_recorded {
                self.devices.push(device);
            }
        }
        for rule in rules {
            self.revoked_spec_rules
                .retain(|revoked_rule| revoked_rule.rule != rule.rule);
            if let Some(recorded_rule) = self
                .rules
                .iter_mut()
                .find(|recorded_rule| recorded_rule.rule == rule.rule)
            {
                merge_owners(&mut recorded_rule.owners, rule.owners);
                recorded_rule.host_node = rule.host_node.or(recorded_rule.host_node.take());
            } else {
                self.rules.push(rule);
            }
        }
        for file in files {
            if let Some(recorded_file) = self
                .files
                .iter_mut()
                .find(|recorded_file| recorded_file.is_same_file(&file))
            {
                merge_owners(&mut recorded_file.owners, file.owners);
            } else {
                self.files.push(file);
            }
        }
    }

    /// Reports whether the record has a rule or a file that this device needs. Rules and files that
    /// only the device's class needs do not count.
    pub fn has_rule_or_file_of(&self, device: &ContainerDevice) -> bool {
        let owner = StepOwner::Device(device.device_ref());
        let rules = self.rules.iter().map(|rule| &rule.owners);
        let mut owners = rules.chain(self.files.iter().map(|file| &file.owners));
        owners.any(|owners| owners.contains(&owner))
    }

    /// Removes the devices for which `is_removed` returns true, and the rules and files that no
    /// other device needs. Returns the removed devices, rules and files as a second record of the
    /// same container.
    pub fn remove_devices(&mut self, is_removed: impl Fn(&ContainerDevice) -> bool) -> Self {
        let (removed_devices, remaining_devices) = self.devices.drain(..).partition(is_removed);
        self.devices = remaining_devices;
        let devices = &self.devices;
        self.announcements.retain(|device_ref, _| {
            devices
                .iter()
                .any(|device| device.device_ref() == *device_ref)
        });
        let is_needed = |owners: &[StepOwner]| {
            owners.is_empty()
                || devices
                    .iter()
                    .any(|device| device.matches_any_owner(owners))
        };
        let (rules, remaining_rules) = self
            .rules
            .drain(..)
            .partition(|rule| !is_needed(&rule.owners));
        self.rules = remaining_rules;
        let (files, remaining_files) = self
            .files
            .drain(..)
            .partition(|file| !is_needed(&file.owners));
        self.files = remaining_files;
        AttachmentRecord {
            devices: removed_devices,
            rules,
            files,
            ..self.without_attachments()
        }
    }

    /// Adds the owners of injection steps (the devices and classes that need a step) to the
    /// recorded rules and files. A rule or file that several devices share may have been recorded
    /// for only one of them.
    ///
    /// If a second device needs less access than a recorded rule allows, a separate rule is
    /// recorded for it. The separate rule stays when the first device is detached.
    pub fn add_step_owners(&mut self, steps: &[InjectionStep]) {
        let devices = self.devices.clone();
        let filter_recorded_owners = |owners: &[StepOwner]| -> Vec<StepOwner> {
            let has_device =
                |owner: &&StepOwner| devices.iter().any(|device| device.matches_owner(owner));
            owners.iter().filter(has_device).cloned().collect()
        };
        for rule in list_step_rules(steps) {
            let owners = filter_recorded_owners(&rule.owners);
            if !owners.is_empty() {
                self.add_rule_owners(&rule.rule, owners);
            }
        }
        for step in steps {
            let owners = filter_recorded_owners(&step.owners);
            if owners.is_empty() {
                continue;
            }
            for file in self
                .files
                .iter_mut()
                .filter(|file| file.is_created_by(step))
            {
                merge_owners(&mut file.owners, owners.clone());
            }
        }
    }

    /// Adds `owners` to the recorded rules of the same device that allow no more access than
    /// `needed_rule`. If the record has only a rule that allows more, adds `needed_rule` as a
    /// second rule. It stays when the other rule is revoked.
    fn add_rule_owners(&mut self, needed_rule: &DeviceRule, owners: Vec<StepOwner>) {
        let mut wider_rule = None;
        for recorded_rule in &mut self.rules {
            if recorded_rule.rule.number != needed_rule.number {
                continue;
            }
            if needed_rule.access.contains(recorded_rule.rule.access) {
                merge_owners(&mut recorded_rule.owners, owners.clone());
            } else if recorded_rule.rule.access.contains(needed_rule.access) {
                if recorded_rule.owners.is_empty() {
                    // The recorded rule allows at least what `needed_rule` allows, and it is never
                    // revoked. So no other rule is needed.
                    return;
                }
                wider_rule = Some(recorded_rule.clone());
            }
        }
        let is_recorded = self
            .rules
            .iter()
            .any(|recorded_rule| recorded_rule.rule == *needed_rule);
        if let Some(wider_rule) = wider_rule.filter(|_| !is_recorded) {
            self.rules.push(RecordedRule {
                rule: *needed_rule,
                owners,
                ..wider_rule
            });
        }
    }
}

/// Adds `new_owners` to `owners`, the devices and classes that need a rule or file. An empty list
/// means that the rule or file is never removed. So the result is empty if one of the two lists is
/// empty.
pub fn merge_owners(owners: &mut Vec<StepOwner>, new_owners: Vec<StepOwner>) {
    if owners.is_empty() || new_owners.is_empty() {
        return owners.clear();
    }
    for owner in new_owners {
        if !owners.contains(&owner) {
            owners.push(owner);
        }
    }
}
