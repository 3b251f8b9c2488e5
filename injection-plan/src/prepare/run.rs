//! Runs a program of the host.
//!
//! A program has an empty environment, an empty stdin and a timeout. If it
//! fails, its output is part of the message; if it succeeds, the result is
//! verified.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use device_class::host::{HostView, MAX_ATTRIBUTE, RealHost};
use device_class::name::excerpt;
use device_class::ownership::OwnershipError;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Preparation;
use crate::program_output::ProgramOutput;

/// The interval at which a running program is polled.
const INTERVAL: Duration = Duration::from_millis(5);

/// So much of a program's stderr is kept for the message.
const MAX_STDERR: usize = 4096;

/// Why a device could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The program does not exist, or others than root can change it.
    #[error("{} cannot be run: {error}", program.display())]
    Ownership {
        program: PathBuf,
        error: OwnershipError,
    },
    /// The program cannot be run.
    #[error("{} cannot be run: {error}", program.display())]
    Run { program: PathBuf, error: io::Error },
    /// The program took too long, and was killed.
    #[error("{} took longer than {} seconds and was killed", program.display(), timeout.as_secs())]
    Timeout { program: PathBuf, timeout: Duration },
    #[error("{} failed ({status}): {stderr}", program.display())]
    Failed {
        program: PathBuf,
        status: ExitStatus,
        /// The beginning of its output.
        stderr: String,
    },
    /// The program succeeded, but the device is not in the requested state.
    #[error("{} exited 0, but {} is `{found}`, not `{wanted}`", program.display(), file.display())]
    NotDone {
        program: PathBuf,
        /// The file with the device's state.
        file: PathBuf,
        found: String,
        /// The requested content.
        wanted: String,
    },
}

impl Preparation {
    /// Whether the file, on the host whose root is at `root`, has the requested
    /// content.
    pub fn is_done(&self, root: &Path) -> bool {
        self.state(root).is_ok_and(|state| self.is_wanted(&state))
    }

    /// Runs `command`, which starts the program, for at most `limit`, and
    /// verifies the file afterwards. It runs in the process group `group`, or
    /// in a new one if that is 0; at the limit the group is killed.
    ///
    /// # Errors
    /// The program fails, takes too long or does not exist, or the
    /// device is not in the requested state.
    pub fn run(
        &self,
        command: Command,
        group: Pid,
        limit: Duration,
        root: &Path,
    ) -> Result<(), PrepareError> {
        self.run_program(command, group, limit)?;
        let found = self.state(root).unwrap_or_else(|error| error.to_string());
        if self.is_wanted(&found) {
            return Ok(());
        }
        Err(PrepareError::NotDone {
            program: self.program.clone(),
            file: self.file.clone(),
            found: excerpt(&found),
            wanted: excerpt(&self.wanted),
        })
    }

