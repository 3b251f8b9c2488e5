//! Taking device rules away from a container. It needs the record and the container's cgroup
//! alone: no bundle, no plan and no process of the container, all of which the container or its
//! user may have changed.

use device_class::device::DeviceRule;
use injection_plan::plan::SpecRule;

use super::LiveError;
use super::attachment_record::AttachmentRecord;
use super::recorded_rule::{RecordedRule, parsed};
use crate::cgroup::{CgroupError, DeviceCgroup, SpecRules};
use crate::container::{self, ProcessState};
use crate::oci::Bundle;

fn process_has_ended(pid: i32, started: u64) -> bool {
    container::process_state(pid, started) == ProcessState::Ended
}

impl AttachmentRecord {
    /// Notes which cgroup is the container's.
    pub(super) fn set_cgroup(&mut self, cgroup: Option<&DeviceCgroup>) {
        let Some(cgroup) = cgroup.cloned().map(DeviceCgroup::of_runtime) else {
            return;
        };
        self.cgroup = cgroup.path().to_owned();
        // Other containers and the host's programs may be in the first one.
        if !cgroup.is_root() {
            self.cgroup_inode = cgroup.inode().unwrap_or_default();
        }
    }

    /// Whether no process of the container is left. False if that is not known for certain.
    pub(crate) fn has_ended(&self) -> bool {
        match container::process_state(self.pid, self.started) {
            ProcessState::Running | ProcessState::Unknown => false,
            ProcessState::Ended if self.is_init || !self.has_own_cgroup() => true,
            ProcessState::Ended => match self.recorded_cgroup() {
                Ok(Some(cgroup)) => cgroup.is_populated().is_ok_and(|populated| !populated),
                Ok(None) => true,
                Err(_) => false,
            },
        }
    }

    /// Whether another start of the container may replace the record. In one of an older version
    /// the path of the cgroup may be that of the new start.
    pub(super) fn may_be_replaced(&self) -> bool {
        let has_ended = || process_has_ended(self.pid, self.started);
        self.has_ended() || self.has_cgroup_path_only() && has_ended()
    }

    /// Whether its first process runs, by which a container can be given something.
    pub(super) fn first_process_runs(&self) -> bool {
        container::process_state(self.pid, self.started) == ProcessState::Running
    }

    /// Whether the container has a cgroup of its own, which the record has.
    fn has_own_cgroup(&self) -> bool {
        self.cgroup_inode != 0 || self.has_cgroup_path_only()
    }

    /// Whether an older version wrote the record, which has the path of the container's cgroup
    /// and no inode number.
    fn has_cgroup_path_only(&self) -> bool {
        self.spec.is_none() && self.cgroup_inode == 0 && self.cgroup.parent().is_some()
    }

