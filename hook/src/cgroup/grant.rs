//! Rules that are meant to stay: systemd first, then the cgroup.

use std::fmt;
use std::path::Path;

use super::error::CgroupError;
use super::report::Report;
use super::rule::DeviceRule;
use super::spec_rules::SpecRules;
use super::systemd::{HostSystemd, Systemd, SystemdError, SystemdReport, Unit};
use super::{CgroupDir, DeviceCgroup, v1, v2};

/// What [`DeviceCgroup::grant`] did.
#[derive(Debug)]
pub struct Grant {
    /// What became of each unit that restricts devices. With an error here the
    /// devices work, but only until systemd makes the unit's rules anew.
    pub units: Vec<Result<SystemdReport, SystemdError>>,
    /// What was done in the cgroup and its ancestors.
    pub levels: Report,
}

impl DeviceCgroup {
    /// [`allow`](Self::allow), after systemd has been told to allow the same in
    /// the units of the cgroup and its ancestors, so that the rules outlast a
    /// `daemon-reload`. This order, because systemd applies what it is told.
    ///
    /// Cgroups that deny nothing are left out, and systemd is not bothered with
    /// their units.
    ///
    /// # Errors
    ///
    /// As [`allow`](Self::allow). That systemd fails is not among them, see
    /// [`Grant::units`].
    pub fn grant(
        &self,
        rules: &[DeviceRule],
        regenerate: &SpecRules,
    ) -> Result<Grant, CgroupError> {
        self.grant_with(HostSystemd::default(), rules, regenerate)
    }

    /// [`grant`](Self::grant), with systemd's sockets and `/dev` elsewhere.
    ///
    /// # Errors
    ///
    /// As [`grant`](Self::grant).
    pub fn grant_with(
        &self,
        systemd: HostSystemd,
        rules: &[DeviceRule],
        regenerate: &SpecRules,
    ) -> Result<Grant, CgroupError> {
        let before = match self {
            Self::V1(cgroup) => Some((cgroup, v1::DeviceList::read(&cgroup.dir)?)),
            Self::V2(_) => None,
        };
        let mut systemd = Systemd::new(systemd);
        let units: Vec<_> = self
            .restricting_units()?
            .iter()
            .map(|unit| systemd.allow(unit, rules))
            .collect();
        // systemd clears a v1 list before it writes its own rules. Those that
        // only the runtime knew would be lost.
        if let Some((cgroup, before)) = before
            && !units.is_empty()
        {
            v1::restore(cgroup, &before)?;
        }
        let levels = self.allow(rules, regenerate)?;
        Ok(Grant { units, levels })
    }

    /// Units of the cgroup and its ancestors, as far as these deny anything.
    fn restricting_units(&self) -> Result<Vec<Unit>, CgroupError> {
        let (cgroup, restricts): (_, fn(&Path) -> _) = match self {
            Self::V1(cgroup) => (cgroup, v1::restricts),
            Self::V2(cgroup) => (cgroup, v2::restricts),
        };
        let mut units = Vec::new();
        for (dir, path) in levels_with_paths(cgroup) {
            if let Some(unit) = Unit::of(path)
                && !units.contains(&unit)
                && restricts(dir)?
            {
                units.push(unit);
            }
        }
        Ok(units)
    }
}

/// Directories and, in the hierarchy, paths of a cgroup and its ancestors.
fn levels_with_paths(cgroup: &CgroupDir) -> impl Iterator<Item = (&Path, &Path)> {
    cgroup.levels().zip(cgroup.path.ancestors())
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for unit in &self.units {
            match unit {
                Ok(report) => writeln!(f, "{report}")?,
                Err(error) => writeln!(f, "{error}: {}", error.source)?,
            }
        }
        self.levels.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_their_paths_in_the_hierarchy() {
        // As seen in a cgroup namespace, or through a mount of a part.
        let cgroup = CgroupDir {
            mount: "/m".into(),
            dir: "/m/b.slice/c.scope".into(),
            path: "/a.slice/b.slice/c.scope".into(),
        };
        let levels: Vec<_> = levels_with_paths(&cgroup).collect();
        let expected = [
            ("/m/b.slice/c.scope", "/a.slice/b.slice/c.scope"),
            ("/m/b.slice", "/a.slice/b.slice"),
            ("/m", "/a.slice"),
        ]
        .map(|(dir, path)| (Path::new(dir), Path::new(path)));
        assert_eq!(levels, expected);
    }

    #[test]
    fn only_units_of_restricting_cgroups_matter() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("a.slice/b.scope/inner");
        std::fs::create_dir_all(&dir).unwrap();
        let cgroup = CgroupDir {
            mount: temp.path().to_owned(),
            dir,
            path: "/a.slice/b.scope/inner".into(),
        };
        for (lists, expected) in [
            (
                ["c 1:3 r", "c 1:3 r", "a *:* rwm", "a *:* rwm"],
                vec!["b.scope"],
            ),
            (
                ["c 1:3 r", "c 1:3 r", "c 1:3 r", "a *:* rwm"],
                vec!["b.scope", "a.slice"],
            ),
            (["a *:* rwm"; 4], vec![]),
        ] {
            for (level, list) in cgroup.levels().zip(lists) {
                std::fs::write(level.join("devices.list"), list).unwrap();
            }
            let units = DeviceCgroup::V1(cgroup.clone())
                .restricting_units()
                .unwrap();
            let names: Vec<_> = units.iter().map(Unit::name).collect();
            assert_eq!(names, expected);
        }
    }
}
