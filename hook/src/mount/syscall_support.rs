//! Finds out which newer system calls the kernel allows. The hook also runs on older kernels, and
//! has a substitute for each of these calls.

use std::path::Path;

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::Error;
use crate::container::Resolver;
use crate::sys::{mount as mount_syscalls, statmount};

/// The availability of newer system calls. If a call is not available, the hook uses a substitute.
/// A call is available if the kernel has it, and neither a seccomp filter nor a missing privilege
/// forbids it.
///
/// `EPERM` has the same meaning as `ENOSYS`, because older seccomp filters return `EPERM` for
/// system calls that they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyscallSupport {
    /// Whether openat2(2) is available. It resolves paths inside a root directory (Linux 5.6).
    pub openat2: bool,
    /// Whether open_tree(2) is available. It copies a mount, and the copy is in no mount namespace
    /// yet (Linux 5.2).
    pub open_tree: bool,
    /// Whether move_mount(2) is available. It attaches a mount, given as a descriptor, to a mount
    /// point (Linux 5.2).
    pub move_mount: bool,
    /// Whether mount_setattr(2) is available. It changes the attributes of a mount by its
    /// descriptor, such as read-only (Linux 5.12).
    pub mount_setattr: bool,
    /// Whether fsopen(2), fsconfig(2) and fsmount(2) are available. They create a file system
    /// without attaching it (Linux 5.2).
    pub fsopen: bool,
    /// Whether statmount(2) is available. It queries a single mount (Linux 6.8). If it is not
    /// available, the list of all mounts is read.
    pub statmount: bool,
    /// Whether this process has a mount namespace of its own. It can then restrict the copy of a
    /// mount without `mount_setattr`: it attaches the copy there, where no other process can use
    /// it, and remounts it.
    pub has_private_namespace: bool,
}

impl SyscallSupport {
    /// Finds out which system calls are available. Tries each call with arguments that change
    /// nothing.
    pub fn probe() -> Self {
        let open_how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Self {
            openat2: is_syscall_available(openat2(AT_FDCWD, "/", open_how)),
            open_tree: is_syscall_available(mount_syscalls::probe_open_tree()),
            move_mount: is_syscall_available(mount_syscalls::probe_move_mount()),
            mount_setattr: is_syscall_available(mount_syscalls::probe_mount_setattr()),
            fsopen: mount_syscalls::probe_fs_calls()
                .into_iter()
                .all(is_syscall_available),
            statmount: is_syscall_available(statmount::probe_statmount()),
            has_private_namespace: false,
        }
    }

    /// Returns the system calls to use for a running container. In such a container, this process
    /// can only mount detached mounts, because the host's files are not visible there.
    ///
    /// If detached mounts are not supported, for example without `mount_setattr`, this process
    /// moves into a new mount namespace and stays there. Its open handles still lead to the
    /// previous namespace.
    pub fn prepare_for_running_container(self) -> super::Result<Self> {
        if self.supports_detached_mounts() {
            return Ok(self);
        }
        let no_argument: Option<&str> = None;
        let private_flags = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
        unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(no_argument, "/", no_argument, private_flags, no_argument))
            .map_err(|errno| Error::system("copy the mounts below", Path::new("/"), errno))?;
        Ok(SyscallSupport {
            has_private_namespace: true,
            ..self
        })
    }

    pub fn resolver(self) -> Resolver {
        if self.openat2 {
            Resolver::Openat2
        } else {
            Resolver::Walk
        }
    }

    /// Reports whether this process can create detached mounts, which are in no mount namespace,
    /// and attach them later. If not, mount(2) is used for everything.
    ///
    /// This needs `open_tree`, `move_mount`, `fsopen`, and either `mount_setattr` or a mount
    /// namespace of this process alone.
    pub fn supports_detached_mounts(self) -> bool {
        let can_restrict = self.mount_setattr || self.has_private_namespace;
        self.open_tree && self.move_mount && can_restrict && self.fsopen
    }
}

fn is_syscall_available<T>(result: Result<T>) -> bool {
    !matches!(result, Err(Errno::ENOSYS | Errno::EPERM))
}
