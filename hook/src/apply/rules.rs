//! Telling the container's cgroup.

use device_class::plan::{Action, Granted, InjectionPlan};

use super::ApplyError;
use crate::cgroup::systemd::{SystemdError, SystemdReport};
use crate::cgroup::{DeviceCgroup, DeviceRule, Grant, SpecRules};

/// Lets the container's cgroup use the plan's devices. Gives back what was
/// done otherwise than one would expect.
pub(super) fn allow(
    plan: &InjectionPlan,
    pid: i32,
    granted: &Granted,
) -> Result<Vec<String>, ApplyError> {
    let rules = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Allow { rule, .. } => Some(DeviceRule::try_from(rule)),
        _ => None,
    });
    let rules: Vec<DeviceRule> = rules.collect::<Result<_, _>>()?;
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let Some(cgroup) = DeviceCgroup::of(pid)? else {
        return Ok(vec![
            "this host has no device cgroup, so no device rule was set".into(),
        ]);
    };
    let grant = cgroup.grant(&rules, &SpecRules::of_container(&granted.rules))?;
    Ok(notes(&grant))
}

/// What was done otherwise than one would expect.
fn notes(grant: &Grant) -> Vec<String> {
    let of_unit = |unit: &Result<SystemdReport, SystemdError>| match unit {
        Ok(report) => report.is_remarkable().then(|| report.to_string()),
        Err(error) => Some(format!(
            "{error}: {}; the devices are lost when systemd reloads",
            error.source
        )),
    };
    let mut notes: Vec<_> = grant.units.iter().filter_map(of_unit).collect();
    if grant.levels.lacks_permission() || grant.levels.in_doubt() {
        notes.push(grant.levels.to_string().replace('\n', "; "));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::cgroup::systemd::{BusError, LinkReport, Unit, UnitOutcome};
    use crate::cgroup::{LevelReport, Outcome, Report};

    fn grant(unit: Option<(UnitOutcome, Vec<LinkReport>)>, levels: Vec<Outcome>) -> Grant {
        let level = |outcome| LevelReport {
            cgroup: "/sys/fs/cgroup/c".into(),
            outcome,
        };
        let report = |(outcome, links)| SystemdReport {
            unit: scope(),
            outcome,
            links,
        };
        Grant {
            units: unit.map(report).map(Ok).into_iter().collect(),
            levels: Report {
                levels: levels.into_iter().map(level).collect(),
            },
        }
    }

    fn scope() -> Unit {
        Unit::of(Path::new("/c.scope")).unwrap()
    }

    #[test]
    fn what_went_as_expected_is_not_worth_a_word() {
        for outcome in [
            UnitOutcome::NoSystemd,
            UnitOutcome::UnknownUnit,
            UnitOutcome::Unrestricted,
            UnitOutcome::AlreadyAllowed,
            UnitOutcome::Added { entries: 2 },
        ] {
            let levels = vec![Outcome::Rewritten { program: 7 }, Outcome::NoProgram];
            let notes = notes(&grant(Some((outcome, vec![])), levels));
            assert_eq!(notes, [] as [&str; 0], "{outcome:?}");
        }
    }

    #[test]
    fn what_an_old_systemd_needed_is_said() {
        let path = PathBuf::from("/dev/char/10:183");
        let reason = "no node c 10:183 rw under /dev".to_string();
        for (link, said) in [
            (
                LinkReport::Made(path.clone()),
                "c.scope: 1 entries added to DeviceAllow; /dev/char/10:183 made for an old systemd",
            ),
            (
                LinkReport::Missing { path, reason },
                "c.scope: 1 entries added to DeviceAllow; /dev/char/10:183 is missing: no node \
                 c 10:183 rw under /dev; this old systemd forgets the device when it reloads",
            ),
        ] {
            let unit = (UnitOutcome::Added { entries: 1 }, vec![link]);
            assert_eq!(notes(&grant(Some(unit), vec![])), [said]);
        }
    }

    #[test]
    fn missing_permission_is_said() {
        let unit = (UnitOutcome::NoPermission, vec![]);
        let denied = Outcome::NoPermission {
            operation: "read programs",
        };
        assert_eq!(
            notes(&grant(Some(unit), vec![denied])),
            [
                "c.scope: no permission to change the unit; rules may be lost on daemon-reload",
                "/sys/fs/cgroup/c: no permission to read programs; device rules left as they are",
            ]
        );
    }

    #[test]
    fn a_failure_of_systemd_is_said_with_what_it_means() {
        let failed = SystemdError {
            unit: scope(),
            source: BusError::TooSlow,
        };
        let failed = Grant {
            units: vec![Err(failed)],
            ..grant(None, vec![])
        };
        assert_eq!(
            notes(&failed),
            [
                "cannot allow devices in systemd unit c.scope, rules may be lost on \
                 daemon-reload: systemd does not answer; the devices are lost when systemd reloads"
            ]
        );
    }
}
