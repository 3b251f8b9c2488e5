//! cgroup v2: programs at the container's cgroup and its ancestors, which all
//! must admit a device (`BPF_PROG_TYPE_CGROUP_DEVICE`, since Linux 4.15).
//!
//! An additional program can only deny more. So each program that denies a
//! requested device is replaced by one that admits it and otherwise decides as
//! the old one did. This is done at the container's own cgroup, and at slices
//! and services of systemd, where it applies to all their processes until
//! systemd sets the unit's rules again. A program of any other ancestor, such
//! as another container's, is left alone: the change would persist after the
//! container's end, when nothing of Boathook runs.

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
use super::{Ancestor, CgroupDir, Owner};
use crate::sys::bpf::Scope;
use evaluator::NotUnderstood;
pub(crate) use kernel::hides_new_programs;
use kernel::{Kernel, Running};
use level::Level;
use rewrite::denied;

/// What programs must admit.
#[derive(Clone, Copy)]
struct Required<'a> {
    /// The devices; at most one rule for each.
    rules: &'a [DeviceRule],
    /// Devices that the container's own programs shall admit no more.
    withdrawn: &'a [DeviceRule],
    /// The runtime's rules, for programs that must be regenerated.
    spec: &'a SpecRules,
}

/// Makes every program of the container's cgroup, and of systemd's slices and services above
/// it, admit the devices of `rules`, and those of the container's own cgroups no more those of
/// `withdrawn`: each is replaced once.
pub(super) fn change(
    cgroup: &CgroupDir,
    withdrawn: &[DeviceRule],
    rules: &[DeviceRule],
    spec: &SpecRules,
) -> Result<Vec<LevelReport>, CgroupError> {
    let required = Required {
        rules,
        withdrawn,
        spec,
    };
    change_on(&Running, cgroup, required)
}

/// Fails if a program that is not changed for a container denies a device.
pub(super) fn check_enclosing(cgroup: &CgroupDir, rules: &[DeviceRule]) -> Result<(), CgroupError> {
    let levels = open_levels(&Running, cgroup)?;
    enclosing(&Running, cgroup, &levels, rules).map(drop)
}

/// Whether a cgroup has programs of its own. Without the privileges to read that, it
/// counts as having none, because then nothing can be changed either.
pub(super) fn restricts(dir: &Path) -> Result<bool, CgroupError> {
    let cgroup = Running.cgroup(dir).map_err(|source| CgroupError::Read {
        path: dir.to_owned(),
        source,
    })?;
    let attached = Running.query(&cgroup, Scope::Attached);
    let ids = attached.map(|attached| attached.ids);
    let ids = ids.or_else(|errno| unless_unprivileged(&Running, dir, errno))?;
    Ok(!ids.is_empty())
}

/// An error, unless programs cannot be read because privileges are missing: nothing
/// can be changed then either.
fn unless_unprivileged<K: Kernel, T>(
    kernel: &K,
    dir: &Path,
    errno: Errno,
) -> Result<Vec<T>, CgroupError> {
    match kernel.lacks_privileges(errno) {
        true => Ok(Vec::new()),
        false => Err(CgroupError::ReadPrograms {
            cgroup: dir.to_owned(),
            source: errno,
        }),
    }
}

/// Whether the kernel hides a program of the container's own cgroups.
pub(super) fn hides(cgroup: &CgroupDir) -> Result<bool, CgroupError> {
    hides_on(&Running, cgroup)
}

fn hides_on<K: Kernel>(kernel: &K, cgroup: &CgroupDir) -> Result<bool, CgroupError> {
    let mut levels = open_levels(kernel, cgroup)?;
    levels.retain(Level::is_own);
    for level in levels {
        match level.hides(kernel) {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            Err(errno) => drop(unless_unprivileged::<K, u32>(kernel, level.at.dir, errno)?),
        }
    }
    Ok(false)
}

