//! Errors of device rules.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use super::privilege;
use super::rule::DeviceRule;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is longer than {limit} bytes")]
    TooLong {
        path: PathBuf,
        /// The maximum number of bytes that are read.
        limit: u64,
    },
    #[error("unexpected line {line:?} in {path}")]
    Malformed { path: PathBuf, line: String },
    #[error(
        "cgroup {cgroup} is not under any mount of its hierarchy that this process sees: \
         run the hook in the host's mount and cgroup namespaces"
    )]
    NotVisible {
        /// The path of the cgroup in its hierarchy.
        cgroup: PathBuf,
    },
    #[error(
        "device {rule} is not allowed in cgroup {ancestor}, which encloses the container's \
         cgroup {cgroup}; allow it there first: give it to the enclosing container, or set \
         DeviceAllow= on the systemd unit"
    )]
    AncestorDenies {
        /// The cgroup that should get the rule.
        cgroup: PathBuf,
        /// The nearest ancestor that denies it.
        ancestor: PathBuf,
        rule: DeviceRule,
    },
    #[error("cannot write {rule:?} to {path}")]
    Write {
        path: PathBuf,
        /// The rule as it was written to the file.
        rule: String,
        source: io::Error,
    },
    #[error("cannot read the device programs of cgroup {cgroup}")]
    ReadPrograms { cgroup: PathBuf, source: Errno },
    #[error(
        "the kernel refuses the new device program for cgroup {cgroup} ({instructions} \
         instructions){}",
        if .log.is_empty() { String::new() } else { format!(": {}", .log) }
    )]
    Load {
        cgroup: PathBuf,
        instructions: usize,
        /// The end of the verifier's log, if there is one.
        log: String,
        source: Errno,
    },
    /// cgroup v2: a program of the container's cgroup cannot be evaluated, and may belong to
    /// another component than the runtime.
    #[error(
        "device program {program} ({name:?}) of cgroup {cgroup} cannot be understood and may deny \
         the devices; it may be another component's, and was left alone: let that component \
         admit the container's devices, or set net.core.bpf_jit_harden below 2"
    )]
    ForeignProgram {
        cgroup: PathBuf,
        program: u32,
        name: String,
    },
    #[error("cannot replace device program {program} of cgroup {cgroup}{}", hint(*.source))]
    Attach {
        cgroup: PathBuf,
        program: u32,
        source: Errno,
    },
    #[error(
        "device programs of cgroup {cgroup} cannot be replaced: \
         they keep changing, or another process holds them by a bpf link"
    )]
    ConcurrentChanges { cgroup: PathBuf },
    /// cgroup v2: a program of a cgroup above the highest visible one denies a device.
    #[error(
        "device program {program}, attached above {mount}, denies {rule}: \
         run the hook in the host's mount and cgroup namespaces"
    )]
    HiddenAncestorDenies {
        mount: PathBuf,
        program: u32,
        /// The first rule that the program denies.
        rule: DeviceRule,
    },
}

impl CgroupError {
    /// Returns whether programs could not be read because this process lacks privileges on the
    /// host.
    pub(crate) fn lacks_privileges(&self) -> bool {
        match self {
            Self::ReadPrograms { source, .. } => {
                matches!(source, Errno::EPERM | Errno::EACCES) && !privilege::can_change_programs()
            }
            _ => false,
        }
    }
}

fn hint(errno: Errno) -> &'static str {
    match errno {
        Errno::E2BIG => ": the cgroup has 64 programs, and the kernel replaces none of so many",
        _ => "",
    }
}
