//! For tests: programs of the shapes in which runtimes and systemd make theirs.

use crate::cgroup::rule::Access;
use crate::cgroup::spec_rules::SpecRule;
use crate::cgroup::v2::insn::{AluOp, Condition, Instruction, Operand, Reg, Size, Width};
use crate::cgroup::v2::request::{AccessRequest, kind_number};
use crate::sys::bpf::Insn;

use Operand::{Const, Reg as Register};
use Width::{W32, W64};

/// A way of writing down a list of permissions as a program.
pub(super) struct Shape {
    pub(super) name: &'static str,
    pub(super) program: fn(&[SpecRule]) -> Vec<Insn>,
}

pub(super) const SHAPES: &[Shape] = &[
    shape("runc", runc),
    shape("crun", crun),
    shape("systemd", systemd),
    shape("16-bit loads", narrow_loads),
    shape("bare exit", bare_exit),
    shape("32-bit jumps", short_jumps),
];

const fn shape(name: &'static str, program: fn(&[SpecRule]) -> Vec<Insn>) -> Shape {
    Shape { name, program }
}

/// What all shapes make of their rules: one of them must cover all of the request.
pub(super) fn covers(rules: &[SpecRule], request: &AccessRequest) -> bool {
    rules.iter().any(|rule| {
        rule.kind.is_none_or(|kind| kind == request.kind)
            && rule.major.is_none_or(|major| major == request.major)
            && rule.minor.is_none_or(|minor| minor == request.minor)
            && request.access & !rule.access.bits() == 0
    })
}

pub(super) fn deny_everything() -> Vec<Insn> {
    encode(DENY.to_vec())
}

pub(super) fn allow_everything() -> Vec<Insn> {
    encode(ADMIT.to_vec())
}

/// What most end with: a rule's verdict, and the one without a rule.
const ADMIT: [Instruction; 2] = [mov64(Reg::R0, Const(1)), Instruction::Exit];
const DENY: [Instruction; 2] = [mov64(Reg::R0, Const(0)), Instruction::Exit];

/// runc 1.1: 32-bit moves, and a block with a verdict and exit per rule.
fn runc(rules: &[SpecRule]) -> Vec<Insn> {
    let mut program = load_words();
    let admit = [mov32(Reg::R0, Const(1)), Instruction::Exit];
    for rule in rules {
        block(&mut program, tests_of(rule), &admit);
    }
    program.extend([mov32(Reg::R0, Const(0)), Instruction::Exit]);
    encode(program)
}

/// crun: the last rule comes first; 64-bit moves.
fn crun(rules: &[SpecRule]) -> Vec<Insn> {
    let mut program = load_words();
    for rule in rules.iter().rev() {
        block(&mut program, tests_of(rule), &ADMIT);
    }
    program.extend(DENY);
    encode(program)
}

/// systemd: rules jump to a verdict behind the denial, which jumps over it.
fn systemd(rules: &[SpecRule]) -> Vec<Insn> {
    const TO_PASS: Instruction = Instruction::Goto { offset: i16::MAX };
    let mut program = load_words();
    for rule in rules {
        let tests = [access_test(rule), kind_test(rule), number_tests(rule)].concat();
        block(&mut program, tests, &[TO_PASS]);
    }
    program.extend([mov64(Reg::R0, Const(0)), Instruction::Goto { offset: 1 }]);
    let pass = program.len();
    program.extend(ADMIT);
    for (at, instruction) in program.iter_mut().enumerate() {
        if *instruction == TO_PASS {
            *instruction = Instruction::Goto {
                offset: (pass - at - 1) as i16,
            };
        }
    }
    encode(program)
}

/// As compilers do it: kind and access by half words; a copy of the context's address.
fn narrow_loads(rules: &[SpecRule]) -> Vec<Insn> {
    let (kind, access) = if cfg!(target_endian = "little") {
        (0, 2)
    } else {
        (2, 0)
    };
    let mut program = vec![
        load(Size::Half, Reg::R2, Reg::R1, kind),
        load(Size::Half, Reg::R3, Reg::R1, access),
        load(Size::Word, Reg::R4, Reg::R1, 4),
        mov64(Reg::R0, Register(Reg::R1)),
        load(Size::Word, Reg::R5, Reg::R0, 8),
    ];
    for rule in rules {
        let tests = [number_tests(rule), kind_test(rule), access_test(rule)].concat();
        block(&mut program, tests, &ADMIT);
    }
    program.extend(DENY);
    encode(program)
}

/// The result is set before the rules; the last instruction only leaves.
fn bare_exit(rules: &[SpecRule]) -> Vec<Insn> {
    let mut program = load_words();
    for rule in rules {
        block(&mut program, tests_of(rule), &ADMIT);
    }
    program.insert(0, mov64(Reg::R0, Const(0)));
    program.push(Instruction::Exit);
    encode(program)
}

