//! Encodes and decodes the eBPF instructions of device programs (RFC 9669).
//!
//! The supported instructions are arithmetic on registers, jumps, loads from the context, and exit.
//! Calls, maps, the stack and 64-bit constants are not supported, because runtimes and systemd do
//! not use them in device programs.

use crate::sys::bpf::Insn;

/// An eBPF register from R0 to R9, identified by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reg(u8);

impl Reg {
    /// The register that contains the result when the program ends: 1 admits the access, and 0
    /// denies it.
    pub(super) const R0: Self = Self(0);
    /// The register that contains the address of the context when the program starts.
    pub(super) const R1: Self = Self(1);
    pub(super) const R2: Self = Self(2);
    pub(super) const R3: Self = Self(3);
    pub(super) const R4: Self = Self(4);
    pub(super) const R5: Self = Self(5);
    /// The number of supported registers. R10, the stack pointer, is not supported.
    pub(super) const COUNT: usize = 10;

    fn decode(number: u8) -> Option<Self> {
        ((number as usize) < Self::COUNT).then_some(Self(number))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The width of an operation in bits. A 32-bit operation uses the lower half of a register, and
/// sets the upper half of the result to zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    W32,
    W64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    /// A constant of the instruction. It is sign-extended to the width of the operation.
    Const(i32),
    Reg(Reg),
}

/// An arithmetic operation. The value of a variant is in the upper four bits of the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum AluOp {
    Add = 0x0,
    Sub = 0x1,
    Or = 0x4,
    And = 0x5,
    Lsh = 0x6,
    Rsh = 0x7,
    Xor = 0xa,
    Mov = 0xb,
    Arsh = 0xc,
}

/// The condition of a jump. The value of a variant is in the upper four bits of the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Condition {
    Equal = 0x1,
    Greater = 0x2,
    GreaterOrEqual = 0x3,
    AnyBitSet = 0x4,
    NotEqual = 0x5,
    SignedGreater = 0x6,
    SignedGreaterOrEqual = 0x7,
    Less = 0xa,
    LessOrEqual = 0xb,
    SignedLess = 0xc,
    SignedLessOrEqual = 0xd,
}

/// The number of bytes that a load reads: 1, 2 or 4. The value of a variant is in the size bits of
/// the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum LoadSize {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Executes `dst = *(src + offset)`, and sets the upper bits of `dst` to zero.
    Load {
        size: LoadSize,
        dst: Reg,
        src: Reg,
        offset: i16,
    },
    /// Executes `dst = dst op operand`.
    Alu {
        width: Width,
        op: AluOp,
        dst: Reg,
        operand: Operand,
    },
    /// Skips `offset` instructions if the comparison of `dst` with `operand` is true.
    Jump {
        width: Width,
        condition: Condition,
        dst: Reg,
        operand: Operand,
        offset: i16,
    },
    Goto {
        offset: i16,
    },
    Exit,
}

// The instruction classes. They are the lower three bits of an opcode.
const LDX: u8 = 0x1;
const ALU: u8 = 0x4;
const JMP: u8 = 0x5;
const JMP32: u8 = 0x6;
const ALU64: u8 = 0x7;
/// The opcode bit that is set if the operand of an arithmetic operation or a jump is a register.
const SOURCE_REG: u8 = 0x8;
/// The mode bits in the opcode of a load from memory (`BPF_MEM`).
const MEM: u8 = 0x60;
const GOTO: u8 = 0x05;
const EXIT: u8 = 0x95;

impl Instruction {
    pub(super) fn encode(self) -> Insn {
        let zero = Reg(0);
        match self {
            Self::Load {
                size,
                dst,
                src,
                offset,
            } => pack(LDX | MEM | size as u8, dst, src, offset, 0),
            Self::Alu {
                width,
                op,
                dst,
                operand,
            } => {
                let class = match width {
                    Width::W32 => ALU,
                    Width::W64 => ALU64,
                };
                pack_operand(class | (op as u8) << 4, dst, operand, 0)
            }
            Self::Jump {
                width,
                condition,
                dst,
                operand,
                offset,
            } => {
                let class = match width {
                    Width::W32 => JMP32,
                    Width::W64 => JMP,
                };
                pack_operand(class | (condition as u8) << 4, dst, operand, offset)
            }
            Self::Goto { offset } => pack(GOTO, zero, zero, offset, 0),
            Self::Exit => pack(EXIT, zero, zero, 0, 0),
        }
    }

