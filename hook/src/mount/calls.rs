//! Which of the newer system calls can be used here.

use nix::Result;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

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
}

impl KernelCalls {
    /// Tries each call in a way that changes nothing. Once per run is enough.
    #[must_use]
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
        }
    }

    /// How paths are resolved with these calls.
    #[must_use]
    pub fn resolver(self) -> Resolver {
        if self.openat2 {
            Resolver::Openat2
        } else {
            Resolver::Walk
        }
    }

    /// Whether mounts can be made detached and attached by descriptors. It
    /// takes all four calls; with fewer, mount(2) is used for everything.
    #[must_use]
    pub fn detached_mounts(self) -> bool {
        self.open_tree && self.move_mount && self.mount_setattr && self.fsopen
    }
}

fn usable<T>(result: Result<T>) -> bool {
    !matches!(result, Err(Errno::ENOSYS | Errno::EPERM))
}
