//! The cases.

use std::fmt;

/// One thing that must be right on every engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    OneDevice,
    TwoDevices,
    AllDevices,
    NoneOfThem,
    Unset,
    UnknownDevice,
    Glibc,
    Busybox,
    GlibcWithoutCache,
    ReadOnly,
    OrdinaryUser,
    UserNamespace,
    Exec,
    Restart,
    TwentyAtOnce,
    WritableLayer,
}

impl Case {
    /// Every case, in the order of the table.
    pub(super) const ALL: [Self; 16] = [
        Self::OneDevice,
        Self::TwoDevices,
        Self::AllDevices,
        Self::NoneOfThem,
        Self::Unset,
        Self::UnknownDevice,
        Self::Glibc,
        Self::Busybox,
        Self::GlibcWithoutCache,
        Self::ReadOnly,
        Self::OrdinaryUser,
        Self::UserNamespace,
        Self::Exec,
        Self::Restart,
        Self::TwentyAtOnce,
        Self::WritableLayer,
    ];
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::OneDevice => "one device",
            Self::TwoDevices => "two devices",
            Self::AllDevices => "all devices",
            Self::NoneOfThem => "none",
            Self::Unset => "unset",
            Self::UnknownDevice => "unknown device refused",
            Self::Glibc => "glibc image",
            Self::Busybox => "busybox image",
            Self::GlibcWithoutCache => "image without ld.so.cache",
            Self::ReadOnly => "read-only rootfs",
            Self::OrdinaryUser => "non-root user",
            Self::UserNamespace => "user namespace",
            Self::Exec => "exec",
            Self::Restart => "restart",
            Self::TwentyAtOnce => "20 containers at once",
            Self::WritableLayer => "writable layer",
        })
    }
}
