//! Generates device programs (eBPF) from device rules.
//!
//! A generated program loads the access request into registers, and then evaluates one rule after
//! the other. The code of a rule first tests whether the rule applies to the device, and then
//! decides. A rule that allows an access clears the bits of this access in the requested access.
//! When no bit is left, the request is admitted. So a rule for `r` alone never admits a request for
//! `rw`.

use device_class::device::DeviceNumber;

use super::insn::{AluOp, Condition, Instruction, LoadSize, Operand, Reg, Width};
use super::request::{ACCESS_TYPE_OFFSET, MAJOR_OFFSET, MINOR_OFFSET, access_bits, to_kernel_kind};
use crate::cgroup::rule::{Access, DeviceKind, DeviceRule};
use crate::cgroup::spec_rules::{SpecRule, SpecRules};
use crate::sys::bpf::Insn;

const RESULT: Reg = Reg::R0;
const CONTEXT: Reg = Reg::R1;
const KIND: Reg = Reg::R2;
/// The register with the bits of the requested access that no rule has allowed so far.
const REMAINING_ACCESS: Reg = Reg::R3;
const MAJOR_NUMBER: Reg = Reg::R4;
const MINOR_NUMBER: Reg = Reg::R5;

pub(super) fn generate_program(spec_rules: &SpecRules) -> Vec<Insn> {
    let mut assembler = Assembler::with_prologue();
    // If several rules match a device, the last one decides. So the program tests the last rule
    // first.
    for rule in spec_rules.rules().iter().rev() {
        assembler.append_rule(rule);
    }
    assembler.append_verdict(false);
    assembler.0
}

/// Generates code that admits the requests which `rules` allow. The caller puts the code before a
/// device program. All other requests run on into this program, which finds the address of the
/// context in R1 as usual.
pub(super) fn generate_allow_code(rules: &[DeviceRule]) -> Vec<Insn> {
    let mut assembler = Assembler::with_prologue();
    for rule in rules {
        assembler.append_rule(&SpecRule::from(rule));
    }
    assembler.0
}

/// Generates code that refuses requests for the devices of `rules`. The caller puts the code before
/// a device program. All other requests run on into this program.
pub(super) fn generate_deny_code(rules: &[DeviceRule]) -> Vec<Insn> {
    let mut assembler = Assembler::with_prologue();
    for rule in rules {
        assembler.append_rule(&SpecRule {
            is_allowed: false,
            ..SpecRule::from(rule)
        });
    }
    assembler.0
}

/// A rule that [`decode_rule`] found in code of [`generate_allow_code`] or
/// [`generate_deny_code`].
pub(super) struct DecodedRule {
    pub(super) number: DeviceNumber,
    pub(super) is_allowed: bool,
    /// The number of instructions that were generated for the rule.
    pub(super) insn_count: usize,
}

/// Decodes the device rule at the start of `code`. Returns `None` if `code` does not begin with the
/// instructions that this module generates for a rule about one device number.
pub(super) fn decode_rule(code: &[Insn]) -> Option<DecodedRule> {
    let constant_operand = |index: usize| match Instruction::decode(*code.get(index)?)? {
        Instruction::Jump {
            operand: Operand::Const(constant),
            ..
        }
        | Instruction::Alu {
            operand: Operand::Const(constant),
            ..
        } => Some(constant),
        _ => None,
    };
    let kind = match constant_operand(0)? {
        kind if kind == to_kernel_kind(DeviceKind::Block).cast_signed() => DeviceKind::Block,
        _ => DeviceKind::Character,
    };
    let number = DeviceNumber {
        kind,
        major: constant_operand(1)?.cast_unsigned(),
        minor: constant_operand(2)?.cast_unsigned(),
    };
    // The rule allows if its fourth instruction has a constant, which consists of the inverted
    // access bits. The fourth instruction of a denying rule copies a register, and the fifth has
    // the access bits.
    let inverted_access = constant_operand(3);
    let is_allowed = inverted_access.is_some();
    let bits = inverted_access
        .map(|inverted| !inverted)
        .or_else(|| constant_operand(4))?;
    let mut accesses = Access::ALL.subsets();
    let access = accesses.find(|access| access_bits(*access) == bits)?;
    let mut expected_code = Assembler(Vec::new());
    expected_code.append_rule(&SpecRule {
        is_allowed,
        ..SpecRule::from(&DeviceRule { number, access })
    });
    let insn_count = expected_code.0.len();
    code.starts_with(&expected_code.0).then_some(DecodedRule {
        number,
        is_allowed,
        insn_count,
    })
}

