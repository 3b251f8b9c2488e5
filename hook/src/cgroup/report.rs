//! The result of a change of device rules, for each unit and each cgroup.

use std::fmt;
use std::path::PathBuf;

use super::rule::DeviceRule;
use super::systemd::{SystemdError, SystemdReport, UnitOutcome};

/// The result of [`allow`](super::DeviceCgroup::allow).
#[derive(Debug, Default)]
pub(crate) struct AllowReport {
    /// The devices that are allowed now.
    pub rules: Vec<DeviceRule>,
    pub units: Vec<UnitReport>,
    /// The result for each cgroup, from the container's upwards. A cgroup with several
    /// programs has an entry for each.
    pub levels: Vec<LevelReport>,
}

/// The result for one unit. If it is an error, the devices can be used until systemd sets the
/// rules of the unit again.
#[derive(Debug)]
pub(crate) struct UnitReport {
    /// Whether processes other than the container's run in the unit.
    pub has_other_processes: bool,
    pub result: Result<SystemdReport, SystemdError>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LevelReport {
    pub cgroup: PathBuf,
    /// Whether processes other than the container's run in the cgroup.
    pub has_other_processes: bool,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// v2: the cgroup has no program, or none that applies to the container.
    NoProgram,
    AlreadyAllowed,
    /// v1: rules were added to the list.
    Written {
        /// The number of added rules. The list had the others already.
        rules: usize,
    },
    /// v2: a program was replaced by one that admits the rules and otherwise does the same as
    /// before.
    Rewritten {
        program: u32,
    },
    /// v2: the kernel hides the program. It was replaced by one that was generated from
    /// config.json.
    Regenerated {
        program: u32,
    },
    /// v2: the program cannot be read and was left unchanged, because it does not belong to
    /// the container. It may deny a device that the rules allow.
    Unreadable {
        program: u32,
    },
    /// Nothing was changed, because privileges are missing.
    NoPermission {
        operation: &'static str,
    },
}

impl AllowReport {
    /// Returns whether privileges were missing, as for most rootless containers.
    pub(crate) fn lacks_permission(&self) -> bool {
        self.any_outcome(|outcome| matches!(outcome, Outcome::NoPermission { .. }))
    }

    /// Returns whether a program that cannot be read may still deny a device that the rules
    /// allow.
    pub(crate) fn may_still_deny(&self) -> bool {
        self.any_outcome(|outcome| matches!(outcome, Outcome::Unreadable { .. }))
    }

    fn any_outcome(&self, is: impl Fn(&Outcome) -> bool) -> bool {
        self.levels.iter().any(|level| is(&level.outcome))
    }

    /// Returns warnings for the administrator: rules that could not be set or may be lost, and
    /// devices that other processes than the container's can use now.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self.units.iter().filter_map(UnitReport::warning).collect();
        if self.lacks_permission() || self.may_still_deny() {
            let levels: Vec<_> = self.levels.iter().map(LevelReport::to_string).collect();
            warnings.push(levels.join("; "));
        }
        warnings.extend(self.list_changed_shared_cgroups().map(|place| {
            let rules: Vec<_> = self.rules.iter().map(DeviceRule::to_string).collect();
            format!(
                "{place} denied {}; allowed there now for every process in it that no other \
                 cgroup restricts, also after this container has ended",
                rules.join(", "),
            )
        }));
        warnings
    }

    /// Returns the changed units and cgroups that also have other processes.
    fn list_changed_shared_cgroups(&self) -> impl Iterator<Item = String> {
        let units = self.units.iter().filter_map(|unit| match &unit.result {
            Ok(report)
                if unit.has_other_processes
                    && matches!(report.outcome, UnitOutcome::Added { .. }) =>
            {
                Some(format!("systemd unit {}", report.unit))
            }
            _ => None,
        });
        let levels = self.levels.iter().filter(|level| {
            level.has_other_processes
                && matches!(
                    level.outcome,
                    Outcome::Rewritten { .. } | Outcome::Regenerated { .. }
                )
        });
        units.chain(levels.map(|level| format!("cgroup {}", level.cgroup.display())))
    }
}

impl UnitReport {
    fn warning(&self) -> Option<String> {
        match &self.result {
            Ok(report) => report.is_remarkable().then(|| report.to_string()),
            Err(error) => Some(crate::log::chain(error)),
        }
    }
}

