//! Adds device rules: to systemd's units first, so that they persist, then to
//! the cgroup.

use std::path::Path;

use super::error::CgroupError;
use super::report::{Report, UnitReport};
use super::revoke::exclude_devices;
use super::rule::{self, DeviceRule};
use super::spec_rules::SpecRules;
use super::systemd::{HostSystemd, Systemd, Unit};
use super::{CgroupDir, DeviceCgroup, Owner, v1, v2};

impl DeviceCgroup {
    /// Allows the cgroup's processes to use the devices in `rules`, in addition
    /// to those that they may already use.
    ///
    /// The devices are added to the systemd units of the cgroup and of the
    /// slices and services above it first, so that they persist over a
    /// `daemon-reload`; in this order, because systemd sets a unit's rules
    /// whenever the unit changes. Cgroups that deny nothing are skipped.
    ///
    /// `regenerate` holds the rules that the runtime was given. They are used
    /// to generate a new program where the kernel hides the one that enforces
    /// them.
    ///
    /// Needs CAP_SYS_ADMIN, for v2 also CAP_NET_ADMIN, and before Linux 5.11
    /// CAP_SYS_RESOURCE if the limit of locked memory is low. Missing
    /// privileges are reported as
    /// [`Outcome::NoPermission`](super::report::Outcome::NoPermission): a rootless
    /// runtime could not restrict the devices either.
    ///
    /// # Errors
    ///
    /// If the kernel refuses, or if a cgroup that encloses the container's
    /// denies a device; nothing has been changed in the latter case on v2. A
    /// failure of systemd is not an error, see [`Report::units`].
    pub(crate) fn allow(
        &self,
        rules: &[DeviceRule],
        regenerate: &SpecRules,
    ) -> Result<Report, CgroupError> {
        self.allow_with(HostSystemd::default(), rules, regenerate)
    }

    /// Allows `rules` as [`Self::allow`] does, and takes `stale` away as [`Self::revoke`] does,
    /// but for those of devices in `keep`: in one go where the kernel can. What cannot be
    /// allowed is no reason to keep what is stale.
    pub(crate) fn exchange(
        &self,
        stale: &[DeviceRule],
        keep: &[DeviceRule],
        rules: &[DeviceRule],
        spec: &SpecRules,
    ) -> Result<Vec<String>, CgroupError> {
        let gone = exclude_devices(stale, &[keep, rules].concat());
        let at_once = matches!(self, Self::V2(_)) && !self.is_root();
        if !at_once || gone.is_empty() || rules.is_empty() {
            let mut warnings = self.revoke(stale, keep, spec)?;
            warnings.extend(self.allow(rules, spec)?.warnings());
            return Ok(warnings);
        }
        let mut warnings = self.revoke_in_units(&gone);
        match self.change(HostSystemd::default(), &gone, rules, spec) {
            Ok(report) => warnings.extend(report.warnings()),
            Err(error) => {
                self.revoke(stale, keep, spec)?;
                return Err(error);
            }
        }
        warnings.extend(self.still_allowed(&gone)?);
        Ok(warnings)
    }

    /// [`allow`](Self::allow), with systemd's sockets and `/dev` elsewhere.
    pub(crate) fn allow_with(
        &self,
        systemd: HostSystemd,
        rules: &[DeviceRule],
        regenerate: &SpecRules,
    ) -> Result<Report, CgroupError> {
        self.change(systemd, &[], rules, regenerate)
    }

    /// `withdrawn` are for cgroup v2 alone.
    fn change(
        &self,
        systemd: HostSystemd,
        withdrawn: &[DeviceRule],
        rules: &[DeviceRule],
        regenerate: &SpecRules,
    ) -> Result<Report, CgroupError> {
        let mut report = Report {
            rules: rule::merge(rules),
            ..Report::default()
        };
        if report.rules.is_empty() {
            return Ok(report);
        }
        let units = self.restricting_units()?;
        let mut systemd = Systemd::new(systemd);
        let mut allow_in_units = |rules: &[DeviceRule]| -> Vec<_> {
            let allow = |(unit, shared): &(Unit, bool)| UnitReport {
                shared: *shared,
                done: systemd.allow(unit, rules),
            };
            units.iter().map(allow).collect()
        };
        match self {
            Self::V1(cgroup) => {
                let before = v1::DeviceList::read(&cgroup.dir)?;
                report.units = allow_in_units(&report.rules);
                // systemd clears a v1 list before it writes its own rules.
                // Rules that only the runtime had set would be lost.
                if !report.units.is_empty() {
                    v1::restore(cgroup, &before)?;
                }
                report.levels = v1::allow(cgroup, &report.rules)?;
            }
            Self::V2(cgroup) => {
                if !units.is_empty() {
                    v2::check_enclosing(cgroup, &report.rules)?;
                }
                report.units = allow_in_units(&report.rules);
                report.levels = v2::change(cgroup, withdrawn, &report.rules, regenerate)?;
            }
        }
        Ok(report)
    }

    /// The units of the cgroup and of those of its ancestors that deny
    /// anything, each with whether the unit has processes other than the
    /// container's.
    fn restricting_units(&self) -> Result<Vec<(Unit, bool)>, CgroupError> {
        let (cgroup, restricts): (&CgroupDir, fn(&Path) -> _) = match self {
            Self::V1(cgroup) => (cgroup, v1::restricts),
            Self::V2(cgroup) => (cgroup, v2::restricts),
        };
        let mut units = Vec::new();
        for level in cgroup.levels() {
            if level.owner != Owner::Enclosing
                && let Some(unit) = Unit::from_own_path(level.path)
                && restricts(level.dir)?
            {
                units.push((unit, level.owner == Owner::Unit));
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
            // Another container's scope is never changed.
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
            for (level, list) in cgroup.levels().zip(lists) {
                std::fs::write(level.dir.join("devices.list"), list).unwrap();
            }
            let units = DeviceCgroup::V1(cgroup).restricting_units().unwrap();
            let units: Vec<_> = units.iter().map(|(it, more)| (it.name(), *more)).collect();
            assert_eq!(units, expected, "{path} {lists:?}");
        }
    }
}
