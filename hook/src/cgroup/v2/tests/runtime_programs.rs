//! Programs of the same shapes as those of runtimes and systemd, for tests.

use crate::cgroup::rule::Access;
use crate::cgroup::spec_rules::SpecRule;
use crate::cgroup::v2::insn::{AluOp, Condition, Instruction, LoadSize, Operand, Reg, Width};
use crate::cgroup::v2::request::{AccessRequest, to_kernel_kind};
use crate::sys::bpf::Insn;

use Operand::{Const, Reg as Register};
use Width::{W32, W64};

/// A way to write a list of rules as a program.
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

/// Returns whether one of the rules covers all of the request. All shapes evaluate their rules
/// like this.
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

/// The end of a rule and of the program in most shapes: the verdict, and exit.
const ADMIT: [Instruction; 2] = [mov64(Reg::R0, Const(1)), Instruction::Exit];
const DENY: [Instruction; 2] = [mov64(Reg::R0, Const(0)), Instruction::Exit];

/// The shape of runc 1.1: 32-bit moves, and a block with a verdict and an exit for each rule.
fn runc(rules: &[SpecRule]) -> Vec<Insn> {
    let mut program = load_words();
    let admit = [mov32(Reg::R0, Const(1)), Instruction::Exit];
    for rule in rules {
        block(&mut program, tests_of(rule), &admit);
    }
    program.extend([mov32(Reg::R0, Const(0)), Instruction::Exit]);
    encode(program)
}

/// The shape of crun: 64-bit moves, and the last rule comes first.
fn crun(rules: &[SpecRule]) -> Vec<Insn> {
    let mut program = load_words();
    for rule in rules.iter().rev() {
        block(&mut program, tests_of(rule), &ADMIT);
    }
    program.extend(DENY);
    encode(program)
}

/// The shape of systemd: a matching rule jumps to an admission at the end, behind the denial.
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
    for (index, instruction) in program.iter_mut().enumerate() {
        if *instruction == TO_PASS {
            *instruction = Instruction::Goto {
                offset: (pass - index - 1) as i16,
            };
        }
    }
    encode(program)
}

/// A shape that compilers generate: kind and access are loaded as half words, and the address
/// of the context is copied.
fn narrow_loads(rules: &[SpecRule]) -> Vec<Insn> {
    let (kind, access) = if cfg!(target_endian = "little") {
        (0, 2)
    } else {
        (2, 0)
    };
    let mut program = vec![
        load(LoadSize::Half, Reg::R2, Reg::R1, kind),
        load(LoadSize::Half, Reg::R3, Reg::R1, access),
        load(LoadSize::Word, Reg::R4, Reg::R1, 4),
        mov64(Reg::R0, Register(Reg::R1)),
        load(LoadSize::Word, Reg::R5, Reg::R0, 8),
    ];
    for rule in rules {
        let tests = [number_tests(rule), kind_test(rule), access_test(rule)].concat();
        block(&mut program, tests, &ADMIT);
    }
    program.extend(DENY);
    encode(program)
}

/// A shape that sets the result before the rules, so that the last instruction only exits.
fn bare_exit(rules: &[SpecRule]) -> Vec<Insn> {
    let mut program = load_words();
    for rule in rules {
        block(&mut program, tests_of(rule), &ADMIT);
    }
    program.insert(0, mov64(Reg::R0, Const(0)));
    program.push(Instruction::Exit);
    encode(program)
}

/// A shape that tests access for bits that must not be set, with 32-bit jumps only.
fn short_jumps(rules: &[SpecRule]) -> Vec<Insn> {
    let jump32 = |condition, dst, constant| jump(W32, condition, dst, Const(constant));
    let mut program = load_words();
    for rule in rules {
        let mut tests = vec![jump32(
            Condition::AnyBitSet,
            Reg::R3,
            !i32::from(rule.access.bits()),
        )];
        let number = |register, number: Option<u32>| {
            number.map(|number| jump32(Condition::NotEqual, register, number as i32))
        };
        tests.extend(number(Reg::R2, rule.kind.map(to_kernel_kind)));
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

/// Loads the kind into R2, the access into R3, the major number into R4 and the minor number
/// into R5.
fn load_words() -> Vec<Instruction> {
    vec![
        load(LoadSize::Word, Reg::R2, Reg::R1, 0),
        alu32(AluOp::And, Reg::R2, Const(0xffff)),
        load(LoadSize::Word, Reg::R3, Reg::R1, 0),
        alu32(AluOp::Rsh, Reg::R3, Const(16)),
        load(LoadSize::Word, Reg::R4, Reg::R1, 4),
        load(LoadSize::Word, Reg::R5, Reg::R1, 8),
    ]
}

fn load(size: LoadSize, dst: Reg, src: Reg, offset: i16) -> Instruction {
    Instruction::Load {
        size,
        dst,
        src,
        offset,
    }
}

/// Adds the tests of a block and the instructions that follow them. A jump of a test leads to
/// the end of the block.
fn block(program: &mut Vec<Instruction>, mut tests: Vec<Instruction>, then: &[Instruction]) {
    let end = tests.len() + then.len();
    for (index, test) in tests.iter_mut().enumerate() {
        if let Instruction::Jump { offset, .. } = test {
            *offset = (end - index - 1) as i16;
        }
    }
    program.extend(tests);
    program.extend_from_slice(then);
}

/// Returns the tests of a rule, in the order of most shapes.
fn tests_of(rule: &SpecRule) -> Vec<Instruction> {
    [kind_test(rule), access_test(rule), number_tests(rule)].concat()
}

fn kind_test(rule: &SpecRule) -> Vec<Instruction> {
    Vec::from_iter(rule.kind.map(|kind| unless(Reg::R2, to_kernel_kind(kind))))
}

/// Returns the test of the access, which overwrites R1 as all shapes do.
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

/// Returns a jump out of its block; [`block`] sets the offset.
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
