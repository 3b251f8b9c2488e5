//! Revoking device rules.
//!
//! To revoke a rule, only the attachment record and the container's cgroup are needed. The bundle,
//! the plan and the container's processes are not: the container or its user may have changed all
//! of them.

use device_class::device::DeviceRule;
use injection_plan::plan::SpecRule;

use super::LiveError;
use super::attachment_record::AttachmentRecord;
use super::recorded_rule::{RecordedRule, device_rules};
use crate::cgroup::{CgroupError, DeviceCgroup, SpecRules};
use crate::container::{self, ProcessState};
use crate::oci::Bundle;

impl AttachmentRecord {
    /// Records the container's cgroup, which is the deepest one with a device program or a list.
    pub(super) fn set_cgroup(&mut self, cgroup: Option<&DeviceCgroup>) {
        let Some(cgroup) = cgroup.cloned().map(DeviceCgroup::move_to_runtime_cgroup) else {
            return;
        };
        self.cgroup = cgroup.path().to_owned();
        // The root cgroup has processes of the host and of other containers as well.
        if !cgroup.is_root() {
            self.cgroup_inode = cgroup.inode().unwrap_or_default();
        }
    }

    /// Whether no process of the container is left. Returns false if that is not certain.
    ///
    /// The end of the first process is not enough: in a container without a PID namespace of its
    /// own, other processes go on.
    pub(crate) fn has_ended(&self) -> bool {
        match container::process_state(self.pid, self.start_time) {
            ProcessState::Running | ProcessState::Unknown => false,
            ProcessState::Ended if self.is_init || !self.has_own_cgroup() => true,
            ProcessState::Ended => match self.find_recorded_cgroup() {
                Ok(Some(cgroup)) => cgroup.is_populated().is_ok_and(|populated| !populated),
                Ok(None) => true,
                Err(_) => false,
            },
        }
    }

    /// Whether the record of a new start of the container may replace this one. If an older
    /// version wrote the record, its cgroup's path may be that of the new start.
    pub(super) fn may_be_replaced(&self) -> bool {
        let first_process_ended =
            || container::process_state(self.pid, self.start_time) == ProcessState::Ended;
        self.has_ended() || self.has_cgroup_path_only() && first_process_ended()
    }

    /// Whether the container's first process runs. Devices can only be attached while it does.
    pub(super) fn first_process_runs(&self) -> bool {
        container::process_state(self.pid, self.start_time) == ProcessState::Running
    }

    /// Whether the container has a cgroup of its own, and the record has its path.
    fn has_own_cgroup(&self) -> bool {
        self.cgroup_inode != 0 || self.has_cgroup_path_only()
    }

    /// Whether an older version wrote the record, which has the path of the container's cgroup
    /// and not its inode number.
    fn has_cgroup_path_only(&self) -> bool {
        self.spec_rules.is_none() && self.cgroup_inode == 0 && self.cgroup.parent().is_some()
    }

    /// Returns the container's cgroup by its path and inode number, or by its path alone if an
    /// older version wrote the record. Returns `None` if the cgroup was removed or is not
    /// recorded.
    fn find_recorded_cgroup(&self) -> Result<Option<DeviceCgroup>, CgroupError> {
        if !self.has_own_cgroup() {
            return Ok(None);
        }
        let cgroup = DeviceCgroup::from_path(&self.cgroup)?;
        let is_same = |cgroup: &DeviceCgroup| {
            let inode = cgroup.inode();
            inode.is_ok_and(|inode| inode == self.cgroup_inode || self.has_cgroup_path_only())
        };
        Ok(cgroup.filter(is_same))
    }

    /// Returns the container's cgroup: the recorded one, or that of the first process if the
    /// record has none. Returns `None` if the cgroup was removed with the container, or if this
    /// host has no device controller.
    ///
    /// # Errors
    ///
    /// If the cgroup is not visible to this process, such as from another cgroup namespace.
    pub(super) fn find_cgroup(&self) -> Result<Option<DeviceCgroup>, CgroupError> {
        let recorded = self.find_recorded_cgroup()?;
        if recorded.is_some() {
            return Ok(recorded);
        }
        let cgroup = DeviceCgroup::from_pid(self.pid);
        // The first process may have ended before, and another one may have had its number.
        if !self.first_process_runs() {
            return Ok(None);
        }
        if self.cgroup_inode != 0 {
            return Err(CgroupError::NotVisible {
                cgroup: self.cgroup.clone(),
            });
        }
        Ok(cgroup?.map(|cgroup| cgroup.move_up_to(&self.cgroup)))
    }

