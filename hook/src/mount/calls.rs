//! Finds out which of the newer system calls are available.

use std::path::Path;

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::Error;
use crate::container::Resolver;
use crate::sys::{mount as calls, statmount};

/// The availability of system calls for which the hook has a substitute. A call is available
/// if the kernel has it, and neither a seccomp filter nor a missing privilege forbids it.
/// `ENOSYS` and `EPERM` mean the same, because older filters return `EPERM` for system calls
/// that they do not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCalls {
    /// Path resolution inside a root directory (Linux 5.6).
    pub openat2: bool,
    /// Copying a mount without attaching the copy (Linux 5.2).
    pub open_tree: bool,
    /// Attaching a mount by descriptors (Linux 5.2).
    pub move_mount: bool,
    /// Changing a mount by descriptor (Linux 5.12).
    pub mount_setattr: bool,
    /// Creating a file system without attaching it: `fsopen`, `fsconfig` and `fsmount` (Linux
    /// 5.2).
    pub fsopen: bool,
    /// Querying a single mount (Linux 6.8). Without it, the list of all mounts is read.
    pub statmount: bool,
    /// Whether this process has a mount namespace of its own. A copy of a mount can then be
    /// attached while it is restricted without `mount_setattr`, because no other process can
    /// use it.
    pub unseen: bool,
}

impl KernelCalls {
    /// Tries each call with arguments that change nothing. The result does not change while
    /// the process runs.
    pub fn probe() -> Self {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Self {
            openat2: is_usable(openat2(AT_FDCWD, "/", how)),
            open_tree: is_usable(calls::probe_open_tree()),
            move_mount: is_usable(calls::probe_move_mount()),
            mount_setattr: is_usable(calls::probe_mount_setattr()),
            fsopen: calls::probe_fs_calls().into_iter().all(is_usable),
            statmount: is_usable(statmount::probe()),
            unseen: false,
        }
    }

    /// Returns the calls to use for a container that runs. Its mount namespace has no copy of
    /// the host's mounts, so sources must be detached mounts. If the kernel can restrict
    /// detached mounts only in a private mount namespace, this process moves into one of its
    /// own and stays there. Handles that are open still lead to the old namespace.
    pub(crate) fn for_running(self) -> super::Result<Self> {
        if self.detached_mounts() {
            return Ok(self);
        }
        let none: Option<&str> = None;
        let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
        unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(none, "/", none, private, none))
            .map_err(|errno| Error::system("copy the mounts below", Path::new("/"), errno))?;
        Ok(KernelCalls {
            unseen: true,
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

    /// Returns whether mounts can be created detached and attached by descriptors. This takes
    /// `open_tree`, `move_mount`, `fsopen`, and either `mount_setattr` or a mount namespace of
    /// this process alone. Otherwise mount(2) is used for everything.
    pub fn detached_mounts(self) -> bool {
        let can_restrict = self.mount_setattr || self.unseen;
        self.open_tree && self.move_mount && can_restrict && self.fsopen
    }
}

fn is_usable<T>(result: Result<T>) -> bool {
    !matches!(result, Err(Errno::ENOSYS | Errno::EPERM))
}
