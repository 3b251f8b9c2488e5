//! Changes the environment, the descriptors and the signals of this process, and starts child
//! processes.

use std::fs::File;
use std::io::{Read, Write};
use std::mem;
use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

pub(crate) fn clear_environment() {
    // SAFETY: the process has one thread, so no other code reads the environment
    // meanwhile, and no pointer into it is kept across this call.
    unsafe {
        libc::clearenv();
    }
}

/// Ignores SIGXFSZ, so that a write beyond the limit of file sizes (RLIMIT_FSIZE) fails with EFBIG
/// and does not end this process. Returns the previous action for [`restore_file_size_signal`].
pub(crate) fn ignore_file_size_signal() -> Result<SigAction, Errno> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no signal handler of this program is installed.
    unsafe { sigaction(Signal::SIGXFSZ, &ignore) }
}

pub(crate) fn restore_file_size_signal(action: &SigAction) {
    // SAFETY: the action is the one that the process was started with, so it has no handler.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, action) };
}

pub(crate) fn close_inherited_descriptors() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the function is called before anything is opened, so that no owner in this
    // process is left with a closed descriptor.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9 have no close_range(2), so the open descriptors are listed and closed
    // one by one.
    let entries = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let numbers: Vec<i32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for number in numbers.into_iter().filter(|number| *number >= 3) {
        // SAFETY: no descriptor of this process has an owner, as above. The descriptor of the
        // listing is closed by now, and closing a number that is not open changes nothing.
        unsafe {
            libc::close(number);
        }
    }
}

/// The size limit of a child process's answer in bytes. A child that writes more is killed.
pub(crate) const MAX_ANSWER: usize = 1 << 20;

/// The time to wait for the end of a child process after SIGKILL. A child in an uninterruptible
/// sleep, for example in a file system that does not answer, is then abandoned.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The time in milliseconds for which a single poll waits for more of a child's answer.
const POLL_MILLISECONDS: u16 = 20;

/// A child process that runs a function and writes the returned text to a pipe.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// The read end of the pipe. The pipe may stay open after the end of the child, because
    /// processes that the child has forked can have the write end open.
    answer: File,
    text: Vec<u8>,
    deadline: Instant,
}

/// Calls `work` in a child process and returns its result. The child may enter namespaces, which
/// this process could not leave again. Returns `None` if the child failed, was killed, for example
/// after the time `limit`, or was abandoned because SIGKILL did not end it.
pub(crate) fn run_in_child(
    limit: Duration,
    work: impl FnOnce() -> String,
) -> Result<Option<String>, Errno> {
    start_child(limit, work)?.wait()
}

/// Starts a child process that calls `work`, and that is killed after the time `limit`.
pub(crate) fn start_child(limit: Duration, work: impl FnOnce() -> String) -> Result<Child, Errno> {
    let mut work = Some(work);
    start_child_dyn(limit, &mut || {
        work.take().map(|work| work()).unwrap_or_default()
    })
}

/// Does the same as [`start_child`] without a type parameter, so that the compiler generates the
/// function only once.
fn start_child_dyn(limit: Duration, work: &mut dyn FnMut() -> String) -> Result<Child, Errno> {
    let (answer, mut answer_writer) = {
        let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
        (File::from(read), File::from(write))
    };
    // SAFETY: the process has one thread, so the child may call whatever its parent may call.
    // The child ends in this function, even if `work` panics.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(answer);
            let _end = ExitOnDrop;
            let is_written = answer_writer.write_all(work().as_bytes()).is_ok();
            exit(i32::from(!is_written))
        }
        ForkResult::Parent { child: pid } => Ok(Child {
            pid,
            answer,
            text: Vec::new(),
            deadline: Instant::now() + limit,
        }),
    }
}

impl Child {
    pub(crate) fn wait(&mut self) -> Result<Option<String>, Errno> {
        loop {
            if let Some(answer) = self.poll()? {
                return Ok(answer);
            }
        }
    }

    /// Checks once whether the child has ended, and returns `None` while it runs. The inner value
    /// is the child's answer, or `None` if the child failed or was killed.
    pub(crate) fn poll(&mut self) -> Result<Option<Option<String>>, Errno> {
        let (has_more, length) = self.read(POLL_MILLISECONDS);
        let has_too_much = self.text.len() > MAX_ANSWER;
        let now = Instant::now();
        if now >= self.deadline || has_too_much {
            kill(self.pid, Signal::SIGKILL)?;
        }
        // The whole answer is read before the exit status of the child is examined.
        if length > 0 && !has_too_much {
            return Ok(None);
        }
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if now >= self.deadline + KILL_TIMEOUT => Ok(Some(None)),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {
                // When the child has closed the pipe, poll(2) returns at once. The short sleep
                // avoids a busy loop until the child ends.
                if has_more {
                    sleep(Duration::from_micros(200));
                }
                Ok(None)
            }
            Ok(WaitStatus::Exited(_, 0)) => {
                // The child may have written more since the last read.
                while self.text.len() <= MAX_ANSWER && self.read(0).1 > 0 {}
                let text = mem::take(&mut self.text);
                Ok(Some(String::from_utf8(text).ok()))
            }
            Ok(_) => Ok(Some(None)),
            Err(errno) => Err(errno),
        }
    }

    /// Reads the part of the answer that arrives within `wait` milliseconds. Returns whether data
    /// or the end of the pipe has arrived, and the number of bytes that were read.
    fn read(&mut self, wait: u16) -> (bool, usize) {
        let mut waiting = [PollFd::new(self.answer.as_fd(), PollFlags::POLLIN)];
        let has_more = poll(&mut waiting, wait).unwrap_or_default() > 0;
        let mut bytes = [0; 4096];
        let length = if has_more {
            self.answer.read(&mut bytes).unwrap_or_default()
        } else {
            0
        };
        self.text.extend(&bytes[..length]);
        (has_more, length)
    }

    /// Returns whether a child that was abandoned still exists.
    pub(crate) fn exists(&self) -> bool {
        waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive)
    }
}

/// A guard that ends the child process if its work panics. The child must not unwind the stack
/// into code of the parent.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        exit(1)
    }
}

fn exit(code: libc::c_int) -> ! {
    // SAFETY: `_exit` does not return, and runs no code of this process.
    unsafe { libc::_exit(code) }
}
