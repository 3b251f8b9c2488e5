//! Generates device programs from rules.
//!
//! A program loads the request into registers and evaluates its rules. Each rule is a block of
//! tests with a verdict at the end. A rule that allows access clears its bits from the
//! remaining access. The request is admitted if no bit remains, so that `r` alone never admits
//! `rw`.

use device_class::device::DeviceNumber;

use super::insn::{AluOp, Condition, Instruction, Operand, Reg, Size, Width};
use super::request::{ACCESS_TYPE, MAJOR, MINOR, access_bits, kind_number};
use crate::cgroup::rule::{Access, DeviceKind, DeviceRule};
use crate::cgroup::spec_rules::{SpecRule, SpecRules};
use crate::sys::bpf::Insn;

const RESULT: Reg = Reg::R0;
const CONTEXT: Reg = Reg::R1;
const KIND: Reg = Reg::R2;
/// The requested access that no rule has allowed yet.
const WANTED: Reg = Reg::R3;
const MAJOR_NUMBER: Reg = Reg::R4;
const MINOR_NUMBER: Reg = Reg::R5;

pub(super) fn generate_program(rules: &SpecRules) -> Vec<Insn> {
    let mut assembler = Assembler::start();
    // The last matching rule applies, so the rules are evaluated in reverse order.
    for rule in rules.rules().iter().rev() {
        assembler.rule(rule);
    }
    assembler.answer(false);
    assembler.0
}

/// Generates the first part of a program. It admits the requests that `rules` allow. All other
/// requests continue after its end, with the context in R1 as at the start.
pub(super) fn generate_admission(rules: &[DeviceRule]) -> Vec<Insn> {
    let mut assembler = Assembler::start();
    for rule in rules {
        assembler.rule(&SpecRule::from(rule));
    }
    assembler.0
}

/// Generates the first part of a program. It refuses requests for the devices of `rules`. All
/// other requests continue after its end, as in [`generate_admission`].
pub(super) fn generate_refusal(rules: &[DeviceRule]) -> Vec<Insn> {
    let mut assembler = Assembler::start();
    for rule in rules {
        assembler.rule(&SpecRule {
            allow: false,
            ..SpecRule::from(rule)
        });
    }
    assembler.0
}

/// A rule that was decoded from the code of [`generate_admission`] or [`generate_refusal`].
pub(super) struct DecodedRule {
    pub(super) number: DeviceNumber,
    pub(super) allow: bool,
    /// The number of its instructions.
    pub(super) len: usize,
}

/// Decodes the rule at the start of `code`. Returns `None` if the instructions are not those
/// that [`generate_admission`] or [`generate_refusal`] generate.
pub(super) fn decode_rule(code: &[Insn]) -> Option<DecodedRule> {
    let constant = |index: usize| match Instruction::decode(*code.get(index)?)? {
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
    let kind = match constant(0)? {
        kind if kind == kind_number(DeviceKind::Block).cast_signed() => DeviceKind::Block,
        _ => DeviceKind::Character,
    };
    let number = DeviceNumber {
        kind,
        major: constant(1)?.cast_unsigned(),
        minor: constant(2)?.cast_unsigned(),
    };
    // A refusal copies a register in this instruction, and an admission has a constant.
    let allow = constant(3).is_some();
    let access = constant(3).map(|access| !access).or_else(|| constant(4))?;
    let mut accesses = Access::ALL.subsets();
    let access = accesses.find(|some| access_bits(*some) == access)?;
    let mut expected = Assembler(Vec::new());
    expected.rule(&SpecRule {
        allow,
        ..SpecRule::from(&DeviceRule { number, access })
    });
    let len = expected.0.len();
    code.starts_with(&expected.0)
        .then_some(DecodedRule { number, allow, len })
}

struct Assembler(Vec<Insn>);

impl Assembler {
    fn start() -> Self {
        let mut assembler = Self(Vec::new());
        assembler.extend([
            load(KIND, ACCESS_TYPE),
            alu(AluOp::And, KIND, Operand::Const(0xffff)),
            load(WANTED, ACCESS_TYPE),
            alu(AluOp::Rsh, WANTED, Operand::Const(16)),
            load(MAJOR_NUMBER, MAJOR),
            load(MINOR_NUMBER, MINOR),
        ]);
        assembler
    }

    fn rule(&mut self, rule: &SpecRule) {
        let access = access_bits(rule.access);
        let tests = [
            rule.kind.map(|kind| (KIND, kind_number(kind))),
            rule.major.map(|major| (MAJOR_NUMBER, major)),
            rule.minor.map(|minor| (MINOR_NUMBER, minor)),
        ];
        let verdict: &[Instruction] = if rule.allow {
            &[
                alu(AluOp::And, WANTED, Operand::Const(!access)),
                jump(Condition::NotEqual, WANTED, 0, 2),
                mov(RESULT, 1),
                Instruction::Exit,
            ]
        } else {
            &[
                alu(AluOp::Mov, RESULT, Operand::Reg(WANTED)),
                alu(AluOp::And, RESULT, Operand::Const(access)),
                jump(Condition::Equal, RESULT, 0, 2),
                mov(RESULT, 0),
                Instruction::Exit,
            ]
        };

        let mut to_skip = tests.iter().flatten().count() + verdict.len();
        for (register, wanted) in tests.into_iter().flatten() {
            to_skip -= 1;
            let wanted = wanted.cast_signed();
            self.extend([jump(Condition::NotEqual, register, wanted, to_skip as i16)]);
        }
        self.extend(verdict.iter().copied());
    }

    fn answer(&mut self, admitted: bool) {
        self.extend([mov(RESULT, admitted.into()), Instruction::Exit]);
    }

    fn extend(&mut self, instructions: impl IntoIterator<Item = Instruction>) {
        self.0
            .extend(instructions.into_iter().map(Instruction::encode));
    }
}

fn load(dst: Reg, offset: i16) -> Instruction {
    Instruction::Load {
        size: Size::Word,
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
        // Kernels from 4.15 to 5.0 have no 32-bit jumps.
        width: Width::W64,
        condition,
        dst,
        operand: Operand::Const(constant),
        offset,
    }
}
