//! Starts a process group that is killed when this process ends.
//!
//! An engine kills a hook that takes too long, and no program that the hook has started may go on
//! changing a device after that. `PR_SET_PDEATHSIG` would kill a program when its parent ends, but
//! not the children of the program. The group therefore has a leader process, which waits for the
//! end of this process and then kills the group.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpgrp, pipe2, read, setpgid};

/// A process group whose leader kills all its processes when this process ends. Dropping the
/// value ends only the leader, and the other processes of the group continue.
pub(crate) struct ProcessGroup {
    leader: Pid,
    /// The write end of a pipe that the leader reads. When this process ends, the kernel closes
    /// the write end, and the leader kills the group.
    _alive: OwnedFd,
}

impl ProcessGroup {
    pub(crate) fn start() -> Result<Self, Errno> {
        let (ended, alive) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child calls only functions that are async-signal-safe, and does not
        // return.
        match unsafe { fork() }? {
            ForkResult::Child => {
                drop(alive);
                run_leader(&ended)
            }
            ForkResult::Parent { child } => {
                let group = ProcessGroup {
                    leader: child,
                    _alive: alive,
                };
                // The child calls setpgid(2) too, but possibly later. The call here makes sure
                // that processes can join the group as soon as this function returns.
                setpgid(child, child)?;
                Ok(group)
            }
        }
    }

    pub(crate) fn id(&self) -> Pid {
        self.leader
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // kill(2) fails if the leader was already killed together with its group.
        let _ = kill(self.leader, Signal::SIGKILL);
        let _ = waitpid(self.leader, None);
    }
}

/// Runs in the leader process: waits until the write end of the pipe is closed, and kills the
/// process group.
fn run_leader(ended: &OwnedFd) -> ! {
    let own_pid = Pid::from_raw(0);
    if setpgid(own_pid, own_pid).is_ok() {
        while read(ended, &mut [0]) == Err(Errno::EINTR) {}
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
    // SAFETY: `_exit` does not return, and runs no code of this process.
    unsafe { libc::_exit(1) }
}
