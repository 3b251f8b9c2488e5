//! Changes device rules on cgroup v2. The rules are device programs (`BPF_PROG_TYPE_CGROUP_DEVICE`,
//! Linux 4.15), which are attached to the container's cgroup and its ancestors. A process may open
//! a device only if all of these programs admit it.
//!
//! An additional program could only deny more devices. So to allow a device, each program that
//! denies it is replaced. The new program admits the device, and decides about all others like the
//! old one.
//!
//! Programs of the container's own cgroup and of systemd's slices and services are replaced. In a
//! slice or service, the change applies to all processes of the unit, until systemd sets the rules
//! of the unit again. A program of any other ancestor, such as that of another container, is never
//! replaced. The change would remain after the end of the container, when no process of Boathook
//! runs to undo it.

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
use super::report::{CgroupReport, RuleChangeOutcome};
use super::rule::DeviceRule;
use super::spec_rules::SpecRules;
use super::{Ancestor, CgroupDir, CgroupOwner};
use crate::sys::bpf::ProgramScope;
use evaluator::UnsupportedInstruction;
pub use kernel::hides_new_programs;
use kernel::{Kernel, RunningKernel};
use level::CgroupLevel;
use rewrite::find_rules_denied_by_program;

#[derive(Clone, Copy)]
struct RequiredChange<'a> {
    /// The devices that the programs must admit, with at most one rule for each device.
    rules: &'a [DeviceRule],
    /// The rules of devices that the container's own programs must no longer admit.
    revoked_rules: &'a [DeviceRule],
    /// The device rules that the runtime enforces. If the kernel hides the runtime's device
    /// program, a new program is generated from these rules.
    spec_rules: &'a SpecRules,
}

/// Changes the device programs of the container's cgroup, and of the systemd slices and services
/// above it, so that they admit the devices of `rules`. The programs of the container's own cgroups
/// also stop admitting the devices of `revoked_rules`. Each program is replaced at most once.
pub(super) fn change_programs(
    cgroup: &CgroupDir,
    revoked_rules: &[DeviceRule],
    rules: &[DeviceRule],
    spec_rules: &SpecRules,
) -> Result<Vec<CgroupReport>, CgroupError> {
    let change = RequiredChange {
        rules,
        revoked_rules,
        spec_rules,
    };
    change_programs_with_kernel(&RunningKernel, cgroup, change)
}

/// Checks that no device program of an enclosing cgroup denies one of `rules`. If a program does,
/// this is an error, because the programs of enclosing cgroups are never changed.
pub(super) fn check_enclosing_cgroups(
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<(), CgroupError> {
    let levels = open_levels(&RunningKernel, cgroup)?;
    check_enclosing_programs(&RunningKernel, cgroup, &levels, rules).map(drop)
}

/// Reports whether device programs are attached to a cgroup. `dir` is the directory of the cgroup.
///
/// Returns false if this process does not have the privileges to list programs, because it then
/// cannot change any program either.
pub(super) fn restricts_devices(dir: &Path) -> Result<bool, CgroupError> {
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

/// Handles the error `errno` of a call that lists or reads device programs. Returns an empty list
/// if this process does not have the privileges, because it then cannot change any program either.
/// Returns any other error.
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

/// Reports whether a hidden device program is attached to the container's own cgroups. The kernel
/// does not show the instructions of such a program (`net.core.bpf_jit_harden=2`).
pub(super) fn is_device_program_hidden(cgroup: &CgroupDir) -> Result<bool, CgroupError> {
    has_hidden_program_with_kernel(&RunningKernel, cgroup)
}

fn has_hidden_program_with_kernel<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
) -> Result<bool, CgroupError> {
    let mut levels = open_levels(kernel, cgroup)?;
    levels.retain(CgroupLevel::belongs_to_container);
    for level in levels {
        match level.is_device_program_hidden(kernel) {
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

/// Returns those of `rules` that device programs of the cgroup or its ancestors deny. Also returns
/// the number of programs that cannot be evaluated. Such programs may deny more.
pub(super) fn find_denied_rules(
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<(Vec<DeviceRule>, usize), CgroupError> {
    find_denied_rules_with_kernel(&RunningKernel, cgroup, rules)
}

fn find_denied_rules_with_kernel<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    rules: &[DeviceRule],
) -> Result<(Vec<DeviceRule>, usize), CgroupError> {
    let cgroup_file = kernel
        .open_cgroup(&cgroup.dir)
        .map_err(|source| CgroupError::Read {
            path: cgroup.dir.clone(),
            source,
        })?;
    let to_read_error = |source| CgroupError::ReadPrograms {
        cgroup: cgroup.dir.clone(),
        source,
    };
    let read_programs = || {
        let effective_programs = kernel.query(&cgroup_file, ProgramScope::Effective)?;
        let codes = effective_programs
            .ids
            .into_iter()
            .map(|id| kernel.open(id).and_then(|program| kernel.dump(&program)));
        codes.collect::<Result<Vec<_>, Errno>>()
    };
    let programs = match read_programs() {
        // ENOENT means that another process, such as systemd, has replaced a program after it was
        // listed. So the programs are listed again, but only once.
        Err(Errno::ENOENT) => read_programs(),
        result => result,
    };
    let (mut denied_rules, mut unreadable_program_count) = (Vec::new(), 0);
    for code in programs.map_err(to_read_error)? {
        match find_rules_denied_by_program(&code, rules) {
            Ok(program_denied_rules) => {
                for rule in program_denied_rules {
                    if !denied_rules.contains(&rule) {
                        denied_rules.push(rule);
                    }
                }
            }
            Err(UnsupportedInstruction) => unreadable_program_count += 1,
        }
    }
    Ok((denied_rules, unreadable_program_count))
}

fn change_programs_with_kernel<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    change: RequiredChange<'_>,
) -> Result<Vec<CgroupReport>, CgroupError> {
    let levels = open_levels(kernel, cgroup)?;
    let Some(leaf) = levels.first().map(|level| &level.cgroup) else {
        return Err(CgroupError::NotVisible {
            cgroup: cgroup.path.clone(),
        });
    };
    let mut reports = match change.rules {
        [] => Vec::new(),
        rules => check_enclosing_programs(kernel, cgroup, &levels, rules)?,
    };
    for level in &levels {
        let must_change = match level.ancestor.owner {
            CgroupOwner::Container => true,
            CgroupOwner::Unit => !change.rules.is_empty(),
            CgroupOwner::Enclosing => false,
        };
        if !must_change {
            continue;
        }
        for outcome in level.change_programs(kernel, leaf, &change)? {
            let lacks_privileges = matches!(outcome, RuleChangeOutcome::NoPermission { .. });
            reports.push(CgroupReport {
                cgroup: level.ancestor.dir.to_owned(),
                has_other_processes: level.ancestor.owner == CgroupOwner::Unit,
                outcome,
            });
            if lacks_privileges {
                return Ok(reports);
            }
        }
    }
    Ok(reports)
}

fn open_levels<'a, K: Kernel>(
    kernel: &K,
    cgroup: &'a CgroupDir,
) -> Result<Vec<CgroupLevel<'a, K>>, CgroupError> {
    let open = |ancestor: Ancestor<'a>| {
        let cgroup = kernel
            .open_cgroup(ancestor.dir)
            .map_err(|source| CgroupError::Read {
                path: ancestor.dir.to_owned(),
                source,
            })?;
        Ok(CgroupLevel { ancestor, cgroup })
    };
    cgroup.self_and_ancestors().map(open).collect()
}