    fn state(&self, root: &Path) -> io::Result<String> {
        let bytes = RealHost::open(root)?.read(&self.file, MAX_ATTRIBUTE)?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    fn is_wanted(&self, state: &str) -> bool {
        state.eq_ignore_ascii_case(&self.wanted)
    }

    fn run_program(
        &self,
        mut command: Command,
        group: Pid,
        limit: Duration,
    ) -> Result<(), PrepareError> {
        let failed = |error| PrepareError::Run {
            program: self.program.clone(),
            error,
        };
        let mut child = command
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A group of its own, so that it can be killed with all its
            // children.
            .process_group(group.as_raw())
            .spawn()
            .map_err(failed)?;
        let pipe = child.stderr.take();
        let pipe = pipe.ok_or_else(|| failed(io::Error::other("its stderr has no pipe")))?;
        let mut stderr = ProgramOutput::new(pipe, MAX_STDERR).map_err(failed)?;
        let Some(status) = wait(child, &mut stderr, group, limit).map_err(failed)? else {
            return Err(PrepareError::Timeout {
                program: self.program.clone(),
                timeout: limit,
            });
        };
        if status.success() {
            return Ok(());
        }
        Err(PrepareError::Failed {
            program: self.program.clone(),
            status,
            stderr: excerpt(stderr.text().trim()),
        })
    }
}

/// How the program ended; `None` if it had to be killed.
fn wait(
    mut child: Child,
    stderr: &mut ProgramOutput<ChildStderr>,
    group: Pid,
    timeout: Duration,
) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        let ended = child.try_wait()?;
        stderr.read();
        if ended.is_some() {
            return Ok(ended);
        }
        if Instant::now() >= deadline {
            let group = match group.as_raw() {
                0 => Pid::from_raw(i32::try_from(child.id()).map_err(io::Error::other)?),
                _ => group,
            };
            killpg(group, Signal::SIGKILL)?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NEW_GROUP: Pid = Pid::from_raw(0);

    /// A host with a shell, a file to change and a programmer.
    fn host(script: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys")).unwrap();
        fs::write(root.path().join("sys/id"), "old\n").unwrap();
        let text = root.path().join("text");
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        // Copied by another process: a descriptor of this one, open for writing
        // on the program, could be inherited by what another test starts just
        // then, and the program could not be run (ETXTBSY).
        let copied = Command::new("/bin/cp")
            .args([text, root.path().join("programmer")])
            .status();
        assert!(copied.unwrap().success());
        root
    }

    fn prepared(script: &str, timeout: u64) -> (Result<(), String>, String, Duration) {
        let host = host(script);
        let file = host.path().join("sys/id");
        let preparation = Preparation {
            program: "/programmer".into(),
            arguments: vec![file.display().to_string(), "new".into()],
            timeout,
            file: "/sys/id".into(),
            wanted: "new".into(),
        };
        assert!(!preparation.is_done(host.path()));
        let mut command = Command::new(host.path().join("programmer"));
        command.args(&preparation.arguments);
        let start = Instant::now();
        let done = preparation.run(
            command,
            NEW_GROUP,
            Duration::from_secs(timeout),
            host.path(),
        );
        assert_eq!(done.is_ok(), preparation.is_done(host.path()));
        let done = done.map_err(|error| error.to_string());
        (done, fs::read_to_string(file).unwrap(), start.elapsed())
    }

    #[test]
    fn a_programmer_succeeds_fails_or_programs_another_function() {
        for (script, wanted) in [
            ("echo $2 > $1", Ok(())),
            ("echo NEW > $1", Ok(())),
            // The environment is empty but for what the shell itself adds.
            (
                "env | grep -qv '^_\\|^PWD\\|^SHLVL' || echo $2 > $1",
                Ok(()),
            ),
            (
                "echo bad bitstream >&2; exit 3",
                Err("/programmer failed (exit status: 3): bad bitstream"),
            ),
            (
                "true",
                Err("/programmer exited 0, but /sys/id is `old`, not `new`"),
            ),
            (
                "echo other > $1",
                Err("/programmer exited 0, but /sys/id is `other`, not `new`"),
            ),
        ] {
            let (done, _, _) = prepared(script, 60);
            assert_eq!(done, wanted.map_err(str::to_owned), "{script}");
        }
    }

    #[test]
    fn output_without_end_is_dropped() {
        // A full pipe does not stop the program, and nothing that it writes to grows.
        let size = "$(stat -L -c %s /proc/self/fd/2)";
        let script =
            format!("head -c 9000000 /dev/zero >&2; test {size} -lt 100000 && echo $2 > $1");
        assert_eq!(prepared(&script, 60).0, Ok(()));
        let (done, _, _) = prepared("cat /dev/zero >&2", 1);
        let wanted = "/programmer took longer than 1 seconds and was killed";
        assert_eq!(done, Err(wanted.to_owned()));
        let script = "echo first >&2; head -c 9000000 /dev/zero | tr '\\0' x >&2; exit 3";
        let (done, _, _) = prepared(script, 60);
        let reason = done.unwrap_err();
        assert!(reason.contains("(exit status: 3): first"), "{reason}");
        assert!(reason.len() < 1000, "{reason}");
    }

    #[test]
    fn a_programmer_that_hangs_is_killed_with_what_it_started() {
        let (done, content, elapsed) = prepared("(sleep 3; echo $2 > $1) & sleep 60", 1);
        let wanted = "/programmer took longer than 1 seconds and was killed";
        assert_eq!(done, Err(wanted.to_owned()));
        assert_eq!(content, "old\n");
        assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    }

    #[test]
    fn a_programmer_that_is_missing_is_named() {
        let host = host("true");
        let preparation = Preparation {
            program: "/nowhere".into(),
            arguments: Vec::new(),
            timeout: 1,
            file: "/sys/id".into(),
            wanted: "new".into(),
        };
        let second = Duration::from_secs(1);
        let missing = preparation.run(Command::new("/nowhere"), NEW_GROUP, second, host.path());
        let message = missing.unwrap_err().to_string();
        assert!(message.starts_with("/nowhere cannot be run: "), "{message}");
    }
}