struct Assembler(Vec<Insn>);

impl Assembler {
    /// Starts a program with the prologue: the instructions that load the access request into
    /// registers.
    fn with_prologue() -> Self {
        let mut assembler = Self(Vec::new());
        assembler.extend([
            load(KIND, ACCESS_TYPE_OFFSET),
            alu(AluOp::And, KIND, Operand::Const(0xffff)),
            load(REMAINING_ACCESS, ACCESS_TYPE_OFFSET),
            alu(AluOp::Rsh, REMAINING_ACCESS, Operand::Const(16)),
            load(MAJOR_NUMBER, MAJOR_OFFSET),
            load(MINOR_NUMBER, MINOR_OFFSET),
        ]);
        assembler
    }

    fn append_rule(&mut self, rule: &SpecRule) {
        let access = access_bits(rule.access);
        let tests = [
            rule.kind.map(|kind| (KIND, to_kernel_kind(kind))),
            rule.major.map(|major| (MAJOR_NUMBER, major)),
            rule.minor.map(|minor| (MINOR_NUMBER, minor)),
        ];
        let verdict: &[Instruction] = if rule.is_allowed {
            &[
                alu(AluOp::And, REMAINING_ACCESS, Operand::Const(!access)),
                jump(Condition::NotEqual, REMAINING_ACCESS, 0, 2),
                mov(RESULT, 1),
                Instruction::Exit,
            ]
        } else {
            &[
                alu(AluOp::Mov, RESULT, Operand::Reg(REMAINING_ACCESS)),
                alu(AluOp::And, RESULT, Operand::Const(access)),
                jump(Condition::Equal, RESULT, 0, 2),
                mov(RESULT, 0),
                Instruction::Exit,
            ]
        };

        let mut jump_distance = tests.iter().flatten().count() + verdict.len();
        for (register, value) in tests.into_iter().flatten() {
            jump_distance -= 1;
            self.extend([jump(
                Condition::NotEqual,
                register,
                value.cast_signed(),
                jump_distance as i16,
            )]);
        }
        self.extend(verdict.iter().copied());
    }

    fn append_verdict(&mut self, is_admitted: bool) {
        self.extend([mov(RESULT, is_admitted.into()), Instruction::Exit]);
    }

    fn extend(&mut self, instructions: impl IntoIterator<Item = Instruction>) {
        self.0
            .extend(instructions.into_iter().map(Instruction::encode));
    }
}

fn load(dst: Reg, offset: i16) -> Instruction {
    Instruction::Load {
        size: LoadSize::Word,
        dst,
        src: CONTEXT,
        offset,
    }
}

fn alu(op: AluOp, dst: Reg, operand: Operand) -> Instruction {
    Instruction::Alu {
        width: Width::W32,
        op,
        dst,
        operand,
    }
}

fn mov(dst: Reg, constant: i32) -> Instruction {
    alu(AluOp::Mov, dst, Operand::Const(constant))
}

fn jump(condition: Condition, dst: Reg, constant: i32, offset: i16) -> Instruction {
    Instruction::Jump {
        // The jump is a 64-bit jump, because 32-bit jumps (BPF_JMP32) exist only since Linux 5.1.
        width: Width::W64,
        condition,
        dst,
        operand: Operand::Const(constant),
        offset,
    }
}
