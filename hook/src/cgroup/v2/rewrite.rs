//! Turns a program into one that also admits some rules.

use super::assembler;
use super::evaluator::{self, NotUnderstood};
use super::insn::Instruction;
use super::request::AccessRequest;
use crate::cgroup::rule::DeviceRule;
use crate::sys::bpf::Insn;

/// How a program must be changed to admit some rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Not at all: it admits them.
    Admits,
    /// It is replaced by this one.
    Replace(Vec<Insn>),
    /// Unknown: the kernel hides it.
    Hidden,
    /// Unknown: it has unsupported instructions.
    Unreadable,
}

/// Evaluates a program as the kernel shows it.
pub(super) fn judge(program: &[Insn], rules: &[DeviceRule]) -> Admission {
    match denied(program, rules) {
        Err(NotUnderstood) if is_hidden(program) => Admission::Hidden,
        Err(NotUnderstood) => Admission::Unreadable,
        Ok(denied) if denied.is_empty() => Admission::Admits,
        // Instructions that these rules do not reach must be supported too, or
        // the program might not load or might change its meaning.
        Ok(_) if !readable(program) => Admission::Unreadable,
        Ok(denied) => Admission::Replace(admit_first(&denied, program)),
    }
}

/// The rules that a program denies, wholly or in part.
pub(super) fn denied(
    program: &[Insn],
    rules: &[DeviceRule],
) -> Result<Vec<DeviceRule>, NotUnderstood> {
    let mut denied = Vec::new();
    for rule in rules {
        for request in AccessRequest::covered_by(*rule) {
            if !evaluator::admits(program, &request)? {
                denied.push(*rule);
                break;
            }
        }
    }
    Ok(denied)
}

/// A program hidden by the kernel consists of zeros, which are not an
/// instruction.
fn is_hidden(program: &[Insn]) -> bool {
    program.iter().all(|insn| *insn == [0; 8])
}

fn readable(program: &[Insn]) -> bool {
    program
        .iter()
        .all(|insn| Instruction::decode(*insn).is_some())
}

/// The old program is appended unchanged: its jumps are relative, and at its
/// start R1 has the context, as before.
fn admit_first(rules: &[DeviceRule], program: &[Insn]) -> Vec<Insn> {
    let mut rewritten = assembler::admit(rules);
    rewritten.extend_from_slice(program);
    rewritten
}
