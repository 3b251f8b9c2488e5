//! Allows devices in a container's cgroup. The device rules are added to the systemd unit first, so
//! that systemd keeps them when it reloads its units (`daemon-reload`). After that, they are added
//! to the cgroup.

use std::path::Path;

use super::error::CgroupError;
use super::report::{AllowReport, UnitReport};
use super::revoke::exclude_devices;
use super::rule::{self, DeviceRule};
use super::spec_rules::SpecRules;
use super::systemd::{SystemdClient, SystemdPaths, Unit};
use super::{CgroupDir, CgroupOwner, DeviceCgroup, v1, v2};

impl DeviceCgroup {
    /// Allows the processes of the cgroup to use the devices in `rules`, in addition to the devices
    /// that they may already use.
    ///
    /// The rules are first added to the systemd units of the cgroup and of the slices and services
    /// above it. systemd then keeps them at a `daemon-reload`. The units come first, because
    /// systemd writes all rules of a unit to its cgroup whenever the unit changes. The unit of a
    /// cgroup that restricts no devices is not changed.
    ///
    /// `spec_rules` are the rules that the runtime got from config.json. They are only needed if
    /// the kernel hides the runtime's device program. Then a new program is generated from them.
    ///
    /// The system calls need CAP_SYS_ADMIN, and CAP_NET_ADMIN for cgroup v2. Before Linux 5.11 they
    /// also need CAP_SYS_RESOURCE if the limit of locked memory is low. Missing privileges are
    /// reported as
    /// [`RuleChangeOutcome::NoPermission`](super::report::RuleChangeOutcome::NoPermission). They
    /// are not an error, because a runtime without these privileges cannot have restricted the
    /// devices.
    ///
    /// # Errors
    ///
    /// Fails if the kernel refuses a change, or if a cgroup that encloses the container's cgroup
    /// denies a device. In the latter case, nothing has been changed on cgroup v2. A failure of
    /// systemd is not an error; see [`AllowReport::units`].
    pub fn allow(
        &self,
        rules: &[DeviceRule],
        spec_rules: &SpecRules,
    ) -> Result<AllowReport, CgroupError> {
        self.allow_through_systemd(SystemdPaths::default(), rules, spec_rules)
    }

    /// Allows the devices of `new_rules` and revokes those of `stale_rules`. A device that also has
    /// a rule in `kept_rules` or `new_rules` is not revoked. Returns warnings for the
    /// administrator.
    ///
    /// On cgroup v2, both changes are made together, so that each device program is replaced only
    /// once. If the new rules cannot be allowed, the stale rules are revoked anyway, and the error
    /// is returned.
    pub fn exchange_rules(
        &self,
        stale_rules: &[DeviceRule],
        kept_rules: &[DeviceRule],
        new_rules: &[DeviceRule],
        spec_rules: &SpecRules,
    ) -> Result<Vec<String>, CgroupError> {
        let rules_to_revoke = exclude_devices(stale_rules, &[kept_rules, new_rules].concat());
        let can_replace_once = matches!(self, Self::V2(_)) && !self.is_root();
        if !can_replace_once || rules_to_revoke.is_empty() || new_rules.is_empty() {
            let mut warnings = self.revoke(stale_rules, kept_rules, spec_rules)?;
            warnings.extend(self.allow(new_rules, spec_rules)?.warnings());
            return Ok(warnings);
        }
        let mut warnings = self.revoke_in_units(&rules_to_revoke);
        match self.change_rules(
            SystemdPaths::default(),
            &rules_to_revoke,
            new_rules,
            spec_rules,
        ) {
            Ok(report) => warnings.extend(report.warnings()),
            Err(error) => {
                self.revoke(stale_rules, kept_rules, spec_rules)?;
                return Err(error);
            }
        }
        warnings.extend(self.list_remaining_access_warnings(&rules_to_revoke)?);
        Ok(warnings)
    }

    /// Does the work of [`allow`](Self::allow). Uses the sockets and the `/dev` directory in
    /// `systemd`, because tests pass those of a simulated systemd.
    pub(crate) fn allow_through_systemd(
        &self,
        systemd: SystemdPaths,
        rules: &[DeviceRule],
        spec_rules: &SpecRules,
    ) -> Result<AllowReport, CgroupError> {
        self.change_rules(systemd, &[], rules, spec_rules)
    }

