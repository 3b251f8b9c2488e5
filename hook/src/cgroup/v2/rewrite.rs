//! Rewrites a program so that it admits additional rules, or no longer admits some.

use super::assembler;
use super::evaluator::{self, UnsupportedInstruction};
use super::insn::Instruction;
use super::request::AccessRequest;
use crate::cgroup::rule::DeviceRule;
use crate::sys::bpf::Insn;

/// The change that a program needs in order to admit some rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The program admits the rules already.
    Admits,
    /// The program must be replaced by this one.
    Replace(Vec<Insn>),
    /// The change is not known, because the kernel hides the program.
    Hidden,
    /// The change is not known, because the program has unsupported instructions.
    Unreadable,
}

/// Evaluates a program and determines the change that it needs.
pub(super) fn evaluate_admission(program: &[Insn], rules: &[DeviceRule]) -> Admission {
    match find_denied(program, rules) {
        Err(UnsupportedInstruction) if is_hidden(program) => Admission::Hidden,
        Err(UnsupportedInstruction) => Admission::Unreadable,
        Ok(denied) if denied.is_empty() => Admission::Admits,
        // All instructions must be supported, even those that requests for these rules do not
        // reach. Otherwise the new program might not load, or might decide differently.
        Ok(_) if !is_readable(program) => Admission::Unreadable,
        Ok(denied) => Admission::Replace(prepend_admission(&denied, program)),
    }
}

/// Returns the rules that a program denies, wholly or in part.
pub(super) fn find_denied(
    program: &[Insn],
    rules: &[DeviceRule],
) -> Result<Vec<DeviceRule>, UnsupportedInstruction> {
    let mut denied = Vec::new();
    for rule in rules {
        for request in AccessRequest::list_allowed_by(*rule) {
            if !evaluator::admits_request(program, &request)? {
                denied.push(*rule);
                break;
            }
        }
    }
    Ok(denied)
}

/// Removes the blocks that admit the devices of `rules` from the start of a program. The runtime's
/// own program admits the devices in `spec_rules`, so a block that refuses them is added. Returns
/// `None` if the program needs no change.
pub(super) fn withdraw_rules(
    program: &[Insn],
    rules: &[DeviceRule],
    spec_rules: &[DeviceRule],
) -> Option<Vec<Insn>> {
    let remaining_code = remove_admissions(program, rules);
    let code = remaining_code.as_deref().unwrap_or(program);
    let mut admitted = spec_rules.to_vec();
    admitted.retain(|rule| admits_any(code, *rule));
    if admitted.is_empty() || !is_readable(code) {
        return remaining_code;
    }
    let mut refusal = assembler::generate_refusal(&admitted);
    refusal.extend_from_slice(code);
    Some(refusal)
}

fn admits_any(program: &[Insn], rule: DeviceRule) -> bool {
    // A request for no access is ignored here.
    AccessRequest::list_allowed_by(rule)
        .filter(|request| request.access != 0)
        .any(|request| evaluator::admits_request(program, &request) == Ok(true))
}

fn remove_admissions(program: &[Insn], rules: &[DeviceRule]) -> Option<Vec<Insn>> {
    let prologue = assembler::generate_admission(&[]);
    let (mut kept, mut rest) = (Vec::new(), program);
    let mut has_removed = false;
    while let Some(mut after) = rest.strip_prefix(&prologue[..]) {
        let mut blocks = prologue.clone();
        let before = after.len();
        // Blocks that were added before a refusal come after it in the program.
        while let Some(next) = assembler::decode_rule(after) {
            let (block, more) = after.split_at(next.len);
            if next.allow && rules.iter().any(|rule| rule.number == next.number) {
                has_removed = true
            } else {
                blocks.extend_from_slice(block)
            }
            after = more;
        }
        // The programs of some runtimes begin with the same instructions, but no generated
        // block follows.
        if after.len() == before {
            break;
        }
        // A program that [`assembler::generate_program`] generated needs the start too, because its
        // rules use the registers that the start loads.
        let is_start = after.starts_with(&prologue);
        if blocks.len() > prologue.len() || !is_start {
            kept.append(&mut blocks);
        }
        rest = after;
    }
    kept.extend_from_slice(rest);
    has_removed.then_some(kept)
}

/// Returns whether the kernel hides a program. It then shows zeros, which are not a valid
/// instruction.
pub(super) fn is_hidden(program: &[Insn]) -> bool {
    program.iter().all(|insn| *insn == [0; 8])
}

fn is_readable(program: &[Insn]) -> bool {
    program
        .iter()
        .all(|insn| Instruction::decode(*insn).is_some())
}

/// Returns a program that first admits the rules. The old program is appended unchanged,
/// because its jumps are relative and R1 has the context at its start, as before.
fn prepend_admission(rules: &[DeviceRule], program: &[Insn]) -> Vec<Insn> {
    let mut rewritten = assembler::generate_admission(rules);
    rewritten.extend_from_slice(program);
    rewritten
}
