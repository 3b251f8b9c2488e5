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

/// Ignores SIGXFSZ. After that, a write beyond the limit of file sizes (RLIMIT_FSIZE) fails with
/// EFBIG instead of ending this process. Returns the previous action of the signal, which
/// [`restore_file_size_signal`] needs.
pub(crate) fn ignore_file_size_signal() -> Result<SigAction, Errno> {
    let ignore_action = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no signal handler of this program is installed.
    unsafe { sigaction(Signal::SIGXFSZ, &ignore_action) }
}

/// Restores the action of SIGXFSZ. This is needed before this process executes another program,
/// because that program would inherit the ignored signal. `action` is the result of
/// [`ignore_file_size_signal`].
pub(crate) fn restore_file_size_signal(action: &SigAction) {
    // SAFETY: the action is the one that the process was started with, so it has no handler.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, action) };
}

/// Closes all descriptors except stdin, stdout and stderr. The caller must do this before this
/// process opens a file, because the descriptor of that file would be closed as well.
pub(crate) fn close_inherited_descriptors() {
    const FIRST_INHERITED_FD: libc::c_uint = 3;
    // SAFETY: the function is called before anything is opened, so that no owner in this
    // process is left with a closed descriptor.
    let result = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_INHERITED_FD,
            libc::c_uint::MAX,
            0,
        )
    };
    if result == 0 {
        return;
    }
    // Kernels before 5.9 do not have close_range(2). So the open descriptors are listed, and closed
    // one by one.
    let entries = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten();
    let fds: Vec<i32> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in fds.into_iter().filter(|fd| *fd >= 3) {
        // SAFETY: no descriptor of this process has an owner, as above. The descriptor of the
        // listing is closed by now, and closing a number that is not open changes nothing.
        unsafe {
            libc::close(fd);
        }
    }
}

/// The maximum size in bytes of the answer of a child process (1 MiB). A child process that writes
/// more is killed.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// The time for which this process waits for the end of a child process after SIGKILL. After that,
/// it gives up: the child process may be in an uninterruptible sleep, for example because a file
/// system does not answer.
const KILL_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum time in milliseconds for which one call of poll(2) waits for more of a child
/// process's answer.
const POLL_TIMEOUT_MILLIS: u16 = 20;

/// A child process that calls a function. The function returns a text, the answer, which the child
/// process writes to a pipe.
#[derive(Debug)]
pub struct Child {
    pid: Pid,
    /// The read end of the pipe. The end of the child process need not close the pipe, because
    /// processes that it has started can still have the write end.
    answer_pipe: File,
    /// The part of the answer that was already read.
    answer: Vec<u8>,
    deadline: Instant,
}

/// Calls `work` in a child process and returns its result. `work` can, for example, enter
/// namespaces that this process could not leave again. Returns `None` if the child process failed
/// or was killed, for example because it took longer than `time_limit`.
pub fn run_in_child(
    time_limit: Duration,
    work: impl FnOnce() -> String,
) -> Result<Option<String>, Errno> {
    start_child(time_limit, work)?.wait()
}

/// Starts a child process that calls `work`. [`Child::poll`] and [`Child::wait`] kill the child
/// process if it takes longer than `time_limit`.
pub fn start_child(time_limit: Duration, work: impl FnOnce() -> String) -> Result<Child, Errno> {
    let mut work = Some(work);
    start_child_dyn(time_limit, &mut || {
        work.take().map(|work| work()).unwrap_or_default()
    })
}

/// Does the work of [`start_child`]. This function has no type parameter, so that the compiler
/// generates its code only once.
fn start_child_dyn(time_limit: Duration, work: &mut dyn FnMut() -> String) -> Result<Child, Errno> {
    let (answer_pipe, mut answer_writer) = {
        let (read_end, write_end) = pipe2(OFlag::O_CLOEXEC)?;
        (File::from(read_end), File::from(write_end))
    };
    // SAFETY: the process has one thread, so the child may call whatever its parent may call.
    // The child ends in this function, even if `work` panics.
    match unsafe { fork() }? {
        ForkResult::Child => {
            drop(answer_pipe);
            let _exit_guard = ExitOnDrop;
            let is_written = answer_writer.write_all(work().as_bytes()).is_ok();
            exit(i32::from(!is_written))
        }
        ForkResult::Parent { child: pid } => Ok(Child {
            pid,
            answer_pipe,
            answer: Vec::new(),
            deadline: Instant::now() + time_limit,
        }),
    }
}

impl Child {
    /// Waits until the child process ends. Returns its answer, or `None` if it failed or was
    /// killed, for example because of the time limit.
    pub fn wait(&mut self) -> Result<Option<String>, Errno> {
        loop {
            if let Some(answer) = self.poll()? {
                return Ok(answer);
            }
        }
    }

    /// Checks once whether the child process has ended. Returns `None` while it is running,
    /// `Some(None)` if it failed or was killed, and otherwise the answer of the child process.
    pub fn poll(&mut self) -> Result<Option<Option<String>>, Errno> {
        let (has_input, length) = self.read_answer(POLL_TIMEOUT_MILLIS);
        let is_too_long = self.answer.len() > MAX_ANSWER_BYTES;
        let now = Instant::now();
        if now >= self.deadline || is_too_long {
            kill(self.pid, Signal::SIGKILL)?;
        }
        // While data arrives, the caller must poll again. The exit status is examined only after
        // the available answer was read.
        if length > 0 && !is_too_long {
            return Ok(None);
        }
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if now >= self.deadline + KILL_TIMEOUT => Ok(Some(None)),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {
                // If the child process has closed the pipe, poll(2) returns at once. The short
                // sleep prevents a busy loop until the child process ends.
                if has_input {
                    sleep(Duration::from_micros(200));
                }
                Ok(None)
            }
            Ok(WaitStatus::Exited(_, 0)) => {
                // The child process may have written more of its answer since the last read.
                while self.answer.len() <= MAX_ANSWER_BYTES && self.read_answer(0).1 > 0 {}
                let answer = mem::take(&mut self.answer);
                Ok(Some(String::from_utf8(answer).ok()))
            }
            Ok(_) => Ok(Some(None)),
            Err(errno) => Err(errno),
        }
    }

    /// Waits at most `timeout_millis` milliseconds for more of the answer, and reads it. Returns
    /// true if the pipe has data or is at its end, and the number of bytes that were read.
    fn read_answer(&mut self, timeout_millis: u16) -> (bool, usize) {
        let mut poll_fds = [PollFd::new(self.answer_pipe.as_fd(), PollFlags::POLLIN)];
        let has_input = poll(&mut poll_fds, timeout_millis).unwrap_or_default() > 0;
        let mut bytes = [0; 4096];
        let length = if has_input {
            self.answer_pipe.read(&mut bytes).unwrap_or_default()
        } else {
            0
        };
        self.answer.extend(&bytes[..length]);
        (has_input, length)
    }

    /// Reports whether the child process still exists. It can exist after SIGKILL, which does not
    /// end a process in an uninterruptible sleep.
    pub fn exists(&self) -> bool {
        waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive)
    }
}

/// A guard that ends the child process if its function panics. Without the guard, the panic would
/// unwind the stack into code of the parent process, and the child process would continue there.
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