    /// Returns the container's cgroup by its path and inode number, or by its path alone if the
    /// record is one of an older version. `None` if the cgroup was removed or is not recorded.
    fn recorded_cgroup(&self) -> Result<Option<DeviceCgroup>, CgroupError> {
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

    /// The container's cgroup: by the record, or by its first process if the record does not
    /// have it. `None` if it was removed with the container, or this host has no device
    /// controller.
    ///
    /// # Errors
    ///
    /// If this process does not see it, such as below another cgroup namespace.
    pub(super) fn find_cgroup(&self) -> Result<Option<DeviceCgroup>, CgroupError> {
        let recorded = self.recorded_cgroup()?;
        if recorded.is_some() {
            return Ok(recorded);
        }
        let cgroup = DeviceCgroup::from_pid(self.pid);
        // Another process may have had the number meanwhile.
        if !self.first_process_runs() {
            return Ok(None);
        }
        if self.cgroup_inode != 0 {
            return Err(CgroupError::NotVisible {
                cgroup: self.cgroup.clone(),
            });
        }
        Ok(cgroup?.map(|cgroup| cgroup.up_to(&self.cgroup)))
    }

    /// Revokes rules in the container's cgroup, but for those of devices of `kept`, the record
    /// of what the container keeps. Returns warnings.
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
        let beside = rules.iter().filter(|rule| rule.beside_spec);
        let beside = parsed(&beside.cloned().collect::<Vec<_>>());
        let rules = parsed(rules);
        let spec = kept.rules_to_regenerate(&cgroup, &rules)?;
        // What stays of a device less of which is allowed than before.
        let kept_rules = parsed(&kept.rules);
        let is_narrower = |kept: &DeviceRule| {
            let mut its = rules.iter().filter(|rule| rule.number == kept.number);
            its.any(|rule| !kept.access.contains(rule.access))
        };
        let (mut narrower, keep): (Vec<DeviceRule>, Vec<DeviceRule>) =
            kept_rules.into_iter().partition(is_narrower);
        narrower.extend(beside.iter().flat_map(|rule| self.in_spec(rule)));
        let mut warnings = cgroup.revoke(&rules, &keep, &spec.and_allow(&narrower))?;
        if !narrower.is_empty() && !cgroup.is_root() {
            warnings.extend(cgroup.allow(&narrower, &spec)?.warnings());
        }
        Ok(warnings)
    }

    /// What the specification allows of a rule's device by a rule for it alone.
    fn in_spec(&self, rule: &DeviceRule) -> Option<DeviceRule> {
        let wanted = SpecRule::from(rule);
        let spec = self.spec_rules().unwrap_or_default();
        let known = spec.iter().rev().find(|known| {
            (known.kind, known.major, known.minor) == (wanted.kind, wanted.major, wanted.minor)
        })?;
        known.allow.then_some(DeviceRule {
            access: known.access,
            ..*rule
        })
    }

    /// What the container's program is generated from, if the kernel hides it; otherwise which
    /// of the revoked rules the runtime's program itself may have.
    fn rules_to_regenerate(
        &self,
        cgroup: &DeviceCgroup,
        revoked: &[DeviceRule],
    ) -> Result<SpecRules, LiveError> {
        let is_hidden = cgroup.hides()?;
        if is_hidden && !self.whole && !self.was_given_nothing {
            return Err(LiveError::Hidden);
        }
        let in_bundle = || Bundle::read(&self.bundle).map(|bundle| bundle.spec_devices.rules);
        match self.spec_rules().or_else(|| in_bundle().ok()) {
            Some(spec) if is_hidden => Ok(self.regenerated(&spec)),
            Some(spec) => Ok(SpecRules::of_container(&spec)),
            None if is_hidden => Err(LiveError::Hidden),
            None => Ok(SpecRules::of_container(&[]).and_allow(revoked)),
        }
    }

    /// Those of `rules` that the cgroup still allows, after a change that failed. The others
    /// must not stay recorded: `follow` gives back what an update of the container takes away.
    pub(super) fn still_allowed(
        &self,
        rules: &[RecordedRule],
        kept: &AttachmentRecord,
    ) -> Vec<RecordedRule> {
        let Ok(Some(cgroup)) = self.find_cgroup() else {
            return rules.to_vec();
        };
        // The kernel does not show what is allowed: a rule that was revoked again is denied.
        let is_shown = || Ok::<_, CgroupError>(!cgroup.hides()? && !cgroup.hides_exceptions()?);
        if !is_shown().unwrap_or(false) && self.revoke(rules, kept).is_ok() {
            return Vec::new();
        }
        let denied = cgroup.denied(&parsed(rules)).unwrap_or_default().rules;
        let is_denied = |rule: &RecordedRule| {
            let rule = DeviceRule::parse(&rule.rule);
            rule.is_some_and(|rule| denied.iter().any(|it| it.number == rule.number))
        };
        let allowed = rules.iter().filter(|rule| !is_denied(rule));
        allowed.cloned().collect()
    }
}
