//! Revokes device rules of a container.
//!
//! This module uses only the attachment record and the container's cgroup. It does not use a plan or
//! the container's processes, because the container or its user may have changed them. It reads the
//! bundle only for records of older versions.

use device_class::device::DeviceRule;
use injection_plan::plan::SpecRule;

use crate::cgroup::{CgroupError, DeviceCgroup, SpecRules};
use crate::live::LiveError;
use crate::live::record::{AttachmentRecord, RecordedRule, to_device_rules};
use crate::oci::Bundle;

impl AttachmentRecord {
    /// Revokes rules in the container's cgroup. `kept` is the record without the devices that lose
    /// their rules: the access that one of its rules gives stays allowed. Returns warnings.
    pub(in crate::live) fn revoke(
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
        let rules = to_device_rules(rules);
        let spec = kept.find_rules_to_regenerate(&cgroup, &rules)?;
        // A device of which less stays allowed than before is revoked, and then allowed again.
        let loses_access = |kept: &DeviceRule| {
            let mut revoked = rules.iter().filter(|rule| rule.number == kept.number);
            revoked.any(|rule| !kept.access.contains(rule.access))
        };
        let (mut allow_again, keep): (Vec<DeviceRule>, Vec<DeviceRule>) =
            to_device_rules(&kept.rules)
                .into_iter()
                .partition(loses_access);
        allow_again.extend(
            beside_spec
                .iter()
                .flat_map(|rule| self.find_spec_access(rule)),
        );
        let mut warnings = cgroup.revoke(&rules, &keep, &spec.with_allowed(&allow_again))?;
        if !allow_again.is_empty() && !cgroup.is_root() {
            warnings.extend(cgroup.allow(&allow_again, &spec)?.warnings());
        }
        Ok(warnings)
    }

    /// Returns the access to a rule's device that the specification allows, if it has a rule for
    /// this device alone.
    fn find_spec_access(&self, rule: &DeviceRule) -> Option<DeviceRule> {
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
    fn find_rules_to_regenerate(
        &self,
        cgroup: &DeviceCgroup,
        revoked: &[DeviceRule],
    ) -> Result<SpecRules, LiveError> {
        let is_hidden = cgroup.has_hidden_program()?;
        if is_hidden && !self.has_all_rules && !self.was_given_nothing {
            return Err(LiveError::HiddenProgram);
        }
        let read_from_bundle =
            || Bundle::read(&self.bundle).map(|bundle| bundle.spec_devices.rules);
        match self.parse_spec_rules().or_else(|| read_from_bundle().ok()) {
            Some(spec) if is_hidden => Ok(self.to_spec_rules(&spec)),
            Some(spec) => Ok(SpecRules::from_spec(&spec)),
            None if is_hidden => Err(LiveError::HiddenProgram),
            None => Ok(SpecRules::from_spec(&[]).with_allowed(revoked)),
        }
    }

    /// Returns those of `rules` that the cgroup still allows after a change that failed. The
    /// others must not stay recorded, because `follow` sets recorded rules again.
    pub(in crate::live) fn find_still_allowed(
        &self,
        rules: &[RecordedRule],
        kept: &AttachmentRecord,
    ) -> Vec<RecordedRule> {
        let Ok(Some(cgroup)) = self.find_cgroup() else {
            return rules.to_vec();
        };
        // If the kernel does not show which devices are allowed, the rules are revoked again, and
        // are certainly denied then.
        let is_shown = || {
            Ok::<_, CgroupError>(!cgroup.has_hidden_program()? && !cgroup.has_hidden_exceptions()?)
        };
        if !is_shown().unwrap_or(false) && self.revoke(rules, kept).is_ok() {
            return Vec::new();
        }
        let denied = cgroup
            .find_denied_rules(&to_device_rules(rules))
            .unwrap_or_default();
        let is_denied = |rule: &RecordedRule| {
            let mut denied = denied.rules.iter();
            denied.any(|denied| denied.number == rule.rule.number)
        };
        let allowed = rules.iter().filter(|rule| !is_denied(rule));
        allowed.cloned().collect()
    }
}
