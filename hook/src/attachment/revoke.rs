//! Revokes device rules of a container.
//!
//! This module uses only the attachment record and the container's cgroup. It does not use the
//! container's bundle, processes or injection plan, because the container or its user can change
//! them. The only exception is a record of an older version of Boathook: then the bundle is read.

use device_class::device::DeviceRule;
use injection_plan::plan::SpecRule;

use crate::attachment::record::{AttachmentRecord, RecordedRule, to_device_rules};
use crate::cgroup::{CgroupError, DeviceCgroup, SpecRules};
use crate::oci::Bundle;

/// The reason why device rules of a container could not be revoked.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    #[error(
        "the kernel hides the container's device program, which can only be made again as a whole, \
         and what the hook gave the container at its start is not recorded; its device rules are \
         left as they are: start the container again, best with net.core.bpf_jit_harden below 2"
    )]
    HiddenProgram,
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
}

impl AttachmentRecord {
    /// Revokes `rules` in the container's cgroup. `remaining_record` is the record of the devices
    /// that the container keeps. Access that its rules allow is not revoked. Returns warnings for
    /// the log.
    pub fn revoke_rules(
        &self,
        rules: &[RecordedRule],
        remaining_record: &AttachmentRecord,
    ) -> Result<Vec<String>, RevokeError> {
        if rules.is_empty() {
            return Ok(Vec::new());
        }
        let Some(cgroup) = self.find_cgroup()? else {
            return Ok(Vec::new());
        };
        let attached_device_rules = rules.iter().filter(|rule| rule.keeps_spec_access);
        let attached_device_rules: Vec<DeviceRule> =
            attached_device_rules.map(|rule| rule.rule).collect();
        let rules = to_device_rules(rules);
        let base_rules = remaining_record.list_rules_to_regenerate(&cgroup, &rules)?;
        // The container may lose only a part of its access to a device, such as writing. In this
        // case, all access to the device is revoked first, and the remaining access is allowed
        // again.
        let loses_access = |remaining: &DeviceRule| {
            let mut revoked_rules = rules.iter().filter(|rule| rule.number == remaining.number);
            revoked_rules.any(|rule| !remaining.access.contains(rule.access))
        };
        let (mut reallowed_rules, unchanged_rules): (Vec<DeviceRule>, Vec<DeviceRule>) =
            to_device_rules(&remaining_record.rules)
                .into_iter()
                .partition(loses_access);
        reallowed_rules.extend(
            attached_device_rules
                .iter()
                .flat_map(|rule| self.find_spec_access(rule)),
        );
        let mut warnings = cgroup.revoke(
            &rules,
            &unchanged_rules,
            &base_rules.with_allowed_rules(&reallowed_rules),
        )?;
        if !reallowed_rules.is_empty() && !cgroup.is_root() {
            warnings.extend(cgroup.allow(&reallowed_rules, &base_rules)?.warnings());
        }
        Ok(warnings)
    }

    /// Returns the access that config.json allows to exactly the device of `rule`. Ignores rules
    /// that apply to several devices, such as `c 10:* rwm`.
    fn find_spec_access(&self, rule: &DeviceRule) -> Option<DeviceRule> {
        let expected_rule = SpecRule::from(rule);
        let spec_rules = self.parse_spec_rules().unwrap_or_default();
        let spec_rule = spec_rules.iter().rev().find(|spec_rule| {
            (spec_rule.kind, spec_rule.major, spec_rule.minor)
                == (expected_rule.kind, expected_rule.major, expected_rule.minor)
        })?;
        spec_rule.is_allowed.then_some(DeviceRule {
            access: spec_rule.access,
            ..*rule
        })
    }

    /// Returns the rules from which the container's eBPF device program was probably generated. If
    /// the kernel hides the program, returns all rules, so that the program can be generated again.
    /// Otherwise returns the rules of config.json, or `revoked_rules` if those cannot be read.
    fn list_rules_to_regenerate(
        &self,
        cgroup: &DeviceCgroup,
        revoked_rules: &[DeviceRule],
    ) -> Result<SpecRules, RevokeError> {
        let is_hidden = cgroup.is_device_program_hidden()?;
        if is_hidden && !self.has_all_rules && !self.had_no_injection_at_start {
            return Err(RevokeError::HiddenProgram);
        }
        let read_from_bundle =
            || Bundle::read(&self.bundle_dir).map(|bundle| bundle.spec_devices.rules);
        match self.parse_spec_rules().or_else(|| read_from_bundle().ok()) {
            Some(spec_rules) if is_hidden => Ok(self.to_spec_rules(&spec_rules)),
            Some(spec_rules) => Ok(SpecRules::from_spec(&spec_rules)),
            None if is_hidden => Err(RevokeError::HiddenProgram),
            None => Ok(SpecRules::from_spec(&[]).with_allowed_rules(revoked_rules)),
        }
    }

    /// Returns all rules of the container: the rules of config.json that were not revoked, and the
    /// rules of the record. If the kernel hides the container's device program, it is generated
    /// again from them.
    pub fn to_spec_rules(&self, spec_rules: &[SpecRule]) -> SpecRules {
        SpecRules::from_spec(spec_rules)
            .with_denied_rules(&to_device_rules(&self.revoked_spec_rules))
            .with_allowed_rules(&to_device_rules(&self.rules))
    }

    /// Returns the rules from `rules` that the cgroup still allows after a revocation has failed.
    /// Only these rules may stay in the record, because `boathook follow` allows all recorded rules
    /// again. If this is unknown, returns all rules.
    pub fn find_allowed_rules(
        &self,
        rules: &[RecordedRule],
        remaining_record: &AttachmentRecord,
    ) -> Vec<RecordedRule> {
        let Ok(Some(cgroup)) = self.find_cgroup() else {
            return rules.to_vec();
        };
        // The kernel may not show which devices the cgroup allows. In this case, all rules are
        // revoked once more. If this succeeds, the cgroup allows none of them.
        let are_rules_visible = || {
            Ok::<_, CgroupError>(
                !cgroup.is_device_program_hidden()? && !cgroup.has_hidden_exceptions()?,
            )
        };
        if !are_rules_visible().unwrap_or(false)
            && self.revoke_rules(rules, remaining_record).is_ok()
        {
            return Vec::new();
        }
        let denied_rules = cgroup
            .find_denied_rules(&to_device_rules(rules))
            .unwrap_or_default();
        let is_denied = |rule: &RecordedRule| {
            let mut denied_rules = denied_rules.rules.iter();
            denied_rules.any(|denied| denied.number == rule.rule.number)
        };
        let allowed_rules = rules.iter().filter(|rule| !is_denied(rule));
        allowed_rules.cloned().collect()
    }
}
