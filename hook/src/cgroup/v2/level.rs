//! Changes the device programs of one cgroup: the container's cgroup or one of its ancestors.

use nix::errno::Errno;

use super::kernel::{Kernel, PROGRAM_NAME};
use super::load::{LoadError, load_program};
use super::replace::replace_program;
use super::rewrite::{self, ProgramRewrite, has_hidden_instructions, rewrite_program};
use super::{RequiredChange, assembler};
use crate::cgroup::error::CgroupError;
use crate::cgroup::report::RuleChangeOutcome;
use crate::cgroup::{Ancestor, CgroupOwner};
use crate::sys::bpf::{Insn, ProgramScope};

/// The maximum number of attempts to change the device programs of a cgroup. Another attempt is
/// made if another process has changed the programs at the same time. After the last, the change
/// fails.
const MAX_ATTEMPTS: usize = 10;

/// A cgroup whose device programs apply to the container. It is the container's own cgroup or one
/// of its ancestors.
pub(super) struct CgroupLevel<'a, K: Kernel> {
    pub(super) ancestor: Ancestor<'a>,
    pub(super) cgroup: K::Cgroup,
}

/// The reason why an attempt to change device programs failed. Only after
/// [`Self::ConcurrentChange`] is another attempt made.
enum AttemptError {
    /// Another process removed a device program while this process was replacing it. The caller may
    /// try again.
    ConcurrentChange,
    /// This process does not have the privileges for the named operation, such as "read device
    /// programs".
    NoPermission(&'static str),
    Failed(CgroupError),
}

impl<K: Kernel> CgroupLevel<'_, K> {
    /// Reports whether a hidden device program is attached to this cgroup. The kernel does not show
    /// the instructions of such a program (`net.core.bpf_jit_harden=2`).
    pub(super) fn is_device_program_hidden(&self, kernel: &K) -> Result<bool, Errno> {
        for id in kernel.query(&self.cgroup, ProgramScope::Attached)?.ids {
            if has_hidden_instructions(&kernel.dump(&kernel.open(id)?)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports whether the cgroup contains only processes of this container.
    pub(super) fn belongs_to_container(&self) -> bool {
        self.ancestor.owner == CgroupOwner::Container
    }

    /// Changes the device programs of this cgroup so that they admit the devices of `change.rules`.
    /// If the cgroup belongs to the container, its programs also stop admitting the devices of
    /// `change.revoked_rules`. `leaf_cgroup` is the container's cgroup.
    pub(super) fn change_programs(
        &self,
        kernel: &K,
        leaf_cgroup: &K::Cgroup,
        change: &RequiredChange<'_>,
    ) -> Result<Vec<RuleChangeOutcome>, CgroupError> {
        let mut outcomes = Vec::new();
        for _ in 0..MAX_ATTEMPTS {
            match self.try_change_programs(kernel, leaf_cgroup, change, &mut outcomes) {
                Ok(()) => return Ok(outcomes),
                Err(AttemptError::ConcurrentChange) => {}
                Err(AttemptError::NoPermission(operation)) => {
                    outcomes.push(RuleChangeOutcome::NoPermission { operation });
                    return Ok(outcomes);
                }
                Err(AttemptError::Failed(error)) => return Err(error),
            }
        }
        Err(CgroupError::ConcurrentChanges {
            cgroup: self.ancestor.dir.to_owned(),
        })
    }

    fn try_change_programs(
        &self,
        kernel: &K,
        leaf_cgroup: &K::Cgroup,
        change: &RequiredChange<'_>,
        outcomes: &mut Vec<RuleChangeOutcome>,
    ) -> Result<(), AttemptError> {
        let to_list_error = |error| self.to_attempt_error(kernel, error, "list device programs");
        let to_read_error = |error| self.to_attempt_error(kernel, error, "read device programs");

        let attached_programs = kernel
            .query(&self.cgroup, ProgramScope::Attached)
            .map_err(to_list_error)?;
        // A program that was attached with BPF_F_ALLOW_OVERRIDE does not apply to the container if
        // a descendant cgroup has a program of its own. Such a program is not changed.
        let effective_programs = kernel
            .query(leaf_cgroup, ProgramScope::Effective)
            .map_err(to_list_error)?;
        let is_only_program = attached_programs.ids.len() == 1;
        let mut ids = attached_programs.ids;
        ids.retain(|id| effective_programs.ids.contains(id));
        if ids.is_empty() && outcomes.is_empty() {
            outcomes.push(RuleChangeOutcome::NoProgram);
        }

        for id in ids {
            let old_program = kernel.open(id).map_err(to_read_error)?;
            let code = kernel.dump(&old_program).map_err(to_read_error)?;
            let RequiredChange { revoked_rules, .. } = *change;
            let code_without_revoked_rules = if self.belongs_to_container() {
                rewrite::revoke_rules(
                    &code,
                    revoked_rules,
                    &change
                        .spec_rules
                        .retain_rules_with_exact_entry(revoked_rules),
                )
            } else {
                None
            };
            let admission = rewrite_program(
                code_without_revoked_rules.as_ref().unwrap_or(&code),
                change.rules,
            );
            let admission = match (admission, code_without_revoked_rules) {
                (ProgramRewrite::Unneeded, Some(code)) => ProgramRewrite::Replacement(code),
                (ProgramRewrite::Unneeded, None)
                    if self.belongs_to_container()
                        && !revoked_rules.is_empty()
                        && has_hidden_instructions(&code) =>
                {
                    ProgramRewrite::HiddenProgram
                }
                (admission, _) => admission,
            };
            let (new_program, outcome) = match admission {
                ProgramRewrite::Unneeded => continue,
                ProgramRewrite::Replacement(code) => match load_program(kernel, &code) {
                    Ok(new_program) => {
                        (new_program, RuleChangeOutcome::Rewritten { program_id: id })
                    }
                    Err(error) => return Err(self.to_load_error(kernel, &code, error)),
                },
                admission if self.belongs_to_container() => {
                    let description = kernel
                        .describe_program(&old_program)
                        .map_err(to_read_error)?;
                    // A hidden program is taken for the runtime's program if it is the only one of
                    // the cgroup and uses no map, or if Boathook has loaded it in its place. Then
                    // it depends only on config.json, so it can be generated again.
                    let is_runtime_program = admission == ProgramRewrite::HiddenProgram
                        && (is_only_program || description.name == PROGRAM_NAME)
                        && description.map_count == 0;
                    // If devices are only revoked, a program that is not the runtime's stays as it
                    // is. Boathook does not add devices to a program that it cannot read.
                    if !is_runtime_program && change.rules.is_empty() {
                        continue;
                    }
                    if !is_runtime_program {
                        return Err(AttemptError::Failed(CgroupError::ForeignProgram {
                            cgroup: self.ancestor.dir.to_owned(),
                            program_id: id,
                            name: description.name,
                        }));
                    }
                    self.regenerate_program(kernel, id, change)?
                }
                ProgramRewrite::HiddenProgram | ProgramRewrite::UnsupportedProgram => {
                    let outcome = RuleChangeOutcome::UnreadableProgram { program_id: id };
                    if !outcomes.contains(&outcome) {
                        outcomes.push(outcome);
                    }
                    continue;
                }
            };
            match replace_program(
                kernel,
                &self.cgroup,
                attached_programs.flags,
                &old_program,
                &new_program,
            ) {
                Ok(()) => outcomes.push(outcome),
                Err(Errno::ENOENT) => return Err(AttemptError::ConcurrentChange),
                Err(source) => {
                    return Err(AttemptError::Failed(CgroupError::Attach {
                        cgroup: self.ancestor.dir.to_owned(),
                        program_id: id,
                        source,
                    }));
                }
            }
        }
        if outcomes.is_empty() {
            outcomes.push(RuleChangeOutcome::AlreadyAllowed);
        }
        Ok(())
    }

    fn regenerate_program(
        &self,
        kernel: &K,
        old_id: u32,
        change: &RequiredChange<'_>,
    ) -> Result<(K::Program, RuleChangeOutcome), AttemptError> {
        let spec_rules = change.spec_rules.with_denied_rules(change.revoked_rules);
        let code = assembler::generate_program(&spec_rules.with_allowed_rules(change.rules));
        match load_program(kernel, &code) {
            Ok(new_program) => Ok((
                new_program,
                RuleChangeOutcome::Regenerated { program_id: old_id },
            )),
            Err(error) => Err(self.to_load_error(kernel, &code, error)),
        }
    }

    fn to_load_error(&self, kernel: &K, code: &[Insn], error: LoadError) -> AttemptError {
        let LoadError { errno, log } = error;
        match errno {
            errno if kernel.lacks_privileges(errno) => {
                AttemptError::NoPermission("load a device program")
            }
            source => AttemptError::Failed(CgroupError::Load {
                cgroup: self.ancestor.dir.to_owned(),
                instruction_count: code.len(),
                log,
                source,
            }),
        }
    }

    fn to_attempt_error(&self, kernel: &K, errno: Errno, operation: &'static str) -> AttemptError {
        match errno {
            Errno::ENOENT => AttemptError::ConcurrentChange,
            errno if kernel.lacks_privileges(errno) => AttemptError::NoPermission(operation),
            source => AttemptError::Failed(CgroupError::ReadPrograms {
                cgroup: self.ancestor.dir.to_owned(),
                source,
            }),
        }
    }
}
