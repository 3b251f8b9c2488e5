//! Handles device programs of cgroup v2 whose instructions the kernel hides
//! (`net.core.bpf_jit_harden=2`).
//!
//! A hidden program cannot be read or changed. It can only be generated again, from all rules of
//! the container. So the attachment record must have every rule that the specification does not
//! have. Otherwise the program is not changed.

use device_class::config::Config;
use device_class::device::DeviceRule;
use injection_plan::plan::SpecRule;

use crate::cgroup::{DeviceCgroup, SpecRules};
use crate::live::LiveError;
use crate::live::container::LockedContainer;
use crate::live::record::{AttachmentRecord, RecordedRule, to_device_rules};
use crate::oci::Bundle;
use crate::planner::{self, Caller};

/// Reports whether the kernel hides a container's device program.
///
/// # Errors
///
/// Fails if the kernel hides the program and the record does not have all of the container's rules.
pub(in crate::live) fn check_hidden_program(
    cgroup: &DeviceCgroup,
    record: &AttachmentRecord,
    bundle: &Bundle,
    config: &Config,
) -> Result<bool, LiveError> {
    if !cgroup.has_hidden_program()? {
        return Ok(false);
    }
    if record.has_all_rules
        || record.was_started_without_injection
        || requests_nothing_at_start(bundle, config)
    {
        Ok(true)
    } else {
        Err(LiveError::HiddenProgram)
    }
}

/// Reports whether the hook injected no devices at a container's start. The container's request
/// determines this, because the host may have other devices now.
pub(in crate::live) fn requests_nothing_at_start(bundle: &Bundle, config: &Config) -> bool {
    // `bundle` may have requests for attached devices. The bundle as it was at the start has none.
    let start_bundle = Bundle::read(&bundle.directory);
    bundle.hooks.find_boathook_hooks().next().is_none()
        || start_bundle.is_ok_and(|start_bundle| {
            planner::requests_nothing(&start_bundle, &Caller::PlanInspector, config)
        })
}

impl AttachmentRecord {
    /// Returns the rules from which a hidden program is generated again: those of the specification
    /// without the revoked ones, and the recorded ones.
    pub(in crate::live) fn to_spec_rules(&self, spec_rules: &[SpecRule]) -> SpecRules {
        SpecRules::from_spec(spec_rules)
            .with_denied_rules(&to_device_rules(&self.revoked_spec_rules))
            .with_allowed_rules(&to_device_rules(&self.rules))
    }
}

impl LockedContainer {
    /// Reports whether the kernel hides the container's device program ([`check_hidden_program`]).
    /// Returns false for a container without a device cgroup.
    pub(in crate::live) fn has_hidden_program(&self, config: &Config) -> Result<bool, LiveError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => {
                check_hidden_program(&cgroup, &self.record, &self.container.bundle, config)
            }
            None => Ok(false),
        }
    }

    /// Reports whether the container's cgroup may deny devices without showing it: in cgroup v1, the
    /// exceptions of a device list that allows everything cannot be read.
    pub(in crate::live) fn has_hidden_exceptions(&self) -> Result<bool, LiveError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => Ok(cgroup.has_hidden_exceptions()?),
            None => Ok(false),
        }
    }

    /// Reports whether neither the record nor the specification has a rule for the device of `rule`.
    /// The container may then not be allowed to use the device. `is_in_spec` is true if the
    /// specification allows the device.
    pub(in crate::live) fn lacks_rule(&self, rule: &DeviceRule, is_in_spec: bool) -> bool {
        let has_rule_for_device = |rules: &[RecordedRule]| {
            rules
                .iter()
                .any(|recorded_rule| recorded_rule.rule.number == rule.number)
        };
        let is_revoked = has_rule_for_device(&self.record.revoked_spec_rules);
        !has_rule_for_device(&self.record.rules) && (!is_in_spec || is_revoked)
    }
}
