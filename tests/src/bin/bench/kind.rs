//! The kinds of container that are compared.

use std::fmt;

/// A kind of container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// No hook at all.
    NoHook,
    /// A hook that does nothing.
    EmptyHook,
    /// Boathook, and a container that asks for nothing.
    NothingAsked,
    /// Boathook, with all that the workload has.
    ReferenceWork,
    /// No hook: config.json itself has the mounts and nodes of the workload.
    SpecCarried,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] = [
        Self::NoHook,
        Self::EmptyHook,
        Self::NothingAsked,
        Self::ReferenceWork,
        Self::SpecCarried,
    ];
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoHook => "no hook",
            Self::EmptyHook => "empty hook",
            Self::NothingAsked => "boathook, nothing asked",
            Self::ReferenceWork => "boathook, reference work",
            Self::SpecCarried => "reference work in config.json",
        })
    }
}
