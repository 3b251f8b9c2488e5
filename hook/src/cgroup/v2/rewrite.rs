//! Turns a program into one that also admits some rules.

use super::assembler;
use super::evaluator::{self, NotUnderstood};
use super::insn::Instruction;
use super::request::Request;
use crate::cgroup::rule::DeviceRule;
use crate::sys::bpf::Insn;

/// What has to be done with a program so that it admits some rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: it admits them.
    Admits,
    /// Put this one in its place.
    Replace(Vec<Insn>),
    /// It cannot be told: the kernel hides it, or parts of it mean nothing to us.
    Unreadable,
}

/// Judges a program as the kernel shows it.
pub(super) fn judge(program: &[Insn], rules: &[DeviceRule]) -> Verdict {
    match denied(program, rules) {
        Err(NotUnderstood) => Verdict::Unreadable,
        Ok(denied) if denied.is_empty() => Verdict::Admits,
        // What was not met while answering for these rules must be known too,
        // or the program might not load or not mean the same any more.
        Ok(_) if !readable(program) => Verdict::Unreadable,
        Ok(denied) => Verdict::Replace(admit_first(&denied, program)),
    }
}

/// The rules of which a program denies any part.
pub(super) fn denied(
    program: &[Insn],
    rules: &[DeviceRule],
) -> Result<Vec<DeviceRule>, NotUnderstood> {
    let mut denied = Vec::new();
    for rule in rules {
        for request in Request::covered_by(*rule) {
            if !evaluator::admits(program, &request)? {
                denied.push(*rule);
                break;
            }
        }
    }
    Ok(denied)
}

/// A program hidden by the kernel consists of zeros, which are no instruction.
fn readable(program: &[Insn]) -> bool {
    program
        .iter()
        .all(|insn| Instruction::decode(*insn).is_some())
}

/// The old program comes last and whole: its jumps are relative, and it finds
/// the context in R1 and nothing else in registers, as it always did.
fn admit_first(rules: &[DeviceRule], program: &[Insn]) -> Vec<Insn> {
    let mut rewritten = assembler::admit(rules);
    rewritten.extend_from_slice(program);
    rewritten
}
