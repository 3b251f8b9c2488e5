//! Hiding system calls, as an older kernel or a strict seccomp filter does.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Which of the newer calls a case has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// All that this machine's kernel has.
    Kernel,
    /// Those for mounts by descriptor, and no others.
    Mounts,
    /// None: they answer `ENOSYS`, as on an old kernel.
    NoneEnosys,
    /// None: they answer `EPERM`, as older seccomp filters do.
    NoneEperm,
}

/// Not in libc yet.
const SYS_STATMOUNT: i64 = 457;

const NEWER: [i64; 10] = [
    libc::SYS_openat2,
    SYS_STATMOUNT,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    // Younger than the rest is its field for the mount's id (Linux 5.8).
    libc::SYS_statx,
    // So that a case cannot get by with what the hook does not use.
    libc::SYS_fspick,
];

impl Calls {
    pub(crate) const ALL: [Self; 4] = [
        Self::Kernel,
        Self::Mounts,
        Self::NoneEnosys,
        Self::NoneEperm,
    ];

    /// Whether mounts can be made detached.
    pub(crate) fn detached(self) -> bool {
        matches!(self, Self::Kernel | Self::Mounts)
    }

    /// Hides the calls from this process for good.
    pub(crate) fn apply(self) -> Result<()> {
        let (hidden, errno) = match self {
            Self::Kernel => return Ok(()),
            Self::Mounts => (&NEWER[..2], libc::ENOSYS),
            Self::NoneEnosys => (&NEWER[..], libc::ENOSYS),
            Self::NoneEperm => (&NEWER[..], libc::EPERM),
        };
        let filter = SeccompFilter::new(
            hidden.iter().map(|call| (*call, Vec::new())).collect(),
            SeccompAction::Allow,
            SeccompAction::Errno(errno.cast_unsigned()),
            std::env::consts::ARCH.try_into()?,
        )?;
        let program: BpfProgram = filter.try_into()?;
        seccompiler::apply_filter(&program).context("cannot install the seccomp filter")
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kernel => "all-calls",
            Self::Mounts => "mounts-only",
            Self::NoneEnosys => "none-enosys",
            Self::NoneEperm => "none-eperm",
        })
    }
}

impl FromStr for Calls {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|calls| calls.to_string() == text)
            .context("no such set of calls")
    }
}