/// Access is tested for bits that must not be there, all with 32-bit jumps.
fn short_jumps(rules: &[SpecRule]) -> Vec<Insn> {
    let jump32 = |condition, dst, constant| jump(W32, condition, dst, Const(constant));
    let mut program = load_words();
    for rule in rules {
        let mut tests = vec![jump32(
            Condition::AnyBit,
            Reg::R3,
            !i32::from(rule.access.bits()),
        )];
        let number = |register, number: Option<u32>| {
            number.map(|number| jump32(Condition::NotEqual, register, number as i32))
        };
        tests.extend(number(Reg::R2, rule.kind.map(kind_number)));
        tests.extend(number(Reg::R4, rule.major));
        tests.extend(number(Reg::R5, rule.minor));
        block(
            &mut program,
            tests,
            &[mov32(Reg::R0, Const(1)), Instruction::Exit],
        );
    }
    program.extend([
        alu(W64, AluOp::And, Reg::R2, Const(0)),
        mov64(Reg::R0, Register(Reg::R2)),
        Instruction::Exit,
    ]);
    encode(program)
}

fn encode(program: Vec<Instruction>) -> Vec<Insn> {
    program.into_iter().map(Instruction::encode).collect()
}

/// Kind in R2, access in R3, major in R4, minor in R5.
fn load_words() -> Vec<Instruction> {
    vec![
        load(Size::Word, Reg::R2, Reg::R1, 0),
        alu32(AluOp::And, Reg::R2, Const(0xffff)),
        load(Size::Word, Reg::R3, Reg::R1, 0),
        alu32(AluOp::Rsh, Reg::R3, Const(16)),
        load(Size::Word, Reg::R4, Reg::R1, 4),
        load(Size::Word, Reg::R5, Reg::R1, 8),
    ]
}

fn load(size: Size, dst: Reg, src: Reg, offset: i16) -> Instruction {
    Instruction::Load {
        size,
        dst,
        src,
        offset,
    }
}

/// Adds tests, of which those that jump leave the block, and what follows them.
fn block(program: &mut Vec<Instruction>, mut tests: Vec<Instruction>, then: &[Instruction]) {
    let end = tests.len() + then.len();
    for (at, test) in tests.iter_mut().enumerate() {
        if let Instruction::Jump { offset, .. } = test {
            *offset = (end - at - 1) as i16;
        }
    }
    program.extend(tests);
    program.extend_from_slice(then);
}

/// What a rule's block tests, in the order of most.
fn tests_of(rule: &SpecRule) -> Vec<Instruction> {
    [kind_test(rule), access_test(rule), number_tests(rule)].concat()
}

fn kind_test(rule: &SpecRule) -> Vec<Instruction> {
    Vec::from_iter(rule.kind.map(|kind| unless(Reg::R2, kind_number(kind))))
}

/// R1 is used up for this, as all of them do.
fn access_test(rule: &SpecRule) -> Vec<Instruction> {
    if rule.access == Access::ALL {
        return Vec::new();
    }
    vec![
        mov32(Reg::R1, Register(Reg::R3)),
        alu32(AluOp::And, Reg::R1, Const(rule.access.bits().into())),
        jump(W64, Condition::NotEqual, Reg::R1, Register(Reg::R3)),
    ]
}

fn number_tests(rule: &SpecRule) -> Vec<Instruction> {
    let major = rule.major.map(|major| unless(Reg::R4, major));
    let minor = rule.minor.map(|minor| unless(Reg::R5, minor));
    major.into_iter().chain(minor).collect()
}

fn unless(register: Reg, constant: u32) -> Instruction {
    let constant = Const(constant as i32);
    jump(W64, Condition::NotEqual, register, constant)
}

/// Out of its block, see [`block`].
fn jump(width: Width, condition: Condition, dst: Reg, operand: Operand) -> Instruction {
    Instruction::Jump {
        width,
        condition,
        dst,
        operand,
        offset: 0,
    }
}

const fn alu(width: Width, op: AluOp, dst: Reg, operand: Operand) -> Instruction {
    Instruction::Alu {
        width,
        op,
        dst,
        operand,
    }
}

fn alu32(op: AluOp, dst: Reg, operand: Operand) -> Instruction {
    alu(W32, op, dst, operand)
}

fn mov32(dst: Reg, operand: Operand) -> Instruction {
    alu32(AluOp::Mov, dst, operand)
}

const fn mov64(dst: Reg, operand: Operand) -> Instruction {
    alu(W64, AluOp::Mov, dst, operand)
}
