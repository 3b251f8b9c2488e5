//! The process itself.

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

/// Has a write beyond the limit on file sizes fail with an error instead of
/// ending the process, and gives what SIGXFSZ did before.
pub(crate) fn ignore_file_size_signal() -> Result<SigAction, Errno> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: no handler of this program's is involved.
    unsafe { sigaction(Signal::SIGXFSZ, &ignore) }
}

pub(crate) fn restore_file_size_signal(action: &SigAction) {
    // SAFETY: it is what the process was started with, so no handler.
    let _ = unsafe { sigaction(Signal::SIGXFSZ, action) };
}

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
const MAX_ANSWER: usize = 1 << 20;

/// How long a child that was killed is waited for. One that sleeps where no signal reaches it,
/// as behind a file system that does not answer, is left behind.
const LAST: Duration = Duration::from_secs(1);

/// How often a child is looked at, in milliseconds, whose answer is not there.
const LOOK: u16 = 20;

/// A child process that works for this one.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    /// Also open in what the child has started: its end is no sign of the child's.
    answer: File,
    text: Vec<u8>,
    end: Instant,
}

/// Runs `work` in a child process, which may enter namespaces that this process must not,
/// and returns its answer. `None`: it was ended, such as by its deadline, or is left behind
/// after `limit`.
pub(crate) fn in_child(
    limit: Duration,
    work: impl FnOnce() -> String,
) -> Result<Option<String>, Errno> {
    start_child(limit, work)?.wait()
}

/// Starts a child process that does `work`, for as long as `limit`.
pub(crate) fn start_child(limit: Duration, work: impl FnOnce() -> String) -> Result<Child, Errno> {
    let mut work = Some(work);
    start(limit, &mut || {
        work.take().map(|work| work()).unwrap_or_default()
    })
}

/// Once for all kinds of work: the program is smaller.
fn start(limit: Duration, work: &mut dyn FnMut() -> String) -> Result<Child, Errno> {
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
        ForkResult::Parent { child: pid } => Ok(Child {
            pid,
            answer,
            text: Vec::new(),
            end: Instant::now() + limit,
        }),
    }
}

impl Child {
    pub(crate) fn wait(&mut self) -> Result<Option<String>, Errno> {
        loop {
            if let Some(answer) = self.look()? {
                return Ok(answer);
            }
        }
    }

    /// Looks for a moment whether it has ended, and then gives its answer.
    pub(crate) fn look(&mut self) -> Result<Option<Option<String>>, Errno> {
        let (has_more, length) = self.read(LOOK);
        let has_too_much = self.text.len() > MAX_ANSWER;
        let now = Instant::now();
        if now >= self.end || has_too_much {
            kill(self.pid, Signal::SIGKILL)?;
        }
        // All that it wrote is read first.
        if length > 0 && !has_too_much {
            return Ok(None);
        }
        match waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) if now >= self.end + LAST => Ok(Some(None)),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => {
                // The end of the answer is not waited for again.
                if has_more {
                    sleep(Duration::from_micros(200));
                }
                Ok(None)
            }
            Ok(WaitStatus::Exited(_, 0)) => {
                // It may have written since it was looked at, and ended.
                while self.text.len() <= MAX_ANSWER && self.read(0).1 > 0 {}
                let text = mem::take(&mut self.text);
                Ok(Some(String::from_utf8(text).ok()))
            }
            Ok(_) => Ok(Some(None)),
            Err(errno) => Err(errno),
        }
    }

    /// Reads a part of the answer that comes within so many milliseconds: whether it or its end
    /// has come, and its length.
    fn read(&mut self, wait: u16) -> (bool, usize) {
        let mut waiting = [PollFd::new(self.answer.as_fd(), PollFlags::POLLIN)];
        let has_more = poll(&mut waiting, wait).unwrap_or_default() > 0;
        let mut bytes = [0; 4096];
        let length = match has_more {
            true => self.answer.read(&mut bytes).unwrap_or_default(),
            false => 0,
        };
        self.text.extend(&bytes[..length]);
        (has_more, length)
    }

    /// Whether it is still there after it was left behind.
    pub(crate) fn is_there(&self) -> bool {
        waitpid(self.pid, Some(WaitPidFlag::WNOHANG)) == Ok(WaitStatus::StillAlive)
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
