//! What an entry's flags say: library format and ABI.

/// An entry's flags word: the library format in the low byte, what the ABI requires above it.
/// Unknown values are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flags(pub i32);

/// An ABI whose libraries are known to the cache's entries: ELF for glibc 2 (`libc6`, 3) with
/// the architecture's flag (`sysdeps/generic/ldconfig.h` in glibc).
///
/// The loader takes an entry only if its flags are exactly its own ABI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abi {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
    /// 32-bit x86.
    I386,
}

impl Abi {
    /// The ABI of this program.
    pub const NATIVE: Self = if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::X86_64
    };

    const ALL: [Self; 3] = [Self::X86_64, Self::Aarch64, Self::I386];
}

impl From<Abi> for Flags {
    fn from(abi: Abi) -> Self {
        match abi {
            Abi::X86_64 => Self(0x0303),
            Abi::Aarch64 => Self(0x0a03),
            Abi::I386 => Self(0x0003),
        }
    }
}

impl Flags {
    /// The ABI that these flags stand for, if it is one of the known ones.
    pub fn abi(self) -> Option<Abi> {
        Abi::ALL.into_iter().find(|abi| self == (*abi).into())
    }
}
