//! Evaluates a device program (eBPF) without the kernel, to find out which devices the program
//! admits.
//!
//! The result is exact for the supported instructions. Any other executed instruction is an error,
//! so that a result is never a guess.

use super::insn::{AluOp, Condition, Instruction, LoadSize, Operand, Reg, Width};
use super::request::{AccessRequest, CONTEXT_LEN};
use crate::sys::bpf::Insn;

/// The maximum number of executed instructions. A program that exceeds it is treated as an endless
/// loop. Device programs of runtimes and systemd have a few hundred instructions and no loops.
const MAX_EXECUTED_INSNS: usize = 100_000;

const LOWER_HALF_MASK: u64 = u32::MAX as u64;

/// The error for a device program that contains an instruction which the evaluator does not
/// support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnsupportedInstruction;

#[derive(Clone, Copy)]
enum RegisterValue {
    Unset,
    Number(u64),
    ContextAddress,
}

pub(super) fn allows_request(
    program: &[Insn],
    request: &AccessRequest,
) -> Result<bool, UnsupportedInstruction> {
    Ok(run_program(program, request)? == 1)
}

/// Runs a device program, and returns the value of R0 at its end. The kernel admits the request if
/// this value is 1.
pub(super) fn run_program(
    program: &[Insn],
    request: &AccessRequest,
) -> Result<u64, UnsupportedInstruction> {
    let context = request.to_context();
    let mut registers = [RegisterValue::Unset; Reg::COUNT];
    registers[Reg::R1.index()] = RegisterValue::ContextAddress;

    let mut index = 0usize;
    for _ in 0..MAX_EXECUTED_INSNS {
        let insn = program.get(index).ok_or(UnsupportedInstruction)?;
        let mut jump_offset = 0;
        match Instruction::decode(*insn).ok_or(UnsupportedInstruction)? {
            Instruction::Load {
                size,
                dst,
                src,
                offset,
            } => {
                let RegisterValue::ContextAddress = registers[src.index()] else {
                    return Err(UnsupportedInstruction);
                };
                registers[dst.index()] =
                    RegisterValue::Number(load_from_context(&context, size, offset)?);
            }
            Instruction::Alu {
                width: Width::W64,
                op: AluOp::Mov,
                dst,
                operand: Operand::Reg(src),
            } => registers[dst.index()] = registers[src.index()],
            Instruction::Alu {
                width,
                op,
                dst,
                operand,
            } => {
                let right = operand_value(&registers, operand)?;
                let left = match op {
                    AluOp::Mov => 0,
                    _ => operand_value(&registers, Operand::Reg(dst))?,
                };
                registers[dst.index()] =
                    RegisterValue::Number(evaluate_alu_op(width, op, left, right));
            }
            Instruction::Jump {
                width,
                condition,
                dst,
                operand,
                offset,
            } => {
                let left = operand_value(&registers, Operand::Reg(dst))?;
                let right = operand_value(&registers, operand)?;
                if condition_holds(width, condition, left, right) {
                    jump_offset = offset;
                }
            }
            Instruction::Goto { offset } => jump_offset = offset,
            Instruction::Exit => return operand_value(&registers, Operand::Reg(Reg::R0)),
        }
        index = (index + 1)
            .checked_add_signed(jump_offset.into())
            .ok_or(UnsupportedInstruction)?;
    }
    Err(UnsupportedInstruction)
}

fn load_from_context(
    context: &[u8; CONTEXT_LEN],
    size: LoadSize,
    offset: i16,
) -> Result<u64, UnsupportedInstruction> {
    let start = usize::try_from(offset).map_err(|_| UnsupportedInstruction)?;
    let bytes = context.get(start..).ok_or(UnsupportedInstruction)?;
    match size {
        LoadSize::Byte => bytes.first_chunk().map(|b| u8::from_ne_bytes(*b).into()),
        LoadSize::Half => bytes.first_chunk().map(|b| u16::from_ne_bytes(*b).into()),
        LoadSize::Word => bytes.first_chunk().map(|b| u32::from_ne_bytes(*b).into()),
    }
    .ok_or(UnsupportedInstruction)
}

fn operand_value(
    registers: &[RegisterValue; Reg::COUNT],
    operand: Operand,
) -> Result<u64, UnsupportedInstruction> {
    match operand {
        Operand::Const(constant) => Ok(i64::from(constant).cast_unsigned()),
        Operand::Reg(reg) => match registers[reg.index()] {
            RegisterValue::Number(number) => Ok(number),
            // The kernel does not load a program that calculates with an unset register or with the
            // address of the context. So no loaded program causes this error.
            RegisterValue::Unset | RegisterValue::ContextAddress => Err(UnsupportedInstruction),
        },
    }
}

fn evaluate_alu_op(width: Width, op: AluOp, left: u64, right: u64) -> u64 {
    // The upper half of a register must not affect a 32-bit operation. But a shift to the right
    // would move its bits into the result, so the upper half is replaced here.
    let (left, signed, bits) = match width {
        Width::W64 => (left, left.cast_signed(), u64::BITS),
        Width::W32 => (
            left & LOWER_HALF_MASK,
            sign_extend(left).cast_signed(),
            u32::BITS,
        ),
    };
    // eBPF reduces the shift amount modulo the width of the operation (RFC 9669, section 4.1).
    let shift_amount = right as u32 % bits;
    let result = match op {
        AluOp::Add => left.wrapping_add(right),
        AluOp::Sub => left.wrapping_sub(right),
        AluOp::Or => left | right,
        AluOp::And => left & right,
        AluOp::Lsh => left << shift_amount,
        AluOp::Rsh => left >> shift_amount,
        AluOp::Xor => left ^ right,
        AluOp::Mov => right,
        AluOp::Arsh => (signed >> shift_amount).cast_unsigned(),
    };
    match width {
        Width::W64 => result,
        Width::W32 => result & LOWER_HALF_MASK,
    }
}

fn condition_holds(width: Width, condition: Condition, left: u64, right: u64) -> bool {
    // Sign extension keeps the order of 32-bit numbers, both signed and unsigned. So a 32-bit
    // comparison can use the extended operands.
    let (left, right) = match width {
        Width::W64 => (left, right),
        Width::W32 => (sign_extend(left), sign_extend(right)),
    };
    let (signed_left, signed_right) = (left.cast_signed(), right.cast_signed());
    match condition {
        Condition::Equal => left == right,
        Condition::NotEqual => left != right,
        Condition::AnyBitSet => left & right != 0,
        Condition::Greater => left > right,
        Condition::GreaterOrEqual => left >= right,
        Condition::Less => left < right,
        Condition::LessOrEqual => left <= right,
        Condition::SignedGreater => signed_left > signed_right,
        Condition::SignedGreaterOrEqual => signed_left >= signed_right,
        Condition::SignedLess => signed_left < signed_right,
        Condition::SignedLessOrEqual => signed_left <= signed_right,
    }
}

fn sign_extend(value: u64) -> u64 {
    i64::from(value as i32).cast_unsigned()
}
