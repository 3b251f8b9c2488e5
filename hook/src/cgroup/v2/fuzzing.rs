//! A fuzz target for device programs. It rewrites a program so that the program admits certain
//! devices. It also compares the evaluator with rbpf, an independent virtual machine for eBPF.

use super::evaluator;
use super::insn::{AluOp, Condition, Instruction, Operand};
use super::request::AccessRequest;
use super::rewrite::{ProgramRewrite, rewrite_program};
use crate::cgroup::rule::{self, Access, DeviceKind, DeviceRule};
use crate::sys::bpf::Insn;

/// Tests one input. The input consists of two device rules with four bytes each, followed by the
/// instructions of a device program.
pub fn device_program(bytes: &[u8]) {
    let Some((rules, program)) = bytes.split_first_chunk::<8>() else {
        return;
    };
    let (rules, _) = rules.as_chunks();
    let rules: Vec<DeviceRule> = rules.iter().filter_map(parse_device_rule).collect();
    let rules = rule::merge_by_device(&rules);
    let program: Vec<Insn> = program.as_chunks().0.to_vec();
    // A request is covered if a rule admits it. A request with no access bits (access mode 3 of
    // open(2)) is covered by every rule for its device.
    let is_covered = |request: &AccessRequest| {
        rules.iter().any(|rule| {
            (rule.kind(), rule.major(), rule.minor())
                == (request.kind, request.major, request.minor)
                && rule.access().bits() & request.access == request.access
        })
    };
    let admits = |program: &[Insn], request: &AccessRequest| {
        let result = evaluator::run_program(program, request).ok();
        if let Some(result) = result {
            compare_with_rbpf(program, request, result);
        }
        result.map(|result| result == 1)
    };
    match rewrite_program(&program, &rules) {
        ProgramRewrite::HiddenProgram | ProgramRewrite::UnsupportedProgram => {}
        ProgramRewrite::Unneeded => {
            let covered_requests = rules
                .iter()
                .flat_map(|rule| AccessRequest::expand_rule(*rule));
            for request in covered_requests {
                assert_eq!(admits(&program, &request), Some(true), "{request:?}");
            }
        }
        ProgramRewrite::Replacement(rewritten_program) => {
            assert_eq!(
                rewrite_program(&rewritten_program, &rules),
                ProgramRewrite::Unneeded
            );
            for request in generate_requests(&rules) {
                let original_result = admits(&program, &request);
                let expected = if is_covered(&request) {
                    Some(true)
                } else {
                    original_result
                };
                // If the evaluator refuses the original program, for example because it reads an
                // unset register, the results are not compared. The kernel does not load such a
                // program.
                if expected.is_some() {
                    assert_eq!(
                        admits(&rewritten_program, &request),
                        expected,
                        "{request:?}"
                    );
                }
            }
        }
    }
}

fn parse_device_rule([kind, access, major, minor]: &[u8; 4]) -> Option<DeviceRule> {
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

/// Returns requests for the devices of `rules` and for devices with neighbouring numbers, with
/// every device kind and every access.
fn generate_requests(rules: &[DeviceRule]) -> impl Iterator<Item = AccessRequest> {
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

/// Checks that rbpf returns `result` for `program`, as the evaluator did.
fn compare_with_rbpf(program: &[Insn], request: &AccessRequest, result: u64) {
    let is_comparable = |insn: &Insn| Instruction::decode(*insn).is_some_and(is_rbpf_conformant);
    if !program.iter().all(is_comparable) {
        return;
    }
    let bytes = program.concat();
    // rbpf refuses some programs that the evaluator runs, for example a program with a jump out of
    // the program that is never executed.
    let Ok(machine) = rbpf::EbpfVmRaw::new(Some(&bytes)) else {
        return;
    };
    let rbpf_result = machine.execute_program(&mut request.to_context()).ok();
    assert_eq!(rbpf_result, Some(result), "{request:?}");
}

/// Reports whether rbpf executes an instruction as RFC 9669 requires. rbpf does not sign-extend
/// constants in unsigned comparisons, and supports only shifts by fewer bits than the width.
fn is_rbpf_conformant(instruction: Instruction) -> bool {
    match instruction {
        Instruction::Jump {
            condition:
                Condition::Greater
                | Condition::GreaterOrEqual
                | Condition::Less
                | Condition::LessOrEqual
                | Condition::Equal
                | Condition::NotEqual
                | Condition::AnyBitSet,
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