    /// Revokes rules in the container's cgroup. `kept` is the record without the devices that
    /// lose their rules: where the container keeps a device, or a part of the access to it, that
    /// stays allowed. Returns warnings.
    pub(super) fn revoke(
        &self,
        rules: &[RecordedRule],
        kept: &AttachmentRecord,
    ) -> Result<Vec<String>, LiveError> {
        if rules.is_empty() {
            return Ok(Vec::new());
        }
        let Some(cgroup) = self.find_cgroup()? else {
            return Ok(Vec::new());
        };
        let beside_spec = rules.iter().filter(|rule| rule.beside_spec);
        let beside_spec: Vec<DeviceRule> = beside_spec.map(|rule| rule.rule).collect();
        let rules = device_rules(rules);
        let spec = kept.rules_to_regenerate(&cgroup, &rules)?;
        // A device of which less stays allowed than before is revoked, and then allowed again.
        let loses_access = |kept: &DeviceRule| {
            let mut revoked = rules.iter().filter(|rule| rule.number == kept.number);
            revoked.any(|rule| !kept.access.contains(rule.access))
        };
        let (mut allow_again, keep): (Vec<DeviceRule>, Vec<DeviceRule>) = device_rules(&kept.rules)
            .into_iter()
            .partition(loses_access);
        allow_again.extend(beside_spec.iter().flat_map(|rule| self.find_in_spec(rule)));
        let mut warnings = cgroup.revoke(&rules, &keep, &spec.with_allowed(&allow_again))?;
        if !allow_again.is_empty() && !cgroup.is_root() {
            warnings.extend(cgroup.allow(&allow_again, &spec)?.warnings());
        }
        Ok(warnings)
    }

    /// Returns the access to a rule's device that the specification allows, if it has a rule for
    /// this device alone.
    fn find_in_spec(&self, rule: &DeviceRule) -> Option<DeviceRule> {
        let wanted = SpecRule::from(rule);
        let spec = self.parse_spec_rules().unwrap_or_default();
        let known = spec.iter().rev().find(|known| {
            (known.kind, known.major, known.minor) == (wanted.kind, wanted.major, wanted.minor)
        })?;
        known.allow.then_some(DeviceRule {
            access: known.access,
            ..*rule
        })
    }

    /// Returns the rules from which the container's device program is generated again, if the
    /// kernel hides it. If it does not, returns the rules that the runtime's program may have
    /// for the revoked devices.
    fn rules_to_regenerate(
        &self,
        cgroup: &DeviceCgroup,
        revoked: &[DeviceRule],
    ) -> Result<SpecRules, LiveError> {
        let is_hidden = cgroup.has_hidden_program()?;
        if is_hidden && !self.has_all_rules && !self.was_given_nothing {
            return Err(LiveError::Hidden);
        }
        let read_from_bundle =
            || Bundle::read(&self.bundle).map(|bundle| bundle.spec_devices.rules);
        match self.parse_spec_rules().or_else(|| read_from_bundle().ok()) {
            Some(spec) if is_hidden => Ok(self.all_rules(&spec)),
            Some(spec) => Ok(SpecRules::from_spec(&spec)),
            None if is_hidden => Err(LiveError::Hidden),
            None => Ok(SpecRules::from_spec(&[]).with_allowed(revoked)),
        }
    }

    /// Returns those of `rules` that the cgroup still allows after a change that failed. The
    /// others must not stay recorded, because `follow` sets recorded rules again.
    pub(super) fn still_allowed(
        &self,
        rules: &[RecordedRule],
        kept: &AttachmentRecord,
    ) -> Vec<RecordedRule> {
        let Ok(Some(cgroup)) = self.find_cgroup() else {
            return rules.to_vec();
        };
        // The kernel does not show what is allowed: a rule that was revoked again is denied.
        let is_shown = || {
            Ok::<_, CgroupError>(!cgroup.has_hidden_program()? && !cgroup.has_hidden_exceptions()?)
        };
        if !is_shown().unwrap_or(false) && self.revoke(rules, kept).is_ok() {
            return Vec::new();
        }
        let denied = cgroup
            .find_denied_rules(&device_rules(rules))
            .unwrap_or_default();
        let is_denied = |rule: &RecordedRule| {
            let mut denied = denied.rules.iter();
            denied.any(|denied| denied.number == rule.rule.number)
        };
        let allowed = rules.iter().filter(|rule| !is_denied(rule));
        allowed.cloned().collect()
    }
}
