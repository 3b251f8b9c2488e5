//! The kinds of container whose start is compared.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    NoHook,
    /// A container with a hook that does nothing.
    EmptyHook,
    /// A container with Boathook's hook that requests nothing.
    NoRequest,
    /// A container with Boathook's hook that requests the devices of the workload.
    ReferenceWork,
    /// A container without a hook whose config.json has the mounts and device nodes of the
    /// workload.
    SpecCarried,
    /// A container that requests the devices of the workload from the wrapper around runc, which
    /// adds the hook.
    Wrapper,
    /// A container with the edits of a CDI specification that uses the hook: device nodes and the
    /// hook.
    ThinCdi,
    /// A container with the edits of a CDI specification without the hook: device nodes and mounts.
    PlainCdi,
}

impl Kind {
    /// All kinds, ordered by their discriminants.
    pub(crate) const ALL: [Self; 8] = [
        Self::NoHook,
        Self::EmptyHook,
        Self::NoRequest,
        Self::ReferenceWork,
        Self::SpecCarried,
        Self::Wrapper,
        Self::ThinCdi,
        Self::PlainCdi,
    ];

    /// The kinds of container that receive the workload from Boathook.
    pub(crate) const WAYS: [Self; 4] = [
        Self::ReferenceWork,
        Self::Wrapper,
        Self::ThinCdi,
        Self::PlainCdi,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoHook => "no hook",
            Self::EmptyHook => "empty hook",
            Self::NoRequest => "boathook, no request",
            Self::ReferenceWork => "boathook, reference work",
            Self::SpecCarried => "reference work in config.json",
            Self::Wrapper => "boathook-runtime, reference work",
            Self::ThinCdi => "thin CDI, reference work",
            Self::PlainCdi => "plain CDI, reference work",
        })
    }
}
