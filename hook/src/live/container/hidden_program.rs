//! Containers whose device program the kernel hides (`net.core.bpf_jit_harden=2`, cgroup v2).
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
use crate::live::record::{AttachmentRecord, RecordedRule, device_rules};
use crate::oci::Bundle;
use crate::planner::{self, Caller};

/// Whether the kernel hides a container's device program.
///
/// # Errors
///
/// If the kernel hides it and the record does not have all of the container's rules.
pub(in crate::live) fn is_hidden(
    cgroup: &DeviceCgroup,
    record: &AttachmentRecord,
    bundle: &Bundle,
    config: &Config,
) -> Result<bool, LiveError> {
    if !cgroup.has_hidden_program()? {
        return Ok(false);
    }
    if record.has_all_rules || record.was_given_nothing || was_given_nothing(bundle, config) {
        Ok(true)
    } else {
        Err(LiveError::Hidden)
    }
}

/// Whether the hook gave a container nothing at its start. The container's request is read for
/// that, because the devices that the host has today may be others than at the start.
pub(in crate::live) fn was_given_nothing(bundle: &Bundle, config: &Config) -> bool {
    // `bundle` may have grants for attached devices. The one from the file has none.
    let as_started = Bundle::read(&bundle.directory);
    bundle.hooks.boathook_hooks().next().is_none()
        || as_started.is_ok_and(|it| planner::requests_nothing(&it, &Caller::Inspect, config))
}

impl AttachmentRecord {
    /// Returns the rules from which a hidden program is generated again: those of the
    /// specification, and the recorded ones.
    pub(in crate::live) fn all_rules(&self, spec: &[SpecRule]) -> SpecRules {
        let spec = SpecRules::from_spec(spec);
        let spec = spec.with_denied(&device_rules(&self.revoked_spec_rules));
        spec.with_allowed(&device_rules(&self.rules))
    }
}

impl LockedContainer {
    /// Calls [`is_hidden`] for the container. Without a device cgroup nothing is hidden.
    pub(in crate::live) fn is_hidden(&self, config: &Config) -> Result<bool, LiveError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => is_hidden(&cgroup, &self.record, &self.container.bundle, config),
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
    pub(in crate::live) fn is_unknown(&self, rule: &DeviceRule, in_spec: bool) -> bool {
        let has_device =
            |rules: &[RecordedRule]| rules.iter().any(|it| it.rule.number == rule.number);
        let is_revoked = has_device(&self.record.revoked_spec_rules);
        !has_device(&self.record.rules) && (!in_spec || is_revoked)
    }
}
