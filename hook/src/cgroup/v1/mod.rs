//! cgroup v1: a list of rules for each cgroup, in the control files `devices.list`,
//! `devices.allow` and `devices.deny` (admin-guide/cgroup-v1/devices of the kernel).

mod list;
#[cfg(test)]
mod tests;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use caps::Capability;

use super::CgroupDir;
use super::error::CgroupError;
use super::privilege;
use super::report::{LevelReport, Outcome};
use super::rule::DeviceRule;
pub(super) use list::DeviceList;

/// Adds the rules that are missing in the list of the cgroup.
pub(super) fn allow(
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<Vec<LevelReport>, CgroupError> {
    let outcome = match DeviceList::read(&cgroup.dir)? {
        // A list that allows everything has exceptions, which the kernel does not show.
        // Writing a rule removes its exception, and has no effect if there is none.
        DeviceList::AllowsAll => match write_rules(cgroup, rules)? {
            Outcome::NoPermission { .. } | Outcome::Written { .. } => Outcome::AlreadyAllowed,
            outcome => outcome,
        },
        list => {
            let missing: Vec<_> = rules.iter().filter(|rule| !list.allows(rule)).collect();
            if missing.is_empty() {
                Outcome::AlreadyAllowed
            } else {
                write_rules(cgroup, missing)?
            }
        }
    };
    Ok(vec![LevelReport {
        cgroup: cgroup.dir.clone(),
        has_other_processes: false,
        outcome,
    }])
}

/// Returns whether the list of the cgroup denies anything.
pub(super) fn restricts(dir: &Path) -> Result<bool, CgroupError> {
    Ok(DeviceList::read(dir)? != DeviceList::AllowsAll)
}

/// Writes the lines of `before` again that are no longer in the list, and returns their
/// number.
pub(super) fn restore_lines(cgroup: &CgroupDir, before: &DeviceList) -> Result<usize, CgroupError> {
    let now = DeviceList::read(&cgroup.dir)?;
    let lost_lines = before.find_lines_missing_in(&now);
    for line in &lost_lines {
        write_rule(&cgroup.dir, line).map_err(|source| CgroupError::Write {
            path: cgroup.dir.join("devices.allow"),
            rule: line.to_string(),
            source,
        })?;
    }
    Ok(lost_lines.len())
}

/// Removes the rules from the list of the cgroup.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(super) fn deny(cgroup: &CgroupDir, rules: &[DeviceRule]) -> Result<(), CgroupError> {
    let path = cgroup.dir.join("devices.deny");
    for rule in rules {
        let rule = rule.to_string();
        std::fs::write(&path, &rule).map_err(|source| CgroupError::Write {
            path: path.clone(),
            rule,
            source,
        })?;
    }
    Ok(())
}

fn write_rules<'a>(
    cgroup: &CgroupDir,
    rules: impl IntoIterator<Item = &'a DeviceRule>,
) -> Result<Outcome, CgroupError> {
    const NO_PERMISSION: Outcome = Outcome::NoPermission {
        operation: "write devices.allow",
    };
    let mut written = 0;
    for rule in rules {
        match write_rule(&cgroup.dir, rule) {
            Ok(()) => written += 1,
            Err(source) => match explain_refusal(cgroup, rule, source)? {
                WriteRefusal::Privilege => return Ok(NO_PERMISSION),
                WriteRefusal::Error(error) => return Err(error),
            },
        }
    }
    Ok(Outcome::Written { rules: written })
}

/// Writes one rule, because the kernel accepts one rule per write.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
fn write_rule(dir: &Path, rule: &impl ToString) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .open(dir.join("devices.allow"))?;
    file.write_all(rule.to_string().as_bytes())
}

/// The cause of a refused rule.
enum WriteRefusal {
    Privilege,
    Error(CgroupError),
}

/// Finds the cause of EPERM or EACCES: an ancestor denies the device, or the process lacks
/// privileges. If neither is the case, something else refuses the rule, such as a security
/// module.
fn explain_refusal(
    cgroup: &CgroupDir,
    rule: &DeviceRule,
    source: io::Error,
) -> Result<WriteRefusal, CgroupError> {
    let refused = matches!(
        source.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    );
    if refused {
        for ancestor in cgroup.levels().skip(1) {
            if !DeviceList::read(ancestor.dir)?.allows(rule) {
                return Ok(WriteRefusal::Error(CgroupError::AncestorDenies {
                    cgroup: cgroup.dir.clone(),
                    ancestor: ancestor.dir.to_owned(),
                    rule: *rule,
                }));
            }
        }
        if source.kind() != io::ErrorKind::PermissionDenied
            || !privilege::has_capabilities(&[Capability::CAP_SYS_ADMIN])
        {
            return Ok(WriteRefusal::Privilege);
        }
    }
    Ok(WriteRefusal::Error(CgroupError::Write {
        path: cgroup.dir.join("devices.allow"),
        rule: rule.to_string(),
        source,
    }))
}