    /// Allows the devices of `rules` in the systemd units and in the cgroup. On cgroup v2, the new
    /// device programs also deny the devices of `revoked_rules`. On cgroup v1, `revoked_rules` has
    /// no effect.
    fn change_rules(
        &self,
        systemd: SystemdPaths,
        revoked_rules: &[DeviceRule],
        rules: &[DeviceRule],
        spec_rules: &SpecRules,
    ) -> Result<AllowReport, CgroupError> {
        let mut report = AllowReport {
            rules: rule::merge_by_device(rules),
            ..AllowReport::default()
        };
        if report.rules.is_empty() {
            return Ok(report);
        }
        let units = self.find_restricting_units()?;
        let mut systemd = SystemdClient::new(systemd);
        let mut allow_in_units = |rules: &[DeviceRule]| -> Vec<_> {
            let allow = |(unit, has_other_processes): &(Unit, bool)| UnitReport {
                has_other_processes: *has_other_processes,
                result: systemd.allow(unit, rules),
            };
            units.iter().map(allow).collect()
        };
        match self {
            Self::V1(cgroup) => {
                let earlier_list = v1::CgroupDeviceList::read(&cgroup.dir)?;
                report.units = allow_in_units(&report.rules);
                // On cgroup v1, systemd clears `devices.list` before it writes the rules of the
                // unit. The rules that the runtime had set are then lost, so they are written again
                // here.
                if !report.units.is_empty() {
                    v1::restore_entries(cgroup, &earlier_list)?;
                }
                report.cgroups = v1::allow(cgroup, &report.rules)?;
            }
            Self::V2(cgroup) => {
                if !units.is_empty() {
                    v2::check_enclosing_cgroups(cgroup, &report.rules)?;
                }
                report.units = allow_in_units(&report.rules);
                report.cgroups =
                    v2::change_programs(cgroup, revoked_rules, &report.rules, spec_rules)?;
            }
        }
        Ok(report)
    }

    /// Returns the systemd units of the cgroup and of its ancestors that restrict devices. The flag
    /// of a unit is true if the unit also contains processes of other containers or of the host.
    fn find_restricting_units(&self) -> Result<Vec<(Unit, bool)>, CgroupError> {
        let (cgroup, restricts_devices): (&CgroupDir, fn(&Path) -> _) = match self {
            Self::V1(cgroup) => (cgroup, v1::restricts_devices),
            Self::V2(cgroup) => (cgroup, v2::restricts_devices),
        };
        let mut units = Vec::new();
        for level in cgroup.self_and_ancestors() {
            if level.owner != CgroupOwner::Enclosing
                && let Some(unit) = Unit::from_exact_path(level.path)
                && restricts_devices(level.dir)?
            {
                units.push((unit, level.owner == CgroupOwner::Unit));
            }
        }
        Ok(units)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_units_of_restricting_cgroups_matter() {
        const OPEN: &str = "a *:* rwm";
        const CLOSED: &str = "c 1:3 r";
        for (path, lists, expected) in [
            (
                "/a.slice/b.scope/inner",
                &[CLOSED, CLOSED, OPEN, OPEN][..],
                &[("b.scope", false)][..],
            ),
            (
                "/a.slice/b.scope/inner",
                &[CLOSED, CLOSED, CLOSED, OPEN],
                &[("b.scope", false), ("a.slice", true)],
            ),
            // systemd does not manage cgroups below a unit.
            ("/a.slice/b.scope/inner", &[CLOSED, OPEN, OPEN, OPEN], &[]),
            ("/a.slice/b.scope/inner", &[OPEN; 4], &[]),
            // The scope of another container is never changed.
            ("/a.scope/docker/inner", &[CLOSED; 4], &[]),
        ] {
            let temp = tempfile::tempdir().unwrap();
            let dir = temp.path().join(&path[1..]);
            std::fs::create_dir_all(&dir).unwrap();
            let cgroup = CgroupDir {
                mount: temp.path().to_owned(),
                dir,
                path: path.into(),
            };
            for (level, list) in cgroup.self_and_ancestors().zip(lists) {
                std::fs::write(level.dir.join("devices.list"), list).unwrap();
            }
            let units = DeviceCgroup::V1(cgroup).find_restricting_units().unwrap();
            let names: Vec<_> = units
                .iter()
                .map(|(unit, is_shared)| (unit.name(), *is_shared))
                .collect();
            assert_eq!(names, expected, "{path} {lists:?}");
        }
    }
}
