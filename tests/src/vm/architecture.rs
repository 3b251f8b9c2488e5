//! The architectures of virtual machines.

use std::path::Path;

use anyhow::{Context, Result};

/// An architecture for which both Debian and releases of Boathook exist. The processor is always
/// emulated, because machines that run tests often lack KVM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    /// Returns the architecture with this name in Debian.
    pub fn named(name: &str) -> Result<Self> {
        let known = [Self::Amd64, Self::Arm64];
        let found = known.into_iter().find(|known| known.name() == name);
        found.with_context(|| format!("no architecture {name}: amd64 and arm64 are known"))
    }

    /// Returns the architecture of this machine, if virtual machines of it are supported.
    pub fn of_this_machine() -> Option<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Some(Self::Amd64),
            "aarch64" => Some(Self::Arm64),
            _ => None,
        }
    }

    /// Returns the name of the architecture in Debian.
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

    /// Returns the options of QEMU for a machine with an IOMMU.
    pub(super) fn machine(self) -> &'static str {
        match self {
            Self::Amd64 => "-machine q35 -cpu max -device intel-iommu,intremap=off",
            // The emulation of the architecture's own pointer authentication would take half of the
            // time, so a cheaper algorithm is used.
            Self::Arm64 => "-machine virt,iommu=smmuv3 -cpu max,pauth-impdef=on",
        }
    }

    /// Returns the options of the kernel's command line for this machine.
    pub(super) fn command_line(self) -> &'static str {
        match self {
            Self::Amd64 => "console=ttyS0 intel_iommu=on no_timer_check",
            Self::Arm64 => "console=ttyAMA0",
        }
    }
}
