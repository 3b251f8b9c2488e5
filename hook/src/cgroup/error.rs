use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

use super::privilege;
use super::rule::DeviceRule;

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} is longer than {limit} bytes")]
    TooLong { path: PathBuf, limit: u64 },
    #[error("unexpected line {line:?} in {path}")]
    Malformed { path: PathBuf, line: String },
    #[error(
        "cgroup {cgroup} is not under any mount of its hierarchy that this process sees: \
         run the hook in the host's mount and cgroup namespaces"
    )]
    NotVisible {
        /// The path of the cgroup in its hierarchy, as `/proc/PID/cgroup` shows it.
        cgroup: PathBuf,
    },
    #[error(
        "device {rule} is not allowed in cgroup {ancestor}, which encloses the container's \
         cgroup {cgroup}; allow it there first: give it to the enclosing container, or set \
         DeviceAllow= on the systemd unit"
    )]
    AncestorDenies {
        /// The directory of the container's cgroup. This cgroup cannot allow a device that one of
        /// its ancestors denies.
        cgroup: PathBuf,
        /// The directory of an ancestor of this cgroup. The ancestor denies `rule`.
        ancestor: PathBuf,
        rule: DeviceRule,
    },
    #[error("cannot write {rule:?} to {path}")]
    Write {
        path: PathBuf,
        /// The rule in the format of the control file, such as `c 10:183 rw`.
        rule: String,
        source: io::Error,
    },
    #[error("cannot read the device programs of cgroup {cgroup}")]
    ReadPrograms { cgroup: PathBuf, source: Errno },
    #[error(
        "the kernel refuses the new device program for cgroup {cgroup} ({instruction_count} \
         instructions){}",
        if .log.is_empty() { String::new() } else { format!(": {}", .log) }
    )]
    Load {
        cgroup: PathBuf,
        instruction_count: usize,
        /// The end of the kernel verifier's log, on one line. It may be empty.
        log: String,
        source: Errno,
    },
    /// This process cannot evaluate a device program of the container's cgroup (cgroup v2). The
    /// program is not replaced, because it may belong to a component other than the runtime.
    #[error(
        "device program {program_id} ({name:?}) of cgroup {cgroup} cannot be understood and may deny \
         the devices; it may be another component's, and was left alone: let that component \
         admit the container's devices, or set net.core.bpf_jit_harden below 2"
    )]
    ForeignProgram {
        cgroup: PathBuf,
        program_id: u32,
        name: String,
    },
    #[error("cannot replace device program {program_id} of cgroup {cgroup}{}", attach_hint(*.source))]
    Attach {
        cgroup: PathBuf,
        program_id: u32,
        source: Errno,
    },
    #[error(
        "device programs of cgroup {cgroup} cannot be replaced: \
         they keep changing, or another process holds them by a bpf link"
    )]
    ConcurrentChanges { cgroup: PathBuf },
    /// A device program (cgroup v2) denies a device, and is attached to a cgroup that this process
    /// does not see, because the mount `mount` shows only a part of the hierarchy.
    #[error(
        "device program {program_id}, attached above {mount}, denies {rule}: \
         run the hook in the host's mount and cgroup namespaces"
    )]
    HiddenAncestorDenies {
        mount: PathBuf,
        program_id: u32,
        rule: DeviceRule,
    },
}

impl CgroupError {
    /// Reports whether the kernel refused to show device programs because this process has too few
    /// privileges. It needs CAP_SYS_ADMIN and CAP_NET_ADMIN in the initial user namespace.
    pub fn lacks_privileges(&self) -> bool {
        match self {
            Self::ReadPrograms { source, .. } => {
                matches!(source, Errno::EPERM | Errno::EACCES) && !privilege::can_change_programs()
            }
            _ => false,
        }
    }
}

fn attach_hint(errno: Errno) -> &'static str {
    match errno {
        Errno::E2BIG => ": the cgroup has 64 programs, and the kernel replaces none of so many",
        _ => "",
    }
}