/// What the programs that decide for a cgroup deny of some rules, and how many of
/// them cannot be read.
pub(super) fn denied_now(
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<(Vec<DeviceRule>, usize), CgroupError> {
    denied_on(&Running, cgroup, rules)
}

fn denied_on<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<(Vec<DeviceRule>, usize), CgroupError> {
    let opened = kernel.cgroup(&cgroup.dir);
    let opened = opened.map_err(|source| CgroupError::Read {
        path: cgroup.dir.clone(),
        source,
    })?;
    let unread = |source| CgroupError::ReadPrograms {
        cgroup: cgroup.dir.clone(),
        source,
    };
    let effective = kernel.query(&opened, Scope::Effective).map_err(unread)?;
    let (mut all, mut unreadable) = (Vec::new(), 0);
    for id in effective.ids {
        let program = kernel.open(id).map_err(unread)?;
        let code = kernel.dump(&program).map_err(unread)?;
        match denied(&code, rules) {
            Ok(denied) => all.extend(denied),
            Err(NotUnderstood) => unreadable += 1,
        }
    }
    all.dedup();
    Ok((all, unreadable))
}

fn change_on<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    required: Required<'_>,
) -> Result<Vec<LevelReport>, CgroupError> {
    let levels = open_levels(kernel, cgroup)?;
    let Some(leaf) = levels.first().map(|level| &level.cgroup) else {
        return Err(CgroupError::NotVisible {
            cgroup: cgroup.path.clone(),
        });
    };
    let mut reports = match required.rules {
        [] => Vec::new(),
        rules => enclosing(kernel, cgroup, &levels, rules)?,
    };
    for level in &levels {
        let is_concerned = match level.at.owner {
            Owner::Container => true,
            Owner::Unit => !required.rules.is_empty(),
            Owner::Enclosing => false,
        };
        if !is_concerned {
            continue;
        }
        for outcome in level.change(kernel, leaf, &required)? {
            let denied = matches!(outcome, Outcome::NoPermission { .. });
            reports.push(LevelReport {
                cgroup: level.at.dir.to_owned(),
                shared: level.at.owner == Owner::Unit,
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
    let open = |at: Ancestor<'a>| {
        let cgroup = kernel.cgroup(at.dir).map_err(|source| CgroupError::Read {
            path: at.dir.to_owned(),
            source,
        })?;
        Ok(Level { at, cgroup })
    };
    cgroup.levels().map(open).collect()
}

/// Checks the programs that apply to the container and are not changed: those
/// of cgroups that enclose the container's, and those above the highest visible
/// level. If one denies a device, that is an error; one that cannot be read is
/// reported.
fn enclosing<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    levels: &[Level<'_, K>],
    rules: &[DeviceRule],
) -> Result<Vec<LevelReport>, CgroupError> {
    let unread = |errno| unless_unprivileged(kernel, &cgroup.dir, errno);
    let mut reports = Vec::new();
    for (program, place) in out_of_reach(kernel, levels).or_else(unread)? {
        let code = match kernel.open(program).and_then(|it| kernel.dump(&it)) {
            Ok(code) => code,
            // It was removed meanwhile.
            Err(Errno::ENOENT) => continue,
            Err(errno) => {
                unread(errno)?;
                continue;
            }
        };
        match (denied(&code, rules), place) {
            (Ok(denied), place) => {
                let Some(rule) = denied.first().copied() else {
                    continue;
                };
                return Err(match place {
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
            (Err(NotUnderstood), place) => reports.push(LevelReport {
                cgroup: place.unwrap_or(&cgroup.mount).to_owned(),
                shared: true,
                outcome: Outcome::Unreadable { program },
            }),
        }
    }
    Ok(reports)
}

/// Programs that apply to the container but are attached to none of the levels
/// that may be changed, each with its cgroup if that is visible.
fn out_of_reach<'a, K: Kernel>(
    kernel: &K,
    levels: &[Level<'a, K>],
) -> Result<Vec<(u32, Option<&'a Path>)>, Errno> {
    let Some(leaf) = levels.first() else {
        return Ok(Vec::new());
    };
    let effective = || kernel.query(&leaf.cgroup, Scope::Effective);
    let mut found: Vec<_> = effective()?.ids.into_iter().map(|id| (id, None)).collect();
    for level in levels {
        if found.is_empty() {
            return Ok(found);
        }
        let attached = kernel.query(&level.cgroup, Scope::Attached)?.ids;
        if level.at.owner == Owner::Enclosing {
            for (_, place) in found.iter_mut().filter(|(id, _)| attached.contains(id)) {
                *place = Some(level.at.dir);
            }
        } else {
            found.retain(|(id, _)| !attached.contains(id));
        }
    }
    if !found.is_empty() {
        // Some may have been replaced in the meantime.
        let effective = effective()?.ids;
        found.retain(|(id, _)| effective.contains(id));
    }
    Ok(found)
}
