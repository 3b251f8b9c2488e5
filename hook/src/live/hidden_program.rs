//! Containers whose device program the kernel hides (`net.core.bpf_jit_harden=2`). What it admits
//! cannot be seen, and it cannot be changed but only made again, from all that the container may
//! use. So the record must have all that the specification does not, or nothing is changed.

use device_class::config::Config;
use device_class::device::DeviceRule;
use injection_plan::plan::SpecRule;

use super::attachment_record::AttachmentRecord;
use super::recorded_rule::{RecordedRule, parsed};
use super::{LiveError, LockedContainer};
use crate::cgroup::{DeviceCgroup, SpecRules};
use crate::oci::Bundle;
use crate::planner::{self, Caller};

/// Whether a container's program is hidden. An error: it is, and not all that it admits is known.
pub(super) fn is_hidden(
    cgroup: &DeviceCgroup,
    record: &AttachmentRecord,
    bundle: &Bundle,
    config: &Config,
) -> Result<bool, LiveError> {
    if !cgroup.hides()? {
        return Ok(false);
    }
    match record.whole || record.was_given_nothing || was_given_nothing(bundle, config) {
        true => Ok(true),
        false => Err(LiveError::Hidden),
    }
}

/// Whether the hook gave a container nothing at its start. What the host has of its devices today
/// is not what it was given.
pub(super) fn was_given_nothing(bundle: &Bundle, config: &Config) -> bool {
    // Read again: without what is attached.
    let as_started = Bundle::read(&bundle.directory);
    bundle.hooks.ours().next().is_none()
        || as_started.is_ok_and(|it| planner::requests_nothing(&it, &Caller::User, config))
}

impl AttachmentRecord {
    /// The rules that a program is generated from in place of one that the kernel hides: those
    /// of the specification, and what is recorded.
    pub(super) fn regenerated(&self, spec: &[SpecRule]) -> SpecRules {
        let spec = SpecRules::of_container(spec);
        let spec = spec.and_deny(&parsed(&self.withdrawn));
        spec.and_allow(&parsed(&self.rules))
    }
}

impl LockedContainer {
    /// Whether the container's cgroup may deny devices without showing it.
    pub(super) fn hides_exceptions(&self) -> Result<bool, LiveError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => Ok(cgroup.hides_exceptions()?),
            None => Ok(false),
        }
    }

    /// As [`is_hidden`].
    pub(super) fn is_hidden(&self, config: &Config) -> Result<bool, LiveError> {
        match self.record.find_cgroup()? {
            Some(cgroup) => is_hidden(&cgroup, &self.record, &self.container.bundle, config),
            None => Ok(false),
        }
    }

    /// Whether a rule of a device that it gets is nowhere known, so that it may lack it. Not to
    /// be asked of others: what is added for a device is taken away with it.
    pub(super) fn is_unknown(&self, rule: &DeviceRule, in_spec: bool) -> bool {
        let has = |rules: &[RecordedRule]| parsed(rules).iter().any(|it| it.number == rule.number);
        !has(&self.record.rules) && (!in_spec || has(&self.record.withdrawn))
    }
}
