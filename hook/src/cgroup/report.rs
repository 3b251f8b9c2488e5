//! Reports what happened to each systemd unit and each cgroup when device rules were changed.

use std::fmt;
use std::path::PathBuf;

use super::rule::DeviceRule;
use super::systemd::{SystemdError, SystemdReport, UnitOutcome};

/// The result of [`DeviceCgroup::allow`](super::DeviceCgroup::allow) for each systemd unit and each
/// cgroup.
#[derive(Debug, Default)]
pub struct AllowReport {
    /// The device rules that the caller wanted to allow, merged to one rule for each device.
    pub rules: Vec<DeviceRule>,
    pub units: Vec<UnitReport>,
    /// The results for the container's cgroup and then for its ancestors. A cgroup that has several
    /// device programs has one entry for each program.
    pub cgroups: Vec<CgroupReport>,
}

/// The result for one systemd unit. If `result` is an error, the container can use the devices only
/// until systemd writes the unit's device rules to the cgroup again.
#[derive(Debug)]
pub struct UnitReport {
    /// True if processes of other containers or of the host may also belong to the unit. They can
    /// then also use the devices, so a change is reported to the administrator.
    pub has_other_processes: bool,
    pub result: Result<SystemdReport, SystemdError>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupReport {
    pub cgroup: PathBuf,
    /// True if processes of other containers or of the host may also be in the cgroup. They can
    /// then also use the devices, so a change is reported to the administrator.
    pub has_other_processes: bool,
    pub outcome: RuleChangeOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleChangeOutcome {
    /// No device program of this cgroup applies to the container, so this cgroup restricts nothing
    /// (cgroup v2).
    NoProgram,
    AlreadyAllowed,
    /// Rules were written to `devices.allow` (cgroup v1).
    Written {
        /// The number of rules that were written. A rule that the cgroup already allowed is not
        /// written, and does not count.
        rule_count: usize,
    },
    /// The device program `program_id` was replaced (cgroup v2). The new program admits the
    /// requested devices too, and decides about all other devices like the replaced program.
    Rewritten {
        program_id: u32,
    },
    /// The device program `program_id` was replaced by a program that was generated from
    /// config.json (cgroup v2). The old program could not be rewritten, because the kernel hides
    /// its instructions.
    Regenerated {
        program_id: u32,
    },
    /// The device program `program_id` cannot be evaluated, and may deny a requested device (cgroup
    /// v2). It was not changed, because it does not belong to the container.
    UnreadableProgram {
        program_id: u32,
    },
    /// The process does not have the privileges for `operation`, such as `write devices.allow`, so
    /// nothing was changed.
    NoPermission {
        operation: &'static str,
    },
}

impl AllowReport {
    /// Reports whether a rule was not changed because this process has too few privileges. This is
    /// usual for rootless containers, and no error.
    pub(crate) fn lacks_permission(&self) -> bool {
        self.has_outcome(|outcome| matches!(outcome, RuleChangeOutcome::NoPermission { .. }))
    }

    /// Reports whether a device program that cannot be evaluated may still deny a requested device.
    pub(crate) fn may_still_deny(&self) -> bool {
        self.has_outcome(|outcome| matches!(outcome, RuleChangeOutcome::UnreadableProgram { .. }))
    }

    fn has_outcome(&self, predicate: impl Fn(&RuleChangeOutcome) -> bool) -> bool {
        self.cgroups.iter().any(|level| predicate(&level.outcome))
    }

    /// Returns warnings for the administrator. They name rules that could not be set or may be
    /// lost, and devices that processes outside of the container can now use.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings: Vec<_> = self.units.iter().filter_map(UnitReport::warning).collect();
        if self.lacks_permission() || self.may_still_deny() {
            let levels: Vec<_> = self.cgroups.iter().map(CgroupReport::to_string).collect();
            warnings.push(levels.join("; "));
        }
        warnings.extend(self.list_changed_shared_cgroups().map(|cgroup| {
            let rules: Vec<_> = self.rules.iter().map(DeviceRule::to_string).collect();
            format!(
                "{cgroup} denied {}; allowed there now for every process in it that no other \
                 cgroup restricts, also after this container has ended",
                rules.join(", "),
            )
        }));
        warnings
    }

    /// Describes each changed systemd unit and cgroup that may also contain processes of other
    /// containers or of the host.
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
        let levels = self.cgroups.iter().filter(|level| {
            level.has_other_processes
                && matches!(
                    level.outcome,
                    RuleChangeOutcome::Rewritten { .. } | RuleChangeOutcome::Regenerated { .. }
                )
        });
        units.chain(levels.map(|level| format!("cgroup {}", level.cgroup.display())))
    }
}

impl UnitReport {
    fn warning(&self) -> Option<String> {
        match &self.result {
            Ok(report) => report.needs_log_entry().then(|| report.to_string()),
            Err(error) => Some(crate::log::format_error_chain(error)),
        }
    }
}

impl fmt::Display for CgroupReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.cgroup.display(), self.outcome)
    }
}

impl fmt::Display for RuleChangeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProgram => write!(f, "no program"),
            Self::AlreadyAllowed => write!(f, "already allowed"),
            Self::Written { rule_count } => write!(f, "{rule_count} device rules added"),
            Self::Rewritten { program_id } => write!(f, "program {program_id} rewritten"),
            Self::Regenerated { program_id } => write!(
                f,
                "program {program_id} cannot be read back, replaced by one generated from the spec"
            ),
            Self::UnreadableProgram { program_id } => write!(
                f,
                "program {program_id} cannot be read back and was left alone; if it denies the \
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
            cgroups: Vec::new(),
        }
    }

    fn level(outcome: RuleChangeOutcome) -> CgroupReport {
        CgroupReport {
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
            UnitOutcome::Added { entry_count: 2 },
        ] {
            let mut report = report(outcome, vec![]);
            report.cgroups = [
                RuleChangeOutcome::Rewritten { program_id: 7 },
                RuleChangeOutcome::NoProgram,
            ]
            .map(level)
            .into();
            assert_eq!(report.warnings(), [] as [&str; 0], "{outcome:?}");
        }
    }

    #[test]
    fn a_unit_or_cgroup_shared_with_others_is_named_when_it_changes() {
        let mut report = report(UnitOutcome::Added { entry_count: 2 }, vec![]);
        report.units[0].has_other_processes = true;
        report.cgroups = [
            RuleChangeOutcome::Rewritten { program_id: 7 },
            RuleChangeOutcome::AlreadyAllowed,
        ]
        .map(|outcome| CgroupReport {
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
            let report = report(UnitOutcome::Added { entry_count: 1 }, vec![link]);
            assert_eq!(report.warnings(), [expected]);
        }
    }

    #[test]
    fn missing_permission_is_reported() {
        let mut report = report(UnitOutcome::NoPermission, vec![]);
        report.cgroups = vec![level(RuleChangeOutcome::NoPermission {
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
