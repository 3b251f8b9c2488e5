//! The flags of an entry in ld.so.cache. They tell the format and the ABI of a library.

/// The flags of an entry. The low byte is the format of the library, and the bytes above it are the
/// ABI. Entries with unknown values are kept when the cache is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flags(pub i32);

/// An ABI that Boathook supports. Its [`Flags`] combine the format `FLAG_ELF_LIBC6` (3) with the
/// flag of the architecture (`sysdeps/generic/ldconfig.h` in glibc).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Abi {
    X86_64,
    Aarch64,
    I386,
}

impl Abi {
    /// The ABI for which this program is built.
    pub const NATIVE: Self = if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::X86_64
    };

    /// The ABI of 32-bit programs on the same machine. `None` if Boathook does not support them.
    pub const BITS_32: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::I386)
    } else {
        None
    };

    /// Returns whether the loader of this ABI accepts an entry with these flags. It accepts the
    /// flags of the ABI. On i386 it also accepts 1 (ELF for any C library), which `ldconfig` gives
    /// to a library that needs no C library (`_dl_cache_check_flags` in glibc's
    /// `sysdeps/generic/dl-cache.h`; other architectures have their own version of this function).
    pub fn accepts(self, flags: Flags) -> bool {
        flags == self.into() || (self == Self::I386 && flags == Flags(1))
    }

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
    pub fn abi(self) -> Option<Abi> {
        Abi::ALL.into_iter().find(|abi| self == (*abi).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_takes_its_own_libraries() {
        for (abi, flags, taken) in [
            (Abi::X86_64, 0x0303, true),
            (Abi::X86_64, 0x0003, false),
            (Abi::X86_64, 0x0001, false),
            (Abi::I386, 0x0003, true),
            (Abi::I386, 0x0001, true),
            (Abi::I386, 0x0303, false),
            (Abi::Aarch64, 0x0a03, true),
            (Abi::Aarch64, 0x0001, false),
        ] {
            assert_eq!(abi.accepts(Flags(flags)), taken, "{abi:?} {flags:#06x}");
        }
    }
}
