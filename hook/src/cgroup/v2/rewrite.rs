//! Rewrites a device program so that it admits additional devices, or stops admitting some.

use super::assembler;
use super::evaluator::{self, UnsupportedInstruction};
use super::insn::Instruction;
use super::request::AccessRequest;
use crate::cgroup::rule::DeviceRule;
use crate::sys::bpf::Insn;

/// The change that a device program needs in order to admit the devices of given rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdmissionChange {
    /// The program admits the devices already and needs no change.
    Unneeded,
    /// The program must be replaced by a program with these instructions.
    Replacement(Vec<Insn>),
    /// The program cannot be changed, because the kernel hides its instructions.
    HiddenProgram,
    /// The program cannot be changed, because it has instructions that are not supported.
    UnsupportedProgram,
}

/// Evaluates a device program, and determines the change that it needs to admit the devices of
/// `rules`.
pub(super) fn evaluate_admission(program: &[Insn], rules: &[DeviceRule]) -> AdmissionChange {
    match find_rules_denied_by_program(program, rules) {
        Err(UnsupportedInstruction) if is_hidden(program) => AdmissionChange::HiddenProgram,
        Err(UnsupportedInstruction) => AdmissionChange::UnsupportedProgram,
        Ok(denied_rules) if denied_rules.is_empty() => AdmissionChange::Unneeded,
        // Every instruction must be supported, even one that the evaluation did not reach.
        // Otherwise the new program might not load, or might decide differently.
        Ok(_) if !is_readable(program) => AdmissionChange::UnsupportedProgram,
        Ok(denied_rules) => AdmissionChange::Replacement(prepend_admission(&denied_rules, program)),
    }
}

/// Returns those of `rules` of which a device program denies at least one access.
pub(super) fn find_rules_denied_by_program(
    program: &[Insn],
    rules: &[DeviceRule],
) -> Result<Vec<DeviceRule>, UnsupportedInstruction> {
    let mut denied_rules = Vec::new();
    for rule in rules {
        for request in AccessRequest::expand_rule(*rule) {
            if !evaluator::admits_request(program, &request)? {
                denied_rules.push(*rule);
                break;
            }
        }
    }
    Ok(denied_rules)
}

/// Removes the code at the start of a device program by which Boathook admits the devices of
/// `rules`. If the runtime's code admits these devices because of `spec_rules`, adds code that
/// refuses them. Returns `None` if the program needs no change.
pub(super) fn withdraw_rules(
    program: &[Insn],
    rules: &[DeviceRule],
    spec_rules: &[DeviceRule],
) -> Option<Vec<Insn>> {
    let remaining_code = remove_admission_code(program, rules);
    let code = remaining_code.as_deref().unwrap_or(program);
    let mut admitted_rules = spec_rules.to_vec();
    admitted_rules.retain(|rule| admits_any_access(code, *rule));
    if admitted_rules.is_empty() || !is_readable(code) {
        return remaining_code;
    }
    let mut refusal_code = assembler::generate_refusal_code(&admitted_rules);
    refusal_code.extend_from_slice(code);
    Some(refusal_code)
}

fn admits_any_access(program: &[Insn], rule: DeviceRule) -> bool {
    // The request for no access is left out, because it does not let a process use the device.
    AccessRequest::expand_rule(rule)
        .filter(|request| request.access != 0)
        .any(|request| evaluator::admits_request(program, &request) == Ok(true))
}

fn remove_admission_code(program: &[Insn], rules: &[DeviceRule]) -> Option<Vec<Insn>> {
    let prologue = assembler::generate_admission_code(&[]);
    let (mut remaining_code, mut code_after_prologues) = (Vec::new(), program);
    let mut has_removed_rule = false;
    // Each change of a program prepends another prologue with rules, so there may be several.
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
        // The programs of some runtimes begin with the same instructions as a prologue, but no
        // generated rule follows.
        if rules_code.len() == initial_code_len {
            break;
        }
        // A prologue without rules is still needed if no other prologue follows, because a
        // program of [`assembler::generate_program`] uses the registers that it loads.
        let is_followed_by_prologue = rules_code.starts_with(&prologue);
        if remaining_prologue.len() > prologue.len() || !is_followed_by_prologue {
            remaining_code.append(&mut remaining_prologue);
        }
        code_after_prologues = rules_code;
    }
    remaining_code.extend_from_slice(code_after_prologues);
    has_removed_rule.then_some(remaining_code)
}

/// Returns whether the kernel hides the instructions of a program. The kernel returns zeros for
/// hidden instructions, which are no valid instructions.
pub(super) fn is_hidden(program: &[Insn]) -> bool {
    program.iter().all(|insn| *insn == [0; 8])
}

fn is_readable(program: &[Insn]) -> bool {
    program
        .iter()
        .all(|insn| Instruction::decode(*insn).is_some())
}

/// Returns a program that admits the devices of `rules` and otherwise decides as `program` does.
/// The instructions of `program` need no change: their jumps are relative, and R1 still has the
/// address of the context.
fn prepend_admission(rules: &[DeviceRule], program: &[Insn]) -> Vec<Insn> {
    let mut new_program = assembler::generate_admission_code(rules);
    new_program.extend_from_slice(program);
    new_program
}
