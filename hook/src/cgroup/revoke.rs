//! Revokes device rules of a running container. A rule is removed from the container's systemd unit
//! first, and then from its cgroup. Otherwise systemd would write the rule to the cgroup again.

use super::error::CgroupError;
use super::rule::{self, DeviceRule};
use super::spec_rules::SpecRules;
use super::systemd::{SystemdClient, SystemdPaths, Unit};
use super::{CgroupDir, CgroupOwner, DeviceCgroup, v1, v2};

impl DeviceCgroup {
    /// Revokes `rules` in the container's own cgroup and systemd unit. A device that also has a
    /// rule in `kept_rules` is not revoked. Returns warnings for the administrator.
    ///
    /// Slices and services above the container are not changed, because other containers may use
    /// the same devices. If the kernel hides the cgroup's device program, a new program is
    /// generated from `spec_rules` and `kept_rules`.
    pub(crate) fn revoke(
        &self,
        rules: &[DeviceRule],
        kept_rules: &[DeviceRule],
        spec_rules: &SpecRules,
    ) -> Result<Vec<String>, CgroupError> {
        let rules = exclude_devices(rules, kept_rules);
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
                let earlier_list = v1::CgroupDeviceList::read(&cgroup.dir)?;
                if revoke_in_unit(cgroup, &rules, &mut warnings) {
                    v1::restore_entries(cgroup, &earlier_list)?;
                }
                v1::deny(cgroup, &rules)?;
            }
            Self::V2(cgroup) => {
                revoke_in_unit(cgroup, &rules, &mut warnings);
                v2::change_programs(
                    cgroup,
                    &rules,
                    &[],
                    &spec_rules.with_allowed_rules(kept_rules),
                )?;
            }
        }
        warnings.extend(self.list_remaining_access_warnings(&rules)?);
        Ok(warnings)
    }

    /// Reports whether this is the root cgroup of the hierarchy. A container in the root cgroup has
    /// no cgroup of its own. A device must not be denied there, because the host's processes could
    /// not use it either.
    pub fn is_root(&self) -> bool {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        cgroup.dir == cgroup.mount
    }

    /// Removes `rules` from `DeviceAllow=` of the container's own systemd units. Returns a warning
    /// for each unit that could not be changed.
    pub(super) fn revoke_in_units(&self, rules: &[DeviceRule]) -> Vec<String> {
        let (Self::V1(cgroup) | Self::V2(cgroup)) = self;
        let mut warnings = Vec::new();
        revoke_in_unit(cgroup, rules, &mut warnings);
        warnings
    }

    /// Returns a warning for each rule in `rules` that was revoked but that the cgroup still
    /// allows.
    pub(super) fn list_remaining_access_warnings(
        &self,
        rules: &[DeviceRule],
    ) -> Result<Vec<String>, CgroupError> {
        let denied_rules = self.find_denied_rules(rules)?;
        // The kernel may hide a device program (cgroup v2) or the exceptions of a device list
        // (cgroup v1). Then the remaining access is unknown, and no warning is needed. The new
        // program was generated without the revoked rules, and the list got an exception for each
        // of them.
        let is_denial_known =
            denied_rules.unreadable_program_count == 0 && !self.has_hidden_exceptions()?;
        let allowed_rules = rules
            .iter()
            .filter(|rule| is_denial_known && !denied_rules.rules.contains(rule));
        let warnings = allowed_rules.map(|rule| {
            format!("{rule} is still allowed in the container's cgroup, by a rule of another")
        });
        Ok(warnings.collect())
    }
}

/// Merges `rules` to one rule for each device. Leaves out a device that also has a rule in
/// `kept_rules`, because the container may still use it.
pub(super) fn exclude_devices(rules: &[DeviceRule], kept_rules: &[DeviceRule]) -> Vec<DeviceRule> {
    let mut rules = rule::merge_by_device(rules);
    rules.retain(|rule| {
        kept_rules
            .iter()
            .all(|kept_rule| kept_rule.number != rule.number)
    });
    rules
}

/// Removes `rules` from the container's own systemd units. Adds a warning for each unit that could
/// not be changed. Returns whether a unit was changed. If so, systemd has written all rules of the
/// unit to the cgroup again, and other rules of the cgroup may be lost.
fn revoke_in_unit(cgroup: &CgroupDir, rules: &[DeviceRule], warnings: &mut Vec<String>) -> bool {
    let mut systemd = SystemdClient::new(SystemdPaths::default());
    let own_cgroups = cgroup
        .self_and_ancestors()
        .filter(|level| level.owner == CgroupOwner::Container);
    let mut has_changed = false;
    for unit in own_cgroups.filter_map(|level| Unit::from_exact_path(level.path)) {
        match systemd.revoke(&unit, rules) {
            Ok(is_unit_changed) => has_changed |= is_unit_changed,
            Err(error) => warnings.push(format!(
                "unit {unit} still allows the devices, and systemd may allow them again: {}",
                crate::log::format_error_chain(&error)
            )),
        }
    }
    has_changed
}
