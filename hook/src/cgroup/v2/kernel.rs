//! Declares a trait with the kernel's operations on device programs, so that tests can simulate the
//! kernel.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use crate::cgroup::privilege;
use crate::sys::bpf::{self, CgroupPrograms, Insn, ProgramDescription, ProgramScope};

/// The name of the device programs that Boathook loads, which bpftool shows. The kernel permits at
/// most 15 characters (`BPF_OBJ_NAME_LEN`).
pub(super) const PROGRAM_NAME: &str = "boathook_device";

/// Reports whether the kernel will hide the instructions of a device program that is loaded now. If
/// `net.core.bpf_jit_harden` is 2, the kernel obfuscates ("blinds") the constants of every program
/// that it loads. It does not show the instructions of such a program.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub fn hides_new_programs() -> bool {
    let harden = fs::read("/proc/sys/net/core/bpf_jit_harden");
    harden.is_ok_and(|value| value.trim_ascii() == b"2")
}

pub(super) trait Kernel {
    type Cgroup;
    type Program;

    fn open_cgroup(&self, dir: &Path) -> io::Result<Self::Cgroup>;
    fn query(&self, cgroup: &Self::Cgroup, scope: ProgramScope) -> Result<CgroupPrograms, Errno>;
    fn open(&self, id: u32) -> Result<Self::Program, Errno>;
    fn dump(&self, program: &Self::Program) -> Result<Vec<Insn>, Errno>;
    fn describe_program(&self, program: &Self::Program) -> Result<ProgramDescription, Errno>;
    fn load(&self, program: &[Insn], log: &mut [u8]) -> Result<Self::Program, Errno>;
    fn attach(
        &self,
        cgroup: &Self::Cgroup,
        program: &Self::Program,
        flags: u32,
        replace: Option<&Self::Program>,
    ) -> Result<(), Errno>;
    fn detach(&self, cgroup: &Self::Cgroup, program: &Self::Program) -> Result<(), Errno>;

    /// Reports whether this process has the capabilities for the operations of this trait:
    /// CAP_SYS_ADMIN and CAP_NET_ADMIN in the initial user namespace.
    fn is_privileged(&self) -> bool;

    /// Reports whether an operation failed with `errno` because this process lacks the capabilities
    /// for it. If the process has them, EPERM and EACCES have another cause, such as a security
    /// module.
    fn lacks_privileges(&self, errno: Errno) -> bool {
        matches!(errno, Errno::EPERM | Errno::EACCES) && !self.is_privileged()
    }
}

pub(super) struct RunningKernel;

impl Kernel for RunningKernel {
    type Cgroup = File;
    type Program = OwnedFd;

    fn open_cgroup(&self, dir: &Path) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(open(dir, flags, Mode::empty())?.into())
    }

    fn query(&self, cgroup: &File, scope: ProgramScope) -> Result<CgroupPrograms, Errno> {
        bpf::query_programs(cgroup.as_fd(), scope)
    }

    fn open(&self, id: u32) -> Result<OwnedFd, Errno> {
        bpf::open_program(id)
    }

    fn dump(&self, program: &OwnedFd) -> Result<Vec<Insn>, Errno> {
        bpf::read_instructions(program.as_fd())
    }

    fn describe_program(&self, program: &OwnedFd) -> Result<ProgramDescription, Errno> {
        bpf::describe_program(program.as_fd())
    }

    fn load(&self, program: &[Insn], log: &mut [u8]) -> Result<OwnedFd, Errno> {
        bpf::load_program(program, PROGRAM_NAME, log)
    }

    fn attach(
        &self,
        cgroup: &File,
        program: &OwnedFd,
        flags: u32,
        replace: Option<&OwnedFd>,
    ) -> Result<(), Errno> {
        bpf::attach_program(
            cgroup.as_fd(),
            program.as_fd(),
            flags,
            replace.map(AsFd::as_fd),
        )
    }

    fn detach(&self, cgroup: &File, program: &OwnedFd) -> Result<(), Errno> {
        bpf::detach_program(cgroup.as_fd(), program.as_fd())
    }

    fn is_privileged(&self) -> bool {
        privilege::can_change_programs()
    }
}
