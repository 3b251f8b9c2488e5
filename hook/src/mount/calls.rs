//! Which of the newer system calls can be used here.

use std::path::Path;

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::Error;
use crate::container::Resolver;
use crate::sys::{mount as calls, statmount};

/// The system calls that the hook has a second way for. A call is usable if
/// the kernel has it and no seccomp filter or missing right forbids it
/// (`ENOSYS` and `EPERM` are taken alike: older filters answer a call that
/// they do not know with `EPERM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCalls {
    /// Resolution inside a root (Linux 5.6).
    pub openat2: bool,
    /// Copying a mount without attaching it (Linux 5.2).
    pub open_tree: bool,
    /// Attaching a mount by descriptors (Linux 5.2).
    pub move_mount: bool,
    /// Changing a mount by descriptor (Linux 5.12).
    pub mount_setattr: bool,
    /// Making a file system without attaching it: `fsopen`, `fsconfig` and
    /// `fsmount` (Linux 5.2).
    pub fsopen: bool,
    /// Asking about one mount (Linux 6.8), and not reading the list of all.
    pub statmount: bool,
    /// Whether this process's mounts are seen by nobody else, so that a copy can have a place
    /// for as long as it takes to change it without `mount_setattr`.
    pub unseen: bool,
}

impl KernelCalls {
    /// Tries each call in a way that changes nothing. Once per run is enough.
    pub fn probe() -> Self {
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        Self {
            openat2: usable(openat2(AT_FDCWD, "/", how)),
            open_tree: usable(calls::probe_open_tree()),
            move_mount: usable(calls::probe_move_mount()),
            mount_setattr: usable(calls::probe_mount_setattr()),
            fsopen: calls::probe_fs_calls().into_iter().all(usable),
            statmount: usable(statmount::probe()),
            unseen: false,
        }
    }

    /// The calls for sources that a container gets which has no copy of the host's mounts, as
    /// one that runs: they must be detached. If they cannot be as it is, this process goes into a
    /// mount namespace of its own for it, for good; what is open leads to the old one.
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

    /// Whether mounts can be made detached and attached by descriptors. It
    /// takes all four calls, or three in a namespace of its own; with fewer,
    /// mount(2) is used for everything.
    pub fn detached_mounts(self) -> bool {
        let can_restrict = self.mount_setattr || self.unseen;
        self.open_tree && self.move_mount && can_restrict && self.fsopen
    }
}

fn usable<T>(result: Result<T>) -> bool {
    !matches!(result, Err(Errno::ENOSYS | Errno::EPERM))
}
