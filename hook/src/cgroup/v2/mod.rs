//! cgroup v2: programs that are attached to the container's cgroup and its ancestors, and must
//! all admit a device (`BPF_PROG_TYPE_CGROUP_DEVICE`, Linux 4.15).
//!
//! An additional program can only deny more. Therefore each program that denies a requested
//! device is replaced by a program that admits the device and otherwise decides as before.
//! This is done at the container's own cgroup, and at slices and services of systemd; there it
//! applies to all their processes until systemd sets the rules of the unit again. A program of
//! any other ancestor, such as another container, is not changed, because the change would
//! persist after the end of the container, when no process of Boathook runs.

mod assembler;
mod evaluator;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod insn;
mod kernel;
mod level;
mod load;
mod replace;
mod request;
mod rewrite;
#[cfg(test)]
mod tests;

use std::path::Path;

use nix::errno::Errno;

use super::error::CgroupError;
use super::report::{LevelReport, Outcome};
use super::rule::DeviceRule;
use super::spec_rules::SpecRules;
use super::{Ancestor, CgroupDir, CgroupOwner};
use crate::sys::bpf::ProgramScope;
use evaluator::UnsupportedInstruction;
pub(crate) use kernel::hides_new_programs;
use kernel::{Kernel, RunningKernel};
use level::Level;
use rewrite::find_denied;

/// A change that the programs of a cgroup need.
#[derive(Clone, Copy)]
struct RequiredChange<'a> {
    /// The devices to admit, with at most one rule for each device.
    rules: &'a [DeviceRule],
    /// The devices that the container's own programs must not admit any longer.
    withdrawn: &'a [DeviceRule],
    /// The runtime's rules, for programs that must be generated again.
    spec: &'a SpecRules,
}

/// Changes the programs of the container's cgroup, and of systemd's slices and services above
/// it, so that they admit the devices of `rules`. The programs of the container's own cgroups
/// also stop admitting the devices of `withdrawn`. Each program is replaced only once.
pub(super) fn change_programs(
    cgroup: &CgroupDir,
    withdrawn: &[DeviceRule],
    rules: &[DeviceRule],
    spec: &SpecRules,
) -> Result<Vec<LevelReport>, CgroupError> {
    let required = RequiredChange {
        rules,
        withdrawn,
        spec,
    };
    change_on(&RunningKernel, cgroup, required)
}

/// Fails if a program that must not be changed for a container denies a device.
pub(super) fn check_enclosing(cgroup: &CgroupDir, rules: &[DeviceRule]) -> Result<(), CgroupError> {
    let levels = open_levels(&RunningKernel, cgroup)?;
    check_enclosing_programs(&RunningKernel, cgroup, &levels, rules).map(drop)
}

/// Returns whether a cgroup has programs of its own. Without the privileges to query that, the
/// result is false, because nothing can be changed then either.
pub(super) fn restricts(dir: &Path) -> Result<bool, CgroupError> {
    let cgroup = RunningKernel
        .open_cgroup(dir)
        .map_err(|source| CgroupError::Read {
            path: dir.to_owned(),
            source,
        })?;
    let ids = RunningKernel
        .query(&cgroup, ProgramScope::Attached)
        .map(|attached| attached.ids)
        .or_else(|errno| ignore_missing_privileges(&RunningKernel, dir, errno))?;
    Ok(!ids.is_empty())
}

/// Returns an error, unless programs could not be read because privileges are missing. In that
/// case nothing can be changed either, and the result is empty.
fn ignore_missing_privileges<K: Kernel, T>(
    kernel: &K,
    dir: &Path,
    errno: Errno,
) -> Result<Vec<T>, CgroupError> {
    if kernel.lacks_privileges(errno) {
        Ok(Vec::new())
    } else {
        Err(CgroupError::ReadPrograms {
            cgroup: dir.to_owned(),
            source: errno,
        })
    }
}

/// Returns whether the kernel hides a program of the container's own cgroups.
pub(super) fn has_hidden_program(cgroup: &CgroupDir) -> Result<bool, CgroupError> {
    has_hidden_program_on(&RunningKernel, cgroup)
}

fn has_hidden_program_on<K: Kernel>(kernel: &K, cgroup: &CgroupDir) -> Result<bool, CgroupError> {
    let mut levels = open_levels(kernel, cgroup)?;
    levels.retain(Level::is_own);
    for level in levels {
        match level.has_hidden_program(kernel) {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            Err(errno) => drop(ignore_missing_privileges::<K, u32>(
                kernel,
                level.ancestor.dir,
                errno,
            )?),
        }
    }
    Ok(false)
}

