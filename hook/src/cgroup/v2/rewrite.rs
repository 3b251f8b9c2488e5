//! Rewrites a device program (eBPF): the new program admits additional devices, or no longer admits
//! certain devices. For this, code is put before the program or removed from its start.

use super::assembler;
use super::evaluator::{self, UnsupportedInstruction};
use super::insn::Instruction;
use super::request::AccessRequest;
use crate::cgroup::rule::DeviceRule;
use crate::sys::bpf::Insn;

/// The change that a device program needs, so that it admits the requested devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProgramRewrite {
    /// The program already admits the devices.
    Unneeded,
    /// The program must be replaced by a program with these instructions.
    Replacement(Vec<Insn>),
    /// The program cannot be changed, because the kernel hides its instructions.
    HiddenProgram,
    /// The program cannot be changed, because it contains unsupported instructions, such as a call.
    UnsupportedProgram,
}

/// Evaluates a device program, and returns the change that it needs to admit the devices of
/// `rules`.
pub(super) fn rewrite_program(program: &[Insn], rules: &[DeviceRule]) -> ProgramRewrite {
    match find_rules_denied_by_program(program, rules) {
        Err(UnsupportedInstruction) if has_hidden_instructions(program) => {
            ProgramRewrite::HiddenProgram
        }
        Err(UnsupportedInstruction) => ProgramRewrite::UnsupportedProgram,
        Ok(denied_rules) if denied_rules.is_empty() => ProgramRewrite::Unneeded,
        // A program is only rewritten if all its instructions are supported, even those that the
        // evaluation did not reach. Otherwise the kernel might not load the new program, or the
        // program might decide differently.
        Ok(_) if !has_supported_instructions(program) => ProgramRewrite::UnsupportedProgram,
        Ok(denied_rules) => ProgramRewrite::Replacement(prepend_allow_code(&denied_rules, program)),
    }
}

/// Returns those of `rules` that a device program denies, completely or in part. For example, a
/// program that admits only `r` denies a rule with `rw` in part.
pub(super) fn find_rules_denied_by_program(
    program: &[Insn],
    rules: &[DeviceRule],
) -> Result<Vec<DeviceRule>, UnsupportedInstruction> {
    let mut denied_rules = Vec::new();
    for rule in rules {
        for request in AccessRequest::expand_rule(*rule) {
            if !evaluator::allows_request(program, &request)? {
                denied_rules.push(*rule);
                break;
            }
        }
    }
    Ok(denied_rules)
}

/// Removes the code that Boathook has put before a device program to admit the devices of `rules`.
/// config.json may also allow such a device, with one of `spec_rules`. If the runtime's own code
/// therefore still admits it, adds code that refuses it. Returns `None` if the program needs no
/// change.
pub(super) fn revoke_rules(
    program: &[Insn],
    rules: &[DeviceRule],
    spec_rules: &[DeviceRule],
) -> Option<Vec<Insn>> {
    let remaining_code = remove_allow_code(program, rules);
    let code = remaining_code.as_deref().unwrap_or(program);
    let mut admitted_rules = spec_rules.to_vec();
    admitted_rules.retain(|rule| allows_any_access(code, *rule));
    if admitted_rules.is_empty() || !has_supported_instructions(code) {
        return remaining_code;
    }
    let mut refusal_code = assembler::generate_deny_code(&admitted_rules);
    refusal_code.extend_from_slice(code);
    Some(refusal_code)
}

fn allows_any_access(program: &[Insn], rule: DeviceRule) -> bool {
    // A request with no access bits does not count, because the opened file can neither be read nor
    // written.
    AccessRequest::expand_rule(rule)
        .filter(|request| request.access != 0)
        .any(|request| evaluator::allows_request(program, &request) == Ok(true))
}

fn remove_allow_code(program: &[Insn], rules: &[DeviceRule]) -> Option<Vec<Insn>> {
    let prologue = assembler::generate_allow_code(&[]);
    let (mut remaining_code, mut code_after_prologues) = (Vec::new(), program);
    let mut has_removed_rule = false;
    // Each earlier change has put a prologue and rules before the program, so there may be several
    // prologues.
    while let Some(mut rules_code) = code_after_prologues.strip_prefix(&prologue[..]) {
        let mut remaining_prologue = prologue.clone();
        let initial_code_len = rules_code.len();
        while let Some(decoded_rule) = assembler::decode_rule(rules_code) {
            let (rule_insns, code_after) = rules_code.split_at(decoded_rule.insn_count);
            if decoded_rule.is_allowed
                && rules.iter().any(|rule| rule.number == decoded_rule.number)
            {
                has_removed_rule = true
            } else {
                remaining_prologue.extend_from_slice(rule_insns)
            }
            rules_code = code_after;
        }
        // Without a rule after it, the prologue stays. It may not be Boathook's, because the
        // programs of some runtimes begin with the same instructions.
        if rules_code.len() == initial_code_len {
            break;
        }
        // A prologue that has lost all its rules is dropped only if another prologue follows.
        // Otherwise the rest of the program may use the registers that the prologue loads, as a
        // program of [`assembler::generate_program`] does.
        let is_followed_by_prologue = rules_code.starts_with(&prologue);
        if remaining_prologue.len() > prologue.len() || !is_followed_by_prologue {
            remaining_code.append(&mut remaining_prologue);
        }
        code_after_prologues = rules_code;
    }
    remaining_code.extend_from_slice(code_after_prologues);
    has_removed_rule.then_some(remaining_code)
}

/// Reports whether the kernel hides the instructions of a program. The kernel returns zeros in
/// place of hidden instructions. Zeros are not a valid instruction.
pub(super) fn has_hidden_instructions(program: &[Insn]) -> bool {
    program.iter().all(|insn| *insn == [0; 8])
}

fn has_supported_instructions(program: &[Insn]) -> bool {
    program
        .iter()
        .all(|insn| Instruction::decode(*insn).is_some())
}

/// Returns a program that admits the devices of `rules`, and otherwise decides like `program`. The
/// instructions of `program` stay the same: their jumps are relative, and R1 still contains the
/// address of the context.
fn prepend_allow_code(rules: &[DeviceRule], program: &[Insn]) -> Vec<Insn> {
    let mut new_program = assembler::generate_allow_code(rules);
    new_program.extend_from_slice(program);
    new_program
}
