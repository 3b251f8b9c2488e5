//! The processor of a machine.

use std::path::Path;

use anyhow::{Context, Result};

/// An architecture of Debian and of the releases. The processor is emulated, since one
/// cannot rely on KVM where tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    /// That with this name of Debian's.
    pub fn named(name: &str) -> Result<Self> {
        let known = [Self::Amd64, Self::Arm64];
        let found = known.into_iter().find(|known| known.name() == name);
        found.with_context(|| format!("no architecture {name}: amd64 and arm64 are known"))
    }

    /// This machine's own, if there is a virtual machine of it.
    pub fn of_this_machine() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// Debian's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    pub(super) fn qemu(self) -> &'static str {
        match self {
            Self::Amd64 => "/usr/bin/qemu-system-x86_64",
            Self::Arm64 => "/usr/bin/qemu-system-aarch64",
        }
    }

    /// Returns the reason why QEMU cannot emulate the architecture here, or `None` if it can.
    pub(super) fn missing(self) -> Option<String> {
        let package = match self {
            Self::Amd64 => "qemu-system-x86",
            Self::Arm64 => "qemu-system-arm",
        };
        let program = self.qemu();
        (!Path::new(program).is_file()).then(|| format!("needs {program} (package {package})"))
    }

    /// QEMU's options for the machine, with an IOMMU.
    pub(super) fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "-machine q35 -cpu max -device intel-iommu,intremap=off",
            // Authentication of pointers as the architecture has it takes half of the time.
            Self::Arm64 => "-machine virt,iommu=smmuv3 -cpu max,pauth-impdef=on",
        }
    }

    /// The kernel's options for it.
    pub(super) fn command_line(self) -> &'static str {
        match self {
            Self::Amd64 => "console=ttyS0 intel_iommu=on no_timer_check",
            Self::Arm64 => "console=ttyAMA0",
        }
    }
}