/// Checks the device programs that apply to the container but that Boathook never changes. They
/// belong to cgroups that enclose the container's cgroup. Some of these may be above the mount
/// point, where this process does not see them.
///
/// Fails if such a program denies one of `rules`. Returns a report for each program that cannot be
/// evaluated, because it may deny a device.
fn check_enclosing_programs<K: Kernel>(
    kernel: &K,
    cgroup: &CgroupDir,
    levels: &[CgroupLevel<'_, K>],
    rules: &[DeviceRule],
) -> Result<Vec<CgroupReport>, CgroupError> {
    let check_privileges = |errno| ignore_missing_privileges(kernel, &cgroup.dir, errno);
    let mut reports = Vec::new();
    let programs = list_enclosing_programs(kernel, levels).or_else(check_privileges)?;
    for (program_id, attachment_dir) in programs {
        let code = match kernel
            .open(program_id)
            .and_then(|opened_program| kernel.dump(&opened_program))
        {
            Ok(code) => code,
            // Another process has removed the program after it was listed, so it no longer denies
            // anything.
            Err(Errno::ENOENT) => continue,
            Err(errno) => {
                check_privileges(errno)?;
                continue;
            }
        };
        match (find_rules_denied_by_program(&code, rules), attachment_dir) {
            (Ok(denied), attachment_dir) => {
                let Some(rule) = denied.first().copied() else {
                    continue;
                };
                return Err(match attachment_dir {
                    Some(ancestor) => CgroupError::AncestorDenies {
                        cgroup: cgroup.dir.clone(),
                        ancestor: ancestor.to_owned(),
                        rule,
                    },
                    None => CgroupError::HiddenAncestorDenies {
                        mount: cgroup.mount.clone(),
                        program_id,
                        rule,
                    },
                });
            }
            (Err(UnsupportedInstruction), attachment_dir) => reports.push(CgroupReport {
                cgroup: attachment_dir.unwrap_or(&cgroup.mount).to_owned(),
                has_other_processes: true,
                outcome: RuleChangeOutcome::UnreadableProgram { program_id },
            }),
        }
    }
    Ok(reports)
}

/// Returns the ids of the device programs that apply to the container but that Boathook never
/// changes. The path of an id is the directory of the cgroup to which the program is attached. It
/// is `None` if this process does not see this cgroup.
fn list_enclosing_programs<'a, K: Kernel>(
    kernel: &K,
    levels: &[CgroupLevel<'a, K>],
) -> Result<Vec<(u32, Option<&'a Path>)>, Errno> {
    let Some(leaf) = levels.first() else {
        return Ok(Vec::new());
    };
    let query_effective = || kernel.query(&leaf.cgroup, ProgramScope::Effective);
    let effective_ids = query_effective()?.ids;
    let mut programs: Vec<_> = effective_ids.into_iter().map(|id| (id, None)).collect();
    for level in levels {
        if programs.is_empty() {
            return Ok(programs);
        }
        let attached = kernel.query(&level.cgroup, ProgramScope::Attached)?.ids;
        if level.ancestor.owner == CgroupOwner::Enclosing {
            for (_, attachment_dir) in programs.iter_mut().filter(|(id, _)| attached.contains(id)) {
                *attachment_dir = Some(level.ancestor.dir);
            }
        } else {
            programs.retain(|(id, _)| !attached.contains(id));
        }
    }
    if !programs.is_empty() {
        // A program may have been replaced while the cgroups were queried. Only the programs that
        // still apply are returned.
        let effective_ids = query_effective()?.ids;
        programs.retain(|(id, _)| effective_ids.contains(id));
    }
    Ok(programs)
}