    /// Decodes an instruction in the kernel's format (`struct bpf_insn`). Returns `None` if the
    /// instruction is not supported, or if one of its unused fields is not zero.
    pub(super) fn decode(insn: Insn) -> Option<Self> {
        let [
            code,
            regs,
            offset0,
            offset1,
            constant0,
            constant1,
            constant2,
            constant3,
        ] = insn;
        let offset = i16::from_ne_bytes([offset0, offset1]);
        let constant = i32::from_ne_bytes([constant0, constant1, constant2, constant3]);
        // `regs` consists of two bit-fields of C with four bits each. Their order depends on the
        // byte order of the machine.
        let (dst, src) = if cfg!(target_endian = "little") {
            (regs & 0xf, regs >> 4)
        } else {
            (regs >> 4, regs & 0xf)
        };
        let (dst, src) = (Reg::decode(dst)?, Reg::decode(src)?);

        let instruction = match code & 0x7 {
            LDX => Self::Load {
                size: decode_size(code)?,
                dst,
                src,
                offset,
            },
            class @ (ALU | ALU64) => Self::Alu {
                width: if class == ALU { Width::W32 } else { Width::W64 },
                op: decode_alu_op(code)?,
                dst,
                operand: decode_operand(code, src, constant),
            },
            JMP if code == EXIT => Self::Exit,
            JMP if code == GOTO => Self::Goto { offset },
            class @ (JMP | JMP32) => Self::Jump {
                width: if class == JMP32 {
                    Width::W32
                } else {
                    Width::W64
                },
                condition: decode_condition(code)?,
                dst,
                operand: decode_operand(code, src, constant),
                offset,
            },
            _ => return None,
        };
        // `encode` sets the unused fields of an instruction to zero. Newer kernels give a meaning
        // to some of these fields. So an instruction is refused if such a field is not zero.
        (instruction.encode() == insn).then_some(instruction)
    }
}

fn pack_operand(code: u8, dst: Reg, operand: Operand, offset: i16) -> Insn {
    match operand {
        Operand::Const(constant) => pack(code, dst, Reg(0), offset, constant),
        Operand::Reg(src) => pack(code | SOURCE_REG, dst, src, offset, 0),
    }
}

fn pack(code: u8, dst: Reg, src: Reg, offset: i16, constant: i32) -> Insn {
    let regs = if cfg!(target_endian = "little") {
        src.0 << 4 | dst.0
    } else {
        dst.0 << 4 | src.0
    };
    let [offset0, offset1] = offset.to_ne_bytes();
    let [constant0, constant1, constant2, constant3] = constant.to_ne_bytes();
    [
        code, regs, offset0, offset1, constant0, constant1, constant2, constant3,
    ]
}

fn decode_operand(code: u8, src: Reg, constant: i32) -> Operand {
    if code & SOURCE_REG == 0 {
        Operand::Const(constant)
    } else {
        Operand::Reg(src)
    }
}

fn decode_size(code: u8) -> Option<LoadSize> {
    [LoadSize::Byte, LoadSize::Half, LoadSize::Word]
        .into_iter()
        .find(|size| *size as u8 | MEM | LDX == code)
}

fn decode_alu_op(code: u8) -> Option<AluOp> {
    use AluOp::*;
    [Add, Sub, Or, And, Lsh, Rsh, Xor, Mov, Arsh]
        .into_iter()
        .find(|op| *op as u8 == code >> 4)
}

