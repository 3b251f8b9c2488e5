//! Changes device rules on cgroup v1. Each cgroup of v1 has the control files `devices.list`,
//! `devices.allow` and `devices.deny` (admin-guide/cgroup-v1/devices in the kernel's
//! documentation).

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
use super::report::{CgroupReport, RuleChangeOutcome};
use super::rule::DeviceRule;
pub(super) use list::CgroupDeviceList;

/// Allows the devices of `rules`: writes each rule to `devices.allow` that the cgroup's
/// `devices.list` does not include.
pub(super) fn allow(
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<Vec<CgroupReport>, CgroupError> {
    let outcome = match CgroupDeviceList::read(&cgroup.dir)? {
        // A cgroup that allows all devices may still have exceptions, which the kernel does not
        // show. So every rule is written. The write removes an exception for the device, and has no
        // effect if there is none.
        CgroupDeviceList::AllDevices => match write_rules(cgroup, rules)? {
            RuleChangeOutcome::NoPermission { .. } | RuleChangeOutcome::Written { .. } => {
                RuleChangeOutcome::AlreadyAllowed
            }
            outcome => outcome,
        },
        list => {
            let missing_rules: Vec<_> = rules.iter().filter(|rule| !list.allows(rule)).collect();
            if missing_rules.is_empty() {
                RuleChangeOutcome::AlreadyAllowed
            } else {
                write_rules(cgroup, missing_rules)?
            }
        }
    };
    Ok(vec![CgroupReport {
        cgroup: cgroup.dir.clone(),
        has_other_processes: false,
        outcome,
    }])
}

/// Reports whether the cgroup with the directory `dir` restricts devices. If so, `devices.list`
/// names the allowed devices, and the kernel denies all others.
pub(super) fn restricts_devices(dir: &Path) -> Result<bool, CgroupError> {
    Ok(CgroupDeviceList::read(dir)? != CgroupDeviceList::AllDevices)
}

/// Writes those entries of `earlier_list` to `devices.allow` that the cgroup no longer allows.
/// systemd clears the list when it sets a unit's rules, so such entries are lost. Returns their
/// number.
pub(super) fn restore_entries(
    cgroup: &CgroupDir,
    earlier_list: &CgroupDeviceList,
) -> Result<usize, CgroupError> {
    let current_list = CgroupDeviceList::read(&cgroup.dir)?;
    let lost_entries = earlier_list.find_missing_entries(&current_list);
    for entry in &lost_entries {
        write_rule(&cgroup.dir, entry).map_err(|source| CgroupError::Write {
            path: cgroup.dir.join("devices.allow"),
            rule: entry.to_string(),
            source,
        })?;
    }
    Ok(lost_entries.len())
}

/// Writes `rules` to `devices.deny`, one rule per write. If the cgroup allows all devices, the
/// kernel adds an exception for each rule. Otherwise it removes the rule from the list.
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
) -> Result<RuleChangeOutcome, CgroupError> {
    const NO_PERMISSION: RuleChangeOutcome = RuleChangeOutcome::NoPermission {
        operation: "write devices.allow",
    };
    let mut written_count = 0;
    for rule in rules {
        match write_rule(&cgroup.dir, rule) {
            Ok(()) => written_count += 1,
            Err(source) => match explain_refusal(cgroup, rule, source)? {
                WriteRefusal::MissingPrivilege => return Ok(NO_PERMISSION),
                WriteRefusal::Error(error) => return Err(error),
            },
        }
    }
    Ok(RuleChangeOutcome::Written {
        rule_count: written_count,
    })
}

/// Writes one rule to `devices.allow`. The kernel accepts only one rule per write.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
fn write_rule(dir: &Path, rule: &impl ToString) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .open(dir.join("devices.allow"))?;
    file.write_all(rule.to_string().as_bytes())
}

enum WriteRefusal {
    MissingPrivilege,
    Error(CgroupError),
}

/// Finds out why the kernel refused the write of `rule` to `devices.allow`. `source` is the error
/// of the write.
///
/// EPERM or EACCES means that an ancestor denies the device, or that this process does not have
/// CAP_SYS_ADMIN. If neither is the case, something else refuses the rule, such as a security
/// module.
fn explain_refusal(
    cgroup: &CgroupDir,
    rule: &DeviceRule,
    source: io::Error,
) -> Result<WriteRefusal, CgroupError> {
    let is_refused = matches!(
        source.kind(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
    );
    if is_refused {
        for ancestor in cgroup.self_and_ancestors().skip(1) {
            if !CgroupDeviceList::read(ancestor.dir)?.allows(rule) {
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
            return Ok(WriteRefusal::MissingPrivilege);
        }
    }
    Ok(WriteRefusal::Error(CgroupError::Write {
        path: cgroup.dir.join("devices.allow"),
        rule: rule.to_string(),
        source,
    }))
}
