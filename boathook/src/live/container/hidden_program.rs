//! Handles device programs of cgroup v2 whose instructions the kernel hides
//! (`net.core.bpf_jit_harden=2`).
//!
//! A hidden program cannot be read or changed. It can only be generated again from all rules of the
//! container. So the attachment record must contain every rule that is not in the specification.
//! Otherwise the program is not changed.

use device_class::config::Config;
use device_class::device::DeviceRule;
use hook::attachment::{AttachmentRecord, RecordedRule, RevokeError};
use hook::cgroup::DeviceCgroup;
use hook::oci::Bundle;
use hook::planner::{self, Caller};

use crate::live::ContainerChangeError;
use crate::live::container::LockedContainer;

/// Reports whether the kernel hides the instructions of a container's device program.
///
/// # Errors
///
/// Fails if the kernel hides the program and `record` does not contain all rules of the container.
pub(crate) fn check_hidden_program(
    cgroup: &DeviceCgroup,
    record: &AttachmentRecord,
    bundle: &Bundle,
    config: &Config,
) -> Result<bool, ContainerChangeError> {
    if !cgroup.is_device_program_hidden()? {
        return Ok(false);
    }
    if record.has_all_rules
        || record.had_no_injection_at_start
        || has_no_start_requests(bundle, config)
    {
        Ok(true)
    } else {
        Err(RevokeError::HiddenProgram.into())
    }
}

/// Reports whether the hook injected no devices when the container was started. This follows from
/// the container's requests alone. The host's devices are not considered, because they may have
/// changed since.
pub(crate) fn has_no_start_requests(bundle: &Bundle, config: &Config) -> bool {
    // `bundle` may contain requests for devices that were attached later. `start_bundle` contains
    // only the requests from the start of the container.
    let start_bundle = Bundle::read(&bundle.directory);
    bundle.hooks.find_boathook_hooks().next().is_none()
        || start_bundle.is_ok_and(|start_bundle| {
            planner::requests_nothing(&start_bundle, &Caller::PlanInspector, config)
        })
}

impl LockedContainer {
    /// Reports whether the kernel hides the instructions of the container's device program
    /// ([`check_hidden_program`]). Returns false if the container has no device cgroup.
    pub(crate) fn is_device_program_hidden(
        &self,
        config: &Config,
    ) -> Result<bool, ContainerChangeError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => {
                check_hidden_program(&cgroup, &self.record, &self.container.bundle, config)
            }
            None => Ok(false),
        }
    }

    /// Reports whether the container's cgroup may deny devices that this process cannot list. This
    /// happens in cgroup v1: if a device list allows everything, its exceptions cannot be read.
    pub(crate) fn has_hidden_exceptions(&self) -> Result<bool, ContainerChangeError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => Ok(cgroup.has_hidden_exceptions()?),
            None => Ok(false),
        }
    }

    /// Reports whether the container lacks a rule for the device of `rule`, according to its record
    /// and its specification. `is_in_spec` is true if the specification allows the device. A rule
    /// of the specification does not count if it was revoked later.
    pub(crate) fn lacks_rule(&self, rule: &DeviceRule, is_in_spec: bool) -> bool {
        let has_rule_for_device = |rules: &[RecordedRule]| {
            rules
                .iter()
                .any(|recorded_rule| recorded_rule.rule.number == rule.number)
        };
        let is_revoked = has_rule_for_device(&self.record.revoked_spec_rules);
        !has_rule_for_device(&self.record.rules) && (!is_in_spec || is_revoked)
    }
}
