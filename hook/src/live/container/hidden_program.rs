//! Handles device programs that the kernel hides (`net.core.bpf_jit_harden=2`, cgroup v2).
//!
//! A hidden program cannot be read or changed. It can only be generated again, from all rules that
//! the container has. So the attachment record must have every rule that the specification does
//! not have; otherwise the program is left as it is.

use device_class::config::Config;
use device_class::device::DeviceRule;
use injection_plan::plan::SpecRule;

use crate::cgroup::{DeviceCgroup, SpecRules};
use crate::live::LiveError;
use crate::live::container::LockedContainer;
use crate::live::record::{AttachmentRecord, RecordedRule, to_device_rules};
use crate::oci::Bundle;
use crate::planner::{self, Caller};

/// Returns whether the kernel hides a container's device program.
///
/// # Errors
///
/// If the kernel hides it and the record does not have all of the container's rules.
pub(in crate::live) fn check_hidden_program(
    cgroup: &DeviceCgroup,
    record: &AttachmentRecord,
    bundle: &Bundle,
    config: &Config,
) -> Result<bool, LiveError> {
    if !cgroup.has_hidden_program()? {
        return Ok(false);
    }
    if record.has_all_rules || record.was_given_nothing || requests_nothing_at_start(bundle, config)
    {
        Ok(true)
    } else {
        Err(LiveError::HiddenProgram)
    }
}

/// Whether the hook gave a container no devices at its start. This is determined by the container's
/// request, because the host may have other devices today than at the start.
pub(in crate::live) fn requests_nothing_at_start(bundle: &Bundle, config: &Config) -> bool {
    // `bundle` may have grants for attached devices. The one from the file has none.
    let as_started = Bundle::read(&bundle.directory);
    bundle.hooks.boathook_hooks().next().is_none()
        || as_started.is_ok_and(|it| planner::requests_nothing(&it, &Caller::Inspect, config))
}

impl AttachmentRecord {
    /// Returns the rules from which a hidden program is generated again: those of the
    /// specification, and the recorded ones.
    pub(in crate::live) fn to_spec_rules(&self, spec: &[SpecRule]) -> SpecRules {
        let spec = SpecRules::from_spec(spec);
        let spec = spec.with_denied(&to_device_rules(&self.revoked_spec_rules));
        spec.with_allowed(&to_device_rules(&self.rules))
    }
}

impl LockedContainer {
    /// Calls [`check_hidden_program`] for the container. Without a device cgroup nothing is hidden.
    pub(in crate::live) fn has_hidden_program(&self, config: &Config) -> Result<bool, LiveError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => {
                check_hidden_program(&cgroup, &self.record, &self.container.bundle, config)
            }
            None => Ok(false),
        }
    }

    /// Whether the container's cgroup may deny devices that the kernel does not show.
    pub(in crate::live) fn has_hidden_exceptions(&self) -> Result<bool, LiveError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => Ok(cgroup.has_hidden_exceptions()?),
            None => Ok(false),
        }
    }

    /// Whether neither the record nor the specification has the rule, so that the container may
    /// lack it. `in_spec` tells whether the specification allows the device.
    pub(in crate::live) fn is_unrecorded(&self, rule: &DeviceRule, in_spec: bool) -> bool {
        let has_rule_for_device =
            |rules: &[RecordedRule]| rules.iter().any(|it| it.rule.number == rule.number);
        let is_revoked = has_rule_for_device(&self.record.revoked_spec_rules);
        !has_rule_for_device(&self.record.rules) && (!in_spec || is_revoked)
    }
}