impl fmt::Display for LevelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cgroup.display(), self.outcome)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProgram => write!(f, "no program"),
            Self::AlreadyAllowed => write!(f, "already allowed"),
            Self::Written { rules } => write!(f, "{rules} device rules added"),
            Self::Rewritten { program } => write!(f, "program {program} rewritten"),
            Self::Regenerated { program } => write!(
                f,
                "program {program} cannot be read back, replaced by one generated from the spec"
            ),
            Self::Unreadable { program } => write!(
                f,
                "program {program} cannot be read back and was left alone; if it denies the \
                 devices, set net.core.bpf_jit_harden below 2 or DeviceAllow= on the systemd unit"
            ),
            Self::NoPermission { operation } => {
                write!(f, "no permission to {operation}; device rules not changed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::cgroup::systemd::{BusError, LinkReport, Unit};

    fn scope() -> Unit {
        Unit::from_path(Path::new("/c.scope")).unwrap()
    }

    fn report(outcome: UnitOutcome, links: Vec<LinkReport>) -> AllowReport {
        AllowReport {
            rules: vec![
                crate::cgroup::rule::misc(183, "rw"),
                crate::cgroup::rule::misc(229, "r"),
            ],
            units: vec![UnitReport {
                has_other_processes: false,
                result: Ok(SystemdReport {
                    unit: scope(),
                    outcome,
                    links,
                }),
            }],
            levels: Vec::new(),
        }
    }

    fn level(outcome: Outcome) -> LevelReport {
        LevelReport {
            cgroup: "/sys/fs/cgroup/c".into(),
            has_other_processes: false,
            outcome,
        }
    }

    #[test]
    fn the_usual_results_give_no_warning() {
        for outcome in [
            UnitOutcome::NoSystemd,
            UnitOutcome::UnknownUnit,
            UnitOutcome::Unrestricted,
            UnitOutcome::AlreadyAllowed,
            UnitOutcome::Added { entries: 2 },
        ] {
            let mut report = report(outcome, vec![]);
            report.levels = [Outcome::Rewritten { program: 7 }, Outcome::NoProgram]
                .map(level)
                .into();
            assert_eq!(report.warnings(), [] as [&str; 0], "{outcome:?}");
        }
    }

    #[test]
    fn a_unit_or_cgroup_shared_with_others_is_named_when_it_changes() {
        let mut report = report(UnitOutcome::Added { entries: 2 }, vec![]);
        report.units[0].has_other_processes = true;
        report.levels = [Outcome::Rewritten { program: 7 }, Outcome::AlreadyAllowed]
            .map(|outcome| LevelReport {
                has_other_processes: true,
                ..level(outcome)
            })
            .into();
        let rest = "denied c 10:183 rw, c 10:229 r; allowed there now for every process in it \
                    that no other cgroup restricts, also after this container has ended";
        assert_eq!(
            report.warnings(),
            [
                format!("systemd unit c.scope {rest}"),
                format!("cgroup /sys/fs/cgroup/c {rest}"),
            ]
        );
    }

    #[test]
    fn links_for_an_old_systemd_are_reported() {
        let path = PathBuf::from("/dev/char/10:183");
        let reason = "no node c 10:183 rw under /dev".to_string();
        for (link, expected) in [
            (
                LinkReport::Created(path.clone()),
                "c.scope: 1 entry added to DeviceAllow; /dev/char/10:183 created for an old systemd",
            ),
            (
                LinkReport::Missing { path, reason },
                "c.scope: 1 entry added to DeviceAllow; /dev/char/10:183 is missing: no node \
                 c 10:183 rw under /dev; this old systemd drops the device when it reloads",
            ),
        ] {
            let report = report(UnitOutcome::Added { entries: 1 }, vec![link]);
            assert_eq!(report.warnings(), [expected]);
        }
    }

    #[test]
    fn missing_permission_is_reported() {
        let mut report = report(UnitOutcome::NoPermission, vec![]);
        report.levels = vec![level(Outcome::NoPermission {
            operation: "read programs",
        })];
        assert_eq!(
            report.warnings(),
            [
                "c.scope: no permission to change the unit; rules may be lost on daemon-reload",
                "/sys/fs/cgroup/c: no permission to read programs; device rules not changed",
            ]
        );
    }

    #[test]
    fn a_failure_of_systemd_is_reported_with_its_cause() {
        let refused = std::io::Error::from_raw_os_error(libc::EACCES);
        for (source, cause) in [
            (BusError::Timeout, "systemd does not answer"),
            (
                BusError::Io(refused),
                "cannot communicate with systemd: Permission denied (os error 13)",
            ),
        ] {
            let mut report = report(UnitOutcome::NoSystemd, vec![]);
            report.units[0].result = Err(SystemdError {
                unit: scope(),
                source,
            });
            let expected = format!(
                "cannot allow devices in systemd unit c.scope, they are lost when systemd \
                 reloads: {cause}"
            );
            assert_eq!(report.warnings(), [expected]);
        }
    }
}
