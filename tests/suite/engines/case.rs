//! The cases, which `check` tries and the table has.

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
