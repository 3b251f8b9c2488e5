//! What was done, level by level, for the caller to print.

use std::fmt;
use std::path::PathBuf;

/// What [`allow`](super::DeviceCgroup::allow) did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// One entry per cgroup, and per program where several were dealt with;
    /// from the container's cgroup upwards.
    pub levels: Vec<LevelReport>,
}

/// What was done at one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelReport {
    /// The cgroup's directory.
    pub cgroup: PathBuf,
    /// What was done.
    pub outcome: Outcome,
}

/// What came of the rules at one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// v2: no program is attached here, or none that counts for the container.
    NoProgram,
    /// All rules are allowed here already.
    AlreadyAllowed,
    /// v1: rules were added to the list.
    Written {
        /// How many; the others were there already.
        rules: usize,
    },
    /// v2: a program was replaced by one that admits the rules and then asks the old one.
    Rewritten {
        /// Id of the old program.
        program: u32,
    },
    /// v2: a program that can't be read back was replaced by one made from the spec.
    Regenerated {
        /// Id of the old program.
        program: u32,
    },
    /// v2: a program can't be read back and was left alone, because it is not
    /// the container's own. It may deny what the rules allow.
    Unreadable {
        /// Id of the program.
        program: u32,
    },
    /// Nothing was done, for want of privileges.
    NoPermission {
        /// What the kernel did not let us do.
        operation: &'static str,
    },
}

impl Report {
    /// Whether privileges were missing: a rootless container, as a rule.
    pub fn lacks_permission(&self) -> bool {
        self.has(|outcome| matches!(outcome, Outcome::NoPermission { .. }))
    }

    /// Whether a program that can't be read may still deny what was allowed.
    pub fn in_doubt(&self) -> bool {
        self.has(|outcome| matches!(outcome, Outcome::Unreadable { .. }))
    }

    fn has(&self, wanted: impl Fn(&Outcome) -> bool) -> bool {
        self.levels.iter().any(|level| wanted(&level.outcome))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, LevelReport { cgroup, outcome }) in self.levels.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}: {outcome}", cgroup.display())?;
        }
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProgram => write!(f, "no program to satisfy"),
            Self::AlreadyAllowed => write!(f, "already allowed"),
            Self::Written { rules } => write!(f, "{rules} rules written"),
            Self::Rewritten { program } => write!(f, "program {program} rewritten"),
            Self::Regenerated { program } => write!(
                f,
                "program {program} cannot be read back, replaced by one made from the spec"
            ),
            Self::Unreadable { program } => write!(
                f,
                "program {program} cannot be read back and was left alone; if it denies the \
                 devices, set net.core.bpf_jit_harden below 2 or DeviceAllow= on the systemd unit"
            ),
            Self::NoPermission { operation } => {
                write!(
                    f,
                    "no permission to {operation}; device rules left as they are"
                )
            }
        }
    }
}
