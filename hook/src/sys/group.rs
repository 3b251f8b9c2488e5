//! Starts a process group that is killed when this process ends.
//!
//! An engine kills a hook that takes too long. After that, no program that the hook has started may
//! continue to change a device. `PR_SET_PDEATHSIG` would kill a program when its parent ends, but
//! not the children of the program. So the group has a leader process, which waits until this
//! process ends and then kills the whole group.

use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpgrp, pipe2, read, setpgid};

/// A process group with a leader process. When this process ends, the leader kills all processes of
/// the group. If the value is dropped, only the leader ends, and the other processes of the group
/// continue.
pub(crate) struct ProcessGroup {
    leader: Pid,
    /// The write end of a pipe from which the leader reads. When this process ends, the kernel
    /// closes the write end. The leader notices this and kills the group.
    _write_end: OwnedFd,
}

impl ProcessGroup {
    /// Starts the leader process of a new group. A caller puts a program into the group with
    /// setpgid(2) and the id of the group.
    pub(crate) fn start() -> Result<Self, Errno> {
        let (read_end, write_end) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child calls only functions that are async-signal-safe, and does not
        // return.
        match unsafe { fork() }? {
            ForkResult::Child => {
                drop(write_end);
                run_leader(&read_end)
            }
            ForkResult::Parent { child } => {
                let group = ProcessGroup {
                    leader: child,
                    _write_end: write_end,
                };
                // The child process also calls setpgid(2), but perhaps later. With this call,
                // processes can join the group as soon as this function returns.
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
        // An error of kill(2) is ignored. It means that the leader was already killed together with
        // its group.
        let _ = kill(self.leader, Signal::SIGKILL);
        let _ = waitpid(self.leader, None);
    }
}

/// Runs in the leader process. Waits until the write end of the pipe is closed, and then kills the
/// process group.
fn run_leader(read_end: &OwnedFd) -> ! {
    let own_pid = Pid::from_raw(0);
    if setpgid(own_pid, own_pid).is_ok() {
        while read(read_end, &mut [0]) == Err(Errno::EINTR) {}
        let _ = killpg(getpgrp(), Signal::SIGKILL);
    }
    // SAFETY: `_exit` does not return, and runs no code of this process.
    unsafe { libc::_exit(1) }
}
