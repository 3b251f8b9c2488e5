//! Revokes device rules of a container that runs. They are removed from its unit first,
//! because systemd would set them again, and then from its cgroup.

use super::error::CgroupError;
use super::rule::{self, DeviceRule};
use super::spec_rules::SpecRules;
use super::systemd::{HostSystemd, Systemd, Unit};
use super::{CgroupDir, CgroupOwner, DeviceCgroup, v1, v2};

impl DeviceCgroup {
    /// Revokes `rules`, which were added to the container's own cgroup and unit, except for
    /// devices in `keep`. Slices and services above the container are not changed, because
    /// other containers may use the same devices. Returns warnings for the administrator.
    ///
    /// If the kernel hides a program, a new one is generated from `keep` and `spec`.
    pub(crate) fn revoke(
        &self,
        rules: &[DeviceRule],
        keep: &[DeviceRule],
        spec: &SpecRules,
    ) -> Result<Vec<String>, CgroupError> {
        let rules = exclude_devices(rules, keep);
        if rules.is_empty() {
            return Ok(Vec::new());
        }
        if self.is_root() {
            let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
            return Ok(vec![format!(
                "the container has no cgroup of its own, so that {} stay allowed: to deny \
                 them there is to deny them to the host",
                rules.join(", ")
            )]);
        }
        let mut warnings = Vec::new();
        match self {
            Self::V1(cgroup) => {
                let before = v1::DeviceList::read(&cgroup.dir)?;
                if revoke_in_unit(cgroup, &rules, &mut warnings) {
                    v1::restore_lines(cgroup, &before)?;
                }
                v1::deny(cgroup, &rules)?;
            }
            Self::V2(cgroup) => {
                revoke_in_unit(cgroup, &rules, &mut warnings);
                v2::change_programs(cgroup, &rules, &[], &spec.with_allowed(keep))?;
            }
        }
        warnings.extend(self.warn_of_remaining_access(&rules)?);
        Ok(warnings)
    }

    /// Returns whether this is the root cgroup of its hierarchy. The root does not belong to
    /// the container: the runtime created no cgroup, or only one in another hierarchy.
    pub(crate) fn is_root(&self) -> bool {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        cgroup.dir == cgroup.mount
    }

    /// Removes rules from the systemd units of the container's own cgroups. Returns warnings.
    pub(super) fn revoke_in_units(&self, rules: &[DeviceRule]) -> Vec<String> {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        let mut warnings = Vec::new();
        revoke_in_unit(cgroup, rules, &mut warnings);
        warnings
    }

    /// Returns a warning for each of `rules` that is still allowed.
    pub(super) fn warn_of_remaining_access(
        &self,
        rules: &[DeviceRule],
    ) -> Result<Vec<String>, CgroupError> {
        let denied = self.find_denied_rules(rules)?;
        // A hidden program cannot be evaluated, but it was generated again without these rules.
        // The kernel does not show the exceptions of a list, but it accepted one for each rule.
        let is_known = denied.unreadable == 0 && !self.has_hidden_exceptions()?;
        let allowed = rules
            .iter()
            .filter(|rule| is_known && !denied.rules.contains(rule));
        let warnings = allowed.map(|rule| {
            format!("{rule} is still allowed in the container's cgroup, by a rule of another")
        });
        Ok(warnings.collect())
    }
}

/// Merges the rules to one per device, and removes those of devices in `keep`.
pub(super) fn exclude_devices(rules: &[DeviceRule], keep: &[DeviceRule]) -> Vec<DeviceRule> {
    let mut rules = rule::merge(rules);
    rules.retain(|rule| !keep.iter().any(|kept| kept.number == rule.number));
    rules
}

/// Removes rules from the unit of the container. Returns whether systemd has set the rules of
/// a unit again.
fn revoke_in_unit(cgroup: &CgroupDir, rules: &[DeviceRule], warnings: &mut Vec<String>) -> bool {
    let mut systemd = Systemd::new(HostSystemd::default());
    let own = cgroup
        .levels()
        .filter(|level| level.owner == CgroupOwner::Container);
    let mut changed = false;
    for unit in own.filter_map(|level| Unit::from_own_path(level.path)) {
        match systemd.revoke(&unit, rules) {
            Ok(done) => changed |= done,
            Err(error) => warnings.push(format!(
                "unit {unit} still allows the devices, and systemd may allow them again: {}",
                crate::log::chain(&error)
            )),
        }
    }
    changed
}
