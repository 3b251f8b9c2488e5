//! Runs programs of the host with a time limit, and reads a limited part of their output.

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

/// The only environment variable that [`run_program`] gives to a program, if [`set_library_path`]
/// has set it.
pub const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";

/// Sets the directories in which the dynamic loader searches the libraries of a program before its
/// usual directories. An empty list sets nothing.
pub fn set_library_path(command: &mut Command, directories: &[PathBuf]) {
    if !directories.is_empty()
        && let Ok(value) = std::env::join_paths(directories)
    {
        command.env(LIBRARY_PATH, value);
    }
}

/// The time between two checks of whether a running program has ended.
const INTERVAL: Duration = Duration::from_millis(20);

/// The time that [`run_program`] waits for a program to end after SIGKILL. A program that is
/// blocked in the kernel may not end at all.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// The maximum number of consecutive `read` calls. After them the caller can check its time limit,
/// even if the program prints without end.
const MAX_READS: usize = 64;

/// The size in bytes of the buffer for one `read` call.
const BUFFER_SIZE: usize = 16 * 1024;

/// The beginning of a program's output. The rest of the output is read and dropped, so that the
/// program does not block on a full pipe and a long output does not use up the memory.
#[derive(Debug)]
pub struct ProgramOutput<R> {
    pipe: R,
    limit: usize,
    text: Vec<u8>,
}

impl<R: Read + AsFd> ProgramOutput<R> {
    /// Collects the first `limit` bytes that are read from `pipe`. The pipe is made
    /// non-blocking.
    pub fn new(pipe: R, limit: usize) -> io::Result<Self> {
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(ProgramOutput {
            pipe,
            limit,
            text: Vec::new(),
        })
    }

    /// Reads the output that is available now, without waiting. A read error is treated as
    /// the end of the output. Bytes beyond the limit are read and dropped, so that the
    /// program does not block on a full pipe.
    pub fn read(&mut self) {
        let mut piece = [0; BUFFER_SIZE];
        for _ in 0..MAX_READS {
            let Ok(length @ 1..) = self.pipe.read(&mut piece) else {
                return;
            };
            let room = self.limit - self.text.len();
            self.text.extend(&piece[..length.min(room)]);
        }
    }

    /// Returns the output that was kept, with invalid UTF-8 replaced by U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

/// A program that was sent SIGKILL and has not ended. A process that sleeps
/// uninterruptibly, for example in a driver that hangs, does not react to signals.
struct LeftoverProcess {
    command: Vec<OsString>,
    child: Child,
}

/// The programs that did not end after SIGKILL. Each command is in the list at most once,
/// because [`run_program`] does not start a command that is in the list.
static LEFT: Mutex<Vec<LeftoverProcess>> = Mutex::new(Vec::new());

/// Locks the list of leftover processes, and removes the processes that have ended.
fn lock_leftovers() -> MutexGuard<'static, Vec<LeftoverProcess>> {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain_mut(|one| matches!(one.child.try_wait(), Ok(None)));
    left
}

/// Runs a program with an empty environment. Returns its exit status and the first `limit`
/// bytes of its output. Returns `None` if the program exceeded `timeout` and was killed, or
/// if an earlier run of the same command was killed and has not ended yet. Processes that
/// the program leaves in its process group are killed as well.
pub fn run_program(
    mut command: Command,
    timeout: Duration,
    limit: usize,
) -> io::Result<Option<(ExitStatus, String)>> {
    let words: Vec<OsString> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(OsStr::to_owned)
        .collect();
    if lock_leftovers().iter().any(|one| one.command == words) {
        return Ok(None);
    }
    let deadline = Instant::now() + timeout;
    let mut set = command.get_envs();
    let library_path = set.find(|(name, _)| *name == LIBRARY_PATH);
    let library_path = library_path.and_then(|(_, value)| value.map(OsStr::to_owned));
    drop(set);
    command.env_clear();
    if let Some(value) = library_path {
        command.env(LIBRARY_PATH, value);
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
    let mut output = ProgramOutput::new(pipe, limit)?;
    let group = Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?);
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let mut in_time = true;
    // `WNOWAIT` leaves the ended program a zombie, so that the kernel does not reuse its
    // process id, which is also the id of its process group, before `killpg`.
    while in_time && waitid(Id::Pid(group), flags)? == WaitStatus::StillAlive {
        output.read();
        in_time = Instant::now() < deadline;
        thread::sleep(INTERVAL);
    }
    // `killpg` fails if the program has left its group and the group is empty.
    let _ = killpg(group, Signal::SIGKILL);
    child.kill()?;
    output.read();
    let give_up = Instant::now() + KILLED_WITHIN;
    loop {
        match child.try_wait()? {
            Some(status) if in_time => return Ok(Some((status, output.text()))),
            Some(_) => return Ok(None),
            None if Instant::now() < give_up => thread::sleep(INTERVAL),
            None => {
                let command = words;
                lock_leftovers().push(LeftoverProcess { command, child });
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
        output.read();
        assert_eq!(output.text(), "");
        for _ in 0..40 {
            writer.write_all(&[b'x'; 60_000]).unwrap();
            output.read();
            assert!(output.text.capacity() < BUFFER_SIZE);
        }
        drop(writer);
        output.read();
        assert_eq!(output.text(), "xxxxx");
    }
}
