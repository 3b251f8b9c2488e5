//! cgroup v2: programs at the container's cgroup and its ancestors, which all
//! have to admit a device (`BPF_PROG_TYPE_CGROUP_DEVICE`, since Linux 4.15).
//!
//! A program that is added can only deny more. So each program that denies a
//! wanted device gives way to one that admits it and otherwise does as the old
//! one did. An ancestor's program is widened for all of its subtree; whatever
//! else lives there is held back by programs of its own.

mod assembler;
#[cfg(test)]
mod attach_tests;
mod evaluator;
#[cfg(test)]
mod fake_kernel;
mod insn;
mod kernel;
mod level;
mod load;
#[cfg(test)]
mod old_programs;
#[cfg(test)]
mod on_this_kernel;
#[cfg(test)]
mod other_machine;
#[cfg(test)]
mod program_properties;
#[cfg(test)]
mod program_tests;
mod replace;
mod request;
mod rewrite;

use std::path::Path;

use nix::errno::Errno;

use super::CgroupDir;
use super::error::CgroupError;
use super::report::{LevelReport, Outcome, Report};
use super::rule::DeviceRule;
use super::spec_rules::SpecRules;
use crate::sys::bpf::Scope;
use evaluator::NotUnderstood;
use kernel::{Kernel, Running};
use level::Level;
use rewrite::denied;

/// What programs have to admit.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    /// The devices; at most one rule for each.
    rules: &'a [DeviceRule],
    /// What the runtime enforces, for programs that have to be made anew.
    spec: &'a SpecRules,
}

/// See [`DeviceCgroup::allow`](super::DeviceCgroup::allow).
pub(super) fn allow(
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
    spec: &SpecRules,
) -> Result<Report, CgroupError> {
    allow_on(&Running, cgroup, Wanted { rules, spec })
}

/// Whether a cgroup has programs of its own. If we may not know, it has none:
/// then there is nothing that we may change either.
pub(super) fn restricts(dir: &Path) -> Result<bool, CgroupError> {
    let cgroup = Running.cgroup(dir).map_err(|source| CgroupError::Read {
        path: dir.to_owned(),
        source,
    })?;
    let attached = Running.query(&cgroup, Scope::Attached);
    Ok(attached.is_ok_and(|attached| !attached.ids.is_empty()))
}

fn allow_on<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    wanted: Wanted<'_>,
) -> Result<Report, CgroupError> {
    let mut levels = Vec::new();
    for dir in cgroup.levels() {
        levels.push(Level::<K> {
            dir,
            cgroup: kernel.cgroup(dir).map_err(|source| CgroupError::Read {
                path: dir.to_owned(),
                source,
            })?,
            own: is_own(cgroup, dir),
        });
    }
    let Some(leaf) = levels.first().map(|level| &level.cgroup) else {
        return Err(CgroupError::NotVisible {
            cgroup: cgroup.path.clone(),
        });
    };

    let mut report = Report {
        levels: check_hidden(kernel, cgroup, &levels, wanted.rules)?,
    };
    for level in &levels {
        for outcome in level.allow(kernel, leaf, &wanted)? {
            report.levels.push(LevelReport {
                cgroup: level.dir.to_owned(),
                outcome,
            });
        }
        if report.lacks_permission() {
            break;
        }
    }
    Ok(report)
}

/// Whether a level is there for the container alone: its own cgroup, and the
/// scope around it, where the runtime has put it into a cgroup below one (crun).
fn is_own(cgroup: &CgroupDir, level: &Path) -> bool {
    let is = |dir: &Path, suffix: &str| dir.extension().is_some_and(|found| found == suffix);
    let leaf = cgroup.dir.as_path();
    let leaf_is_unit = ["scope", "service", "slice"]
        .iter()
        .any(|suffix| is(leaf, suffix));
    level != cgroup.mount
        && (level == leaf || !leaf_is_unit && leaf.parent() == Some(level) && is(level, "scope"))
}

/// Looks for programs above the highest level that can be seen. They can be
/// read by id, but not replaced; if one denies, nothing else is worth doing.
fn check_hidden<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    levels: &[Level<'_, K>],
    rules: &[DeviceRule],
) -> Result<Vec<LevelReport>, CgroupError> {
    let mut reports = Vec::new();
    for program in hidden(kernel, levels).unwrap_or_default() {
        let Ok(code) = kernel.open(program).and_then(|it| kernel.dump(&it)) else {
            continue;
        };
        match denied(&code, rules) {
            Ok(denied) => {
                if let Some(rule) = denied.first() {
                    return Err(CgroupError::HiddenAncestorDenies {
                        mount: cgroup.mount.clone(),
                        program,
                        rule: *rule,
                    });
                }
            }
            Err(NotUnderstood) => reports.push(LevelReport {
                cgroup: cgroup.mount.clone(),
                outcome: Outcome::Unreadable { program },
            }),
        }
    }
    Ok(reports)
}

/// Programs that decide for the container but are attached to none of `levels`.
fn hidden<K: Kernel>(kernel: &K, levels: &[Level<'_, K>]) -> Result<Vec<u32>, Errno> {
    let Some(leaf) = levels.first() else {
        return Ok(Vec::new());
    };
    let mut hidden = kernel.query(&leaf.cgroup, Scope::Effective)?.ids;
    for level in levels {
        let attached = kernel.query(&level.cgroup, Scope::Attached)?.ids;
        hidden.retain(|id| !attached.contains(id));
    }
    if !hidden.is_empty() {
        // Some may only have been replaced in the meantime.
        let effective = kernel.query(&leaf.cgroup, Scope::Effective)?.ids;
        hidden.retain(|id| effective.contains(id));
    }
    Ok(hidden)
}
