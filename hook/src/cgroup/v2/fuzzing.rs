//! A fuzz target: changes programs to admit rules, and compares the evaluator with an
//! independent virtual machine.

use super::evaluator;
use super::insn::{AluOp, Condition, Instruction, Operand};
use super::request::AccessRequest;
use super::rewrite::{Admission, evaluate_admission};
use crate::cgroup::rule::{self, Access, DeviceKind, DeviceRule};
use crate::sys::bpf::Insn;

/// Tests one input: two rules of four bytes each, followed by a program.
pub fn device_program(bytes: &[u8]) {
    let Some((rules, program)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let (rules, _) = rules.as_chunks();
    let rules: Vec<DeviceRule> = rules.iter().filter_map(device_rule).collect();
    let rules = rule::merge(&rules);
    let program: Vec<Insn> = program.as_chunks().0.to_vec();
    // A request for no access is admitted together with any other access to the device.
    let covers = |request: &AccessRequest| {
        rules.iter().any(|rule| {
            (rule.kind(), rule.major(), rule.minor())
                == (request.kind, request.major, request.minor)
                && rule.access().bits() & request.access == request.access
        })
    };
    let admits = |program: &[Insn], request: &AccessRequest| {
        let result = evaluator::run_program(program, request).ok();
        if let Some(result) = result {
            compare(program, request, result);
        }
        result.map(|result| result == 1)
    };
    match evaluate_admission(&program, &rules) {
        Admission::Hidden | Admission::Unreadable => {}
        Admission::Admits => {
            let covered = rules
                .iter()
                .flat_map(|rule| AccessRequest::list_allowed_by(*rule));
            for request in covered {
                assert_eq!(admits(&program, &request), Some(true), "{request:?}");
            }
        }
        Admission::Replace(new) => {
            assert_eq!(evaluate_admission(&new, &rules), Admission::Admits);
            for request in requests(&rules) {
                let before = admits(&program, &request);
                let expected = if covers(&request) { Some(true) } else { before };
                // The kernel loads no program that reads a register before it is set.
                if expected.is_some() {
                    assert_eq!(admits(&new, &request), expected, "{request:?}");
                }
            }
        }
    }
}

fn device_rule([kind, access, major, minor]: &[u8; 4]) -> Option<DeviceRule> {
    let kind = if kind & 1 == 0 {
        DeviceKind::Block
    } else {
        DeviceKind::Character
    };
    let letters: String = [("m", 1), ("r", 2), ("w", 4)]
        .into_iter()
        .filter(|(_, bit)| access & bit != 0)
        .map(|(letter, _)| letter)
        .collect();
    let access = Access::parse(&letters).ok()?;
    Some(DeviceRule::new(
        kind,
        (*major).into(),
        (*minor).into(),
        access,
    ))
}

/// Returns requests of every kind and access, with the numbers of the rules and with others.
fn requests(rules: &[DeviceRule]) -> impl Iterator<Item = AccessRequest> {
    let devices = rules.iter().flat_map(|rule| {
        let (major, minor) = (rule.major(), rule.minor());
        [(major, minor), (major, minor + 1), (major + 1, minor)]
    });
    devices.flat_map(|(major, minor)| {
        [DeviceKind::Block, DeviceKind::Character]
            .into_iter()
            .flat_map(move |kind| {
                (0..=7).map(move |access| AccessRequest {
                    kind,
                    access,
                    major,
                    minor,
                })
            })
    })
}

/// Checks that both machines have the same result.
fn compare(program: &[Insn], request: &AccessRequest, result: u64) {
    let comparable = |insn: &Insn| Instruction::decode(*insn).is_some_and(is_same_elsewhere);
    if !program.iter().all(comparable) {
        return;
    }
    let bytes = program.concat();
    // The other machine loads fewer programs. For example, it refuses a jump out of the
    // program even where it is never executed.
    let Ok(machine) = rbpf::EbpfVmRaw::new(Some(&bytes)) else {
        return;
    };
    let other = machine.execute_program(&mut request.context()).ok();
    assert_eq!(other, Some(result), "{request:?}");
}

/// Returns whether the other machine executes an instruction according to RFC 9669. It does
/// not sign-extend constants in unsigned comparisons, and supports only shifts by less than
/// the width.
fn is_same_elsewhere(instruction: Instruction) -> bool {
    match instruction {
        Instruction::Jump {
            condition:
                Condition::Greater
                | Condition::GreaterOrEqual
                | Condition::Less
                | Condition::LessOrEqual
                | Condition::Equal
                | Condition::NotEqual
                | Condition::AnyBit,
            operand: Operand::Const(constant),
            ..
        } => constant >= 0,
        Instruction::Alu {
            op: AluOp::Lsh | AluOp::Rsh | AluOp::Arsh,
            operand,
            ..
        } => matches!(operand, Operand::Const(0..32)),
        _ => true,
    }
}
