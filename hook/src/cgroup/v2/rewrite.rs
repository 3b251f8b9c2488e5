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

/// The program without what was put before it to admit the devices of these rules. Those of
/// `of_spec` the runtime's own program admits, and it is made to refuse them. None: that is
/// so already.
pub(super) fn withdraw(
    program: &[Insn],
    rules: &[DeviceRule],
    of_spec: &[DeviceRule],
) -> Option<Vec<Insn>> {
    let without = without(program, rules);
    let here = without.as_deref().unwrap_or(program);
    let mut admitted = of_spec.to_vec();
    admitted.retain(|rule| admits_any(here, *rule));
    if admitted.is_empty() || !readable(here) {
        return without;
    }
    let mut refusing = assembler::refuse(&admitted);
    refusing.extend_from_slice(here);
    Some(refusing)
}

fn admits_any(program: &[Insn], rule: DeviceRule) -> bool {
    let requests = AccessRequest::covered_by(rule);
    // Of no access it does not matter.
    let mut requests = requests.filter(|request| request.access != 0);
    requests.any(|request| evaluator::admits(program, &request) == Ok(true))
}

fn without(program: &[Insn], rules: &[DeviceRule]) -> Option<Vec<Insn>> {
    let start = assembler::admit(&[]);
    let (mut kept, mut rest) = (Vec::new(), program);
    let mut found = false;
    while let Some(mut after) = rest.strip_prefix(&start[..]) {
        let mut blocks = start.clone();
        let before = after.len();
        // What was added before a refusal is below it.
        while let Some(next) = assembler::next(after) {
            let (block, more) = after.split_at(next.len);
            match next.allow && rules.iter().any(|rule| rule.number == next.number) {
                true => found = true,
                false => blocks.extend_from_slice(block),
            }
            after = more;
        }
        // Runtimes' programs begin alike, and go on otherwise.
        if after.len() == before {
            break;
        }
        // What enforces rules has its verdict in the end, and needs the start.
        let is_start = after.starts_with(&start);
        if blocks.len() > start.len() || !is_start {
            kept.append(&mut blocks);
        }
        rest = after;
    }
    kept.extend_from_slice(rest);
    found.then_some(kept)
}

/// A program hidden by the kernel consists of zeros, which are not an
/// instruction.
pub(super) fn is_hidden(program: &[Insn]) -> bool {
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
