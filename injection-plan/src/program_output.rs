//! Runs host programs with a time limit, and reads the beginning of their output.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// The environment variable that [`set_library_path`] sets. [`run_program`] passes no other
/// variable to a program.
pub const LIBRARY_PATH_ENV: &str = "LD_LIBRARY_PATH";

/// Sets `LD_LIBRARY_PATH` for a program. The dynamic loader searches these directories before the
/// standard ones. If `directories` is empty, the variable is not set.
pub fn set_library_path(command: &mut Command, directories: &[PathBuf]) {
    if !directories.is_empty()
        && let Ok(value) = std::env::join_paths(directories)
    {
        command.env(LIBRARY_PATH_ENV, value);
    }
}

/// The time between two checks whether a running program has ended. Its output is read at each
/// check, so that the pipe does not fill up.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The time for which [`run_program`] waits after SIGKILL until the program has ended. A program
/// that is blocked in the kernel may never end.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of `read` calls in one call of [`ProgramOutput::read_available`]. Because of
/// this limit, the caller can check its deadline even if the program prints endlessly.
const MAX_CONSECUTIVE_READS: usize = 64;

const BUFFER_SIZE_BYTES: usize = 16 * 1024;

/// The beginning of a program's output. The rest of the output is read and dropped. So the program
/// does not block on a full pipe, and a long output does not use up the memory.
#[derive(Debug)]
pub struct ProgramOutput<R> {
    pipe: R,
    max_bytes: usize,
    captured_bytes: Vec<u8>,
}

impl<R: Read + AsFd> ProgramOutput<R> {
    /// Returns an output that is empty at first, and keeps at most `max_bytes` bytes from `pipe`.
    /// Sets O_NONBLOCK on the pipe.
    pub fn new(pipe: R, max_bytes: usize) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(ProgramOutput {
            pipe,
            max_bytes,
            captured_bytes: Vec::new(),
        })
    }

    /// Reads the output that is available now, without waiting for more. A read error counts as the
    /// end of the output. Bytes beyond `max_bytes` are dropped.
    pub fn read_available(&mut self) {
        let mut buffer = [0; BUFFER_SIZE_BYTES];
        for _ in 0..MAX_CONSECUTIVE_READS {
            let Ok(length @ 1..) = self.pipe.read(&mut buffer) else {
                return;
            };
            let remaining_capacity = self.max_bytes - self.captured_bytes.len();
            self.captured_bytes
                .extend(&buffer[..length.min(remaining_capacity)]);
        }
    }

    /// Returns the beginning of the output. U+FFFD replaces invalid UTF-8.
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.captured_bytes).into_owned()
    }
}

/// A program that has not ended although it was killed with SIGKILL. A process in uninterruptible
/// sleep, for example in a driver that hangs, does not react to signals.
struct LeftoverProcess {
    command_line: Vec<OsString>,
    child: Child,
}

/// The programs that have not ended after SIGKILL. The list has each command line at most once,
/// because [`run_program`] does not start a command line that is in the list.
static LEFTOVER_PROCESSES: Mutex<Vec<LeftoverProcess>> = Mutex::new(Vec::new());

/// Locks the list of leftover processes, and removes from the list the processes that have ended.
fn lock_leftover_processes() -> MutexGuard<'static, Vec<LeftoverProcess>> {
    let mut leftover_processes = LEFTOVER_PROCESSES
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    leftover_processes.retain_mut(|process| matches!(process.child.try_wait(), Ok(None)));
    leftover_processes
}

/// Runs a program with an empty environment. When the program ends or `timeout` has passed, kills
/// all processes of its process group. Returns the exit status and the first `max_bytes` bytes of
/// the output.
///
/// Returns `None` if the program exceeded `timeout`. Also returns `None` without starting the
/// program if an earlier run of the same command line was killed and has not ended yet.
pub fn run_program(
    mut command: Command,
    timeout: Duration,
    max_bytes: usize,
) -> io::Result<Option<(ExitStatus, String)>> {
    let command_line: Vec<OsString> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(OsStr::to_owned)
        .collect();
    let is_leftover = |process: &LeftoverProcess| process.command_line == command_line;
    if lock_leftover_processes().iter().any(is_leftover) {
        return Ok(None);
    }
    let deadline = Instant::now() + timeout;
    let mut variables = command.get_envs();
    let library_path_entry = variables.find(|(name, _)| *name == LIBRARY_PATH_ENV);
    let library_path = library_path_entry.and_then(|(_, value)| value.map(OsStr::to_owned));
    drop(variables);
    command.env_clear();
    if let Some(value) = library_path {
        command.env(LIBRARY_PATH_ENV, value);
    }
    let mut child = command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let pipe = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("its output has no pipe"))?;
    let mut output = ProgramOutput::new(pipe, max_bytes)?;
    let process_group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let mut is_in_time = true;
    // Because of WNOWAIT, the program stays a zombie after its end until `killpg`. So the kernel
    // does not reuse its process id, which is also the id of the process group.
    while is_in_time && waitid(Id::Pid(process_group), flags)? == WaitStatus::StillAlive {
        output.read_available();
        is_in_time = Instant::now() < deadline;
        thread::sleep(POLL_INTERVAL);
    }
    // The error is ignored: `killpg` fails if the program has left its process group, which is then
    // empty.
    let _ = killpg(process_group, Signal::SIGKILL);
    child.kill()?;
    output.read_available();
    let kill_deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        match child.try_wait()? {
            Some(status) if is_in_time => return Ok(Some((status, output.to_text()))),
            Some(_) => return Ok(None),
            None if Instant::now() < kill_deadline => thread::sleep(POLL_INTERVAL),
            None => {
                lock_leftover_processes().push(LeftoverProcess {
                    command_line,
                    child,
                });
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_beginning_is_kept_and_the_rest_does_not_block_the_writer() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut output = ProgramOutput::new(reader, 5).unwrap();
        output.read_available();
        assert_eq!(output.to_text(), "");
        for _ in 0..40 {
            writer.write_all(&[b'x'; 60_000]).unwrap();
            output.read_available();
            assert!(output.captured_bytes.capacity() < BUFFER_SIZE_BYTES);
        }
        drop(writer);
        output.read_available();
        assert_eq!(output.to_text(), "xxxxx");
    }
}