/// Returns the rules that the programs of a cgroup and its ancestors deny, and the number of
/// programs that cannot be read.
pub(super) fn find_denied_rules(
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<(Vec<DeviceRule>, usize), CgroupError> {
    find_denied_rules_on(&RunningKernel, cgroup, rules)
}

fn find_denied_rules_on<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<(Vec<DeviceRule>, usize), CgroupError> {
    let opened = kernel
        .open_cgroup(&cgroup.dir)
        .map_err(|source| CgroupError::Read {
            path: cgroup.dir.clone(),
            source,
        })?;
    let check_privileges = |source| CgroupError::ReadPrograms {
        cgroup: cgroup.dir.clone(),
        source,
    };
    let effective = kernel
        .query(&opened, ProgramScope::Effective)
        .map_err(check_privileges)?;
    let (mut all, mut unreadable) = (Vec::new(), 0);
    for id in effective.ids {
        let program = kernel.open(id).map_err(check_privileges)?;
        let code = kernel.dump(&program).map_err(check_privileges)?;
        match find_denied(&code, rules) {
            Ok(denied) => all.extend(denied),
            Err(UnsupportedInstruction) => unreadable += 1,
        }
    }
    all.dedup();
    Ok((all, unreadable))
}

fn change_on<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    required: RequiredChange<'_>,
) -> Result<Vec<LevelReport>, CgroupError> {
    let levels = open_levels(kernel, cgroup)?;
    let Some(leaf) = levels.first().map(|level| &level.cgroup) else {
        return Err(CgroupError::NotVisible {
            cgroup: cgroup.path.clone(),
        });
    };
    let mut reports = match required.rules {
        [] => Vec::new(),
        rules => check_enclosing_programs(kernel, cgroup, &levels, rules)?,
    };
    for level in &levels {
        let is_changed = match level.ancestor.owner {
            CgroupOwner::Container => true,
            CgroupOwner::Unit => !required.rules.is_empty(),
            CgroupOwner::Enclosing => false,
        };
        if !is_changed {
            continue;
        }
        for outcome in level.change_programs(kernel, leaf, &required)? {
            let denied = matches!(outcome, Outcome::NoPermission { .. });
            reports.push(LevelReport {
                cgroup: level.ancestor.dir.to_owned(),
                has_other_processes: level.ancestor.owner == CgroupOwner::Unit,
                outcome,
            });
            if denied {
                return Ok(reports);
            }
        }
    }
    Ok(reports)
}

fn open_levels<'a, K: Kernel>(
    kernel: &K,
    cgroup: &'a CgroupDir,
) -> Result<Vec<Level<'a, K>>, CgroupError> {
    let open = |ancestor: Ancestor<'a>| {
        let cgroup = kernel
            .open_cgroup(ancestor.dir)
            .map_err(|source| CgroupError::Read {
                path: ancestor.dir.to_owned(),
                source,
            })?;
        Ok(Level { ancestor, cgroup })
    };
    cgroup.levels().map(open).collect()
}

/// Checks the programs that apply to the container but must not be changed: those of cgroups
/// that enclose the container's, and those above the highest visible cgroup. A program that
/// denies a device is an error; a program that cannot be read is reported.
fn check_enclosing_programs<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    levels: &[Level<'_, K>],
    rules: &[DeviceRule],
) -> Result<Vec<LevelReport>, CgroupError> {
    let check_privileges = |errno| ignore_missing_privileges(kernel, &cgroup.dir, errno);
    let mut reports = Vec::new();
    for (program, attached_to) in list_fixed_programs(kernel, levels).or_else(check_privileges)? {
        let code = match kernel.open(program).and_then(|it| kernel.dump(&it)) {
            Ok(code) => code,
            // The program was removed concurrently.
            Err(Errno::ENOENT) => continue,
            Err(errno) => {
                check_privileges(errno)?;
                continue;
            }
        };
        match (find_denied(&code, rules), attached_to) {
            (Ok(denied), attached_to) => {
                let Some(rule) = denied.first().copied() else {
                    continue;
                };
                return Err(match attached_to {
                    Some(ancestor) => CgroupError::AncestorDenies {
                        cgroup: cgroup.dir.clone(),
                        ancestor: ancestor.to_owned(),
                        rule,
                    },
                    None => CgroupError::HiddenAncestorDenies {
                        mount: cgroup.mount.clone(),
                        program,
                        rule,
                    },
                });
            }
            (Err(UnsupportedInstruction), attached_to) => reports.push(LevelReport {
                cgroup: attached_to.unwrap_or(&cgroup.mount).to_owned(),
                has_other_processes: true,
                outcome: Outcome::Unreadable { program },
            }),
        }
    }
    Ok(reports)
}

/// Returns the programs that apply to the container but are attached to no cgroup that may be
/// changed, each with its cgroup if that is visible.
fn list_fixed_programs<'a, K: Kernel>(
    kernel: &K,
    levels: &[Level<'a, K>],
) -> Result<Vec<(u32, Option<&'a Path>)>, Errno> {
    let Some(leaf) = levels.first() else {
        return Ok(Vec::new());
    };
    let effective = || kernel.query(&leaf.cgroup, ProgramScope::Effective);
    let mut found: Vec<_> = effective()?.ids.into_iter().map(|id| (id, None)).collect();
    for level in levels {
        if found.is_empty() {
            return Ok(found);
        }
        let attached = kernel.query(&level.cgroup, ProgramScope::Attached)?.ids;
        if level.ancestor.owner == CgroupOwner::Enclosing {
            for (_, attached_to) in found.iter_mut().filter(|(id, _)| attached.contains(id)) {
                *attached_to = Some(level.ancestor.dir);
            }
        } else {
            found.retain(|(id, _)| !attached.contains(id));
        }
    }
    if !found.is_empty() {
        // A program may have been replaced since the cgroups were queried; it is left out.
        let effective = effective()?.ids;
        found.retain(|(id, _)| effective.contains(id));
    }
    Ok(found)
}
