//! The kinds of container that are compared.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    NoHook,
    /// A hook that does nothing.
    EmptyHook,
    /// Boathook, and a container that requests nothing.
    NoRequest,
    /// Boathook, with all that the workload has.
    ReferenceWork,
    /// No hook: config.json itself has the mounts and nodes of the workload.
    SpecCarried,
    /// The wrapper before runc, which adds the hook, with all that the workload has.
    Wrapper,
    /// The edits of a thin CDI specification: nodes and the hook.
    ThinCdi,
    /// The edits of a plain CDI specification: nodes and mounts.
    PlainCdi,
}

impl Kind {
    /// Every kind, in the order of their numbers.
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

    /// The methods by which a container can get the workload from Boathook.
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