fn decode_condition(code: u8) -> Option<Condition> {
    use Condition::*;
    [
        Equal,
        Greater,
        GreaterOrEqual,
        AnyBitSet,
        NotEqual,
        SignedGreater,
        SignedGreaterOrEqual,
        Less,
        LessOrEqual,
        SignedLess,
        SignedLessOrEqual,
    ]
    .into_iter()
    .find(|condition| *condition as u8 == code >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected bytes are those of other programs on a little-endian machine.
    #[test]
    #[cfg(target_endian = "little")]
    fn encodes_as_the_kernel_does() {
        for (instruction, bytes) in [
            (
                Instruction::Load {
                    size: LoadSize::Word,
                    dst: Reg::R2,
                    src: Reg::R1,
                    offset: 4,
                },
                [0x61, 0x12, 4, 0, 0, 0, 0, 0],
            ),
            (
                Instruction::Alu {
                    width: Width::W32,
                    op: AluOp::And,
                    dst: Reg::R2,
                    operand: Operand::Const(0xffff),
                },
                [0x54, 0x02, 0, 0, 0xff, 0xff, 0, 0],
            ),
            (
                Instruction::Alu {
                    width: Width::W64,
                    op: AluOp::Mov,
                    dst: Reg::R0,
                    operand: Operand::Const(1),
                },
                [0xb7, 0x00, 0, 0, 1, 0, 0, 0],
            ),
            (
                Instruction::Jump {
                    width: Width::W64,
                    condition: Condition::NotEqual,
                    dst: Reg::R1,
                    operand: Operand::Reg(Reg::R3),
                    offset: -2,
                },
                [0x5d, 0x31, 0xfe, 0xff, 0, 0, 0, 0],
            ),
            (
                Instruction::Goto { offset: 1 },
                [0x05, 0x00, 1, 0, 0, 0, 0, 0],
            ),
            (Instruction::Exit, [0x95, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(instruction.encode(), bytes);
            assert_eq!(Instruction::decode(bytes), Some(instruction));
        }
    }

    #[test]
    fn decodes_nothing_that_it_would_not_encode() {
        let mut known = 0;
        for code in 0..=u8::MAX {
            for regs in 0..=u8::MAX {
                for rest in [[0; 6], [1, 0, 0, 0, 0, 0], [0, 0, 7, 0, 0, 0]] {
                    let [offset0, offset1, constant0, constant1, constant2, constant3] = rest;
                    let insn = [
                        code, regs, offset0, offset1, constant0, constant1, constant2, constant3,
                    ];
                    if let Some(instruction) = Instruction::decode(insn) {
                        assert_eq!(instruction.encode(), insn);
                        known += 1;
                    }
                }
            }
        }
        assert!(known > 1000, "only {known} instructions are known");
    }

    #[test]
    fn does_not_know_the_rest_of_ebpf() {
        for (insn, what) in [
            ([0; 8], "a hidden instruction"),
            ([0x85, 0, 0, 0, 5, 0, 0, 0], "a call"),
            ([0x18, 0x11, 0, 0, 7, 0, 0, 0], "a map"),
            ([0x63, 0x1a, 0xfc, 0xff, 0, 0, 0, 0], "a store to the stack"),
            (
                [0x79, 0xa1, 0xf8, 0xff, 0, 0, 0, 0],
                "a load from the stack",
            ),
            ([0x97, 0x02, 0, 0, 3, 0, 0, 0], "a remainder"),
            ([0x87, 0x02, 0, 0, 0, 0, 0, 0], "a negation"),
            ([0xdc, 0x02, 0, 0, 16, 0, 0, 0], "a swap of bytes"),
            ([0xbf, 0x21, 8, 0, 0, 0, 0, 0], "a move with sign extension"),
            (
                [0xb7, 0x0b, 0, 0, 1, 0, 0, 0],
                "the register that blinds constants",
            ),
            ([0x05, 0, 0, 0, 1, 0, 0, 0], "a jump with a constant"),
        ] {
            assert_eq!(Instruction::decode(insn), None, "{what}");
        }
    }
}
