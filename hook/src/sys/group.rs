//! A process group that ends with this process.
//!
//! An engine kills a hook that takes too long, and no program that the hook has
//! started may go on changing a device after that. The signal that the kernel can
//! send at a parent's death (PR_SET_PDEATHSIG) does not reach a program's own
//! children. So the group has a leader that waits for this process, and kills the
//! group when it is gone.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpgrp, pipe2, read, setpgid};

/// A group of processes. When this value is dropped, its processes continue
/// without the group's leader.
pub(crate) struct Group {
    leader: Pid,
    /// The leader reads from the other end of the pipe until this end is closed,
    /// at the latest by the end of this process.
    _alive: OwnedFd,
}

impl Group {
    pub(crate) fn start() -> Result<Self, Errno> {
        let (ended, alive) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child calls only functions that are async-signal-safe, and
        // does not return.
        match unsafe { fork() }? {
            ForkResult::Child => {
                drop(alive);
                lead(&ended)
            }
            ForkResult::Parent { child } => {
                let group = Group {
                    leader: child,
                    _alive: alive,
                };
                // Also done by the child. Here, so that processes can join.
                setpgid(child, child)?;
                Ok(group)
            }
        }
    }

    pub(crate) fn id(&self) -> Pid {
        self.leader
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It may have been killed with its group.
        let _ = kill(self.leader, Signal::SIGKILL);
        let _ = waitpid(self.leader, None);
    }
}

/// Waits for the end of the pipe's other end, and kills the group.
fn lead(ended: &OwnedFd) -> ! {
    let own = Pid::from_raw(0);
    if setpgid(own, own).is_ok() {
        while read(ended, &mut [0]) == Err(Errno::EINTR) {}
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
    // SAFETY: it does not return, and runs nothing of this process.
    unsafe { libc::_exit(1) }
}
