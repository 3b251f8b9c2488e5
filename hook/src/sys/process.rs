//! The process itself.

use std::fs::File;
use std::io::{Read, Write};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

pub(crate) fn clear_environment() {
    // SAFETY: the process has one thread, so no other code reads the environment
    // meanwhile, and no pointer into it is kept across this call.
    unsafe {
        libc::clearenv();
    }
}

/// Has a write beyond the limit on file sizes fail with an error instead of
/// ending the process, and gives what SIGXFSZ did before.
pub(crate) fn ignore_file_size_signal() -> Result<SigAction, Errno> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler of this program's is involved.
    unsafe { sigaction(Signal::SIGXFSZ, &ignore) }
}

/// Sets what SIGXFSZ does.
pub(crate) fn restore_file_size_signal(action: &SigAction) {
    // SAFETY: it is what the process was started with, so no handler.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, action) };
}

/// Closes every descriptor beyond stdin, stdout and stderr.
pub(crate) fn close_inherited_descriptors() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: called before anything is opened, so no owner of a descriptor
    // in this process is left with a closed one.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Before Linux 5.9.
    let open = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers: Vec<i32> = open
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number >= 3) {
        // SAFETY: as above. The listing's own descriptor is closed by now, and
        // closing a number that is not open changes nothing.
        unsafe {
            libc::close(number);
        }
    }
}

/// The most that a child's answer may have, in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// A child process that works for this one.
pub(crate) struct Child {
    pid: Pid,
    answer: File,
}

/// Runs `work` in a child process, which may enter namespaces that this process must not,
/// and returns its answer. `None`: it was ended, such as by its deadline.
pub(crate) fn in_child(work: impl FnOnce() -> String) -> Result<Option<String>, Errno> {
    start_child(work)?.wait()
}

/// Starts a child process that does `work`.
pub(crate) fn start_child(work: impl FnOnce() -> String) -> Result<Child, Errno> {
    let (answer, mut written) = {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        (File::from(read), File::from(write))
    };
    // SAFETY: the process has one thread, so the child may do whatever its parent may. It
    // ends in this function, also if `work` panics.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(answer);
            let _end = End;
            let done = written.write_all(work().as_bytes()).is_ok();
            exit(i32::from(!done))
        }
        ForkResult::Parent { child: pid } => Ok(Child { pid, answer }),
    }
}

impl Child {
    /// Waits for its end, and returns its answer.
    pub(crate) fn wait(self) -> Result<Option<String>, Errno> {
        let mut text = String::new();
        let read = self.answer.take(MAX_ANSWER).read_to_string(&mut text);
        let status = loop {
            match waitpid(self.pid, None) {
                Err(Errno::EINTR) => {}
                ended => break ended?,
            }
        };
        let done = read.is_ok() && status == WaitStatus::Exited(self.pid, 0);
        Ok(done.then_some(text))
    }
}

/// Ends a child that unwinds.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        exit(1)
    }
}

fn exit(code: libc::c_int) -> ! {
    // SAFETY: it does not return, and runs nothing of this process.
    unsafe { libc::_exit(code) }
}
