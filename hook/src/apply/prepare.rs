//! Programs of the host that make a device what a container wants, such as one
//! that programs an FPGA.
//!
//! A program gets an empty environment, nothing to read and a time limit. What
//! it says goes into the message when it fails; what it claims to have done is
//! checked.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use device_class::name::excerpt;
use device_class::plan::{Action, InjectionPlan};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::ApplyError;

/// How often a running program is looked at.
const INTERVAL: Duration = Duration::from_millis(5);

/// So much of what a program says, and of the file that it changes, is read.
const MAX_TEXT: u64 = 4096;

/// Why a device could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The program can't be run.
    #[error("{} can't be run: {error}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What came of it.
        error: io::Error,
    },
    /// The program took too long, and was killed.
    #[error("{} took longer than {} seconds and was killed", program.display(), timeout.as_secs())]
    Timeout {
        /// The program.
        program: PathBuf,
        /// How long it was given.
        timeout: Duration,
    },
    /// The program says that it failed.
    #[error("{} failed ({status}): {said}", program.display())]
    Failed {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// The first that it said.
        said: String,
    },
    /// The program says nothing of a failure, but the device is not as wanted.
    #[error("{} ended well, but {} is `{found}`, not `{wanted}`", program.display(), file.display())]
    NotDone {
        /// The program.
        program: PathBuf,
        /// The file that tells.
        file: PathBuf,
        /// What is in it.
        found: String,
        /// What should be.
        wanted: String,
    },
}

/// Prepares the devices of a plan, one after the other, on the host whose root
/// is at `root`.
pub(super) fn run(plan: &InjectionPlan, root: &Path) -> Result<(), ApplyError> {
    for step in &plan.steps {
        if let Action::Prepare {
            program,
            arguments,
            timeout,
            file,
            wanted,
        } = &step.action
        {
            let program = under(root, program);
            let timeout = Duration::from_secs(*timeout);
            run_program(&program, arguments, timeout)
                .and_then(|()| check(&program, &under(root, file), wanted))
                .map_err(|error| ApplyError::from(error).why(&step.why))?;
        }
    }
    Ok(())
}

/// The host is trusted: its paths are looked up as its own programs would.
fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn run_program(
    program: &Path,
    arguments: &[String],
    timeout: Duration,
) -> Result<(), PrepareError> {
    let failed = |error| PrepareError::Run {
        program: program.into(),
        error,
    };
    let mut said = words().map_err(failed)?;
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(said.try_clone().map_err(failed)?)
        // Of a group of its own, so that what it starts ends with it.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let Some(status) = wait(child, timeout).map_err(failed)? else {
        let program = program.into();
        return Err(PrepareError::Timeout { program, timeout });
    };
    if status.success() {
        return Ok(());
    }
    let mut text = Vec::new();
    // Without its words, its status still tells that it failed.
    let _ = said
        .rewind()
        .and_then(|()| said.take(MAX_TEXT).read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    Err(PrepareError::Failed {
        program: program.into(),
        status,
        said: excerpt(text.trim()),
    })
}

/// A file without a name, for what a program says.
fn words() -> io::Result<File> {
    Ok(memfd_create("said", MFdFlags::MFD_CLOEXEC)?.into())
}

/// How the program ended; nothing if it had to be killed.
fn wait(mut child: Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            let group = i32::try_from(child.id()).map_err(io::Error::other)?;
            killpg(Pid::from_raw(group), Signal::SIGKILL)?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(INTERVAL);
    }
}

/// Whether the file says what was wanted.
fn check(program: &Path, file: &Path, wanted: &str) -> Result<(), PrepareError> {
    let mut text = Vec::new();
    let read = File::open(file).and_then(|file| file.take(MAX_TEXT).read_to_end(&mut text));
    let found = match read {
        Ok(_) => String::from_utf8_lossy(&text).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    if found.eq_ignore_ascii_case(wanted) {
        return Ok(());
    }
    Err(PrepareError::NotDone {
        program: program.into(),
        file: file.into(),
        found: excerpt(&found),
        wanted: excerpt(wanted),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use device_class::plan::InjectionStep;

    use super::*;

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
        let action = Action::Prepare {
            program: "/programmer".into(),
            arguments: vec![file.display().to_string(), "new".into()],
            timeout,
            file: "/sys/id".into(),
            wanted: "new".into(),
        };
        let why = "port-0".to_owned();
        let plan = InjectionPlan {
            steps: vec![InjectionStep { action, why }],
            ..InjectionPlan::default()
        };
        let start = Instant::now();
        let done = run(&plan, host.path());
        let root = host.path().display().to_string();
        let done = done.map_err(|error| error.to_string().replace(&root, ""));
        (done, fs::read_to_string(file).unwrap(), start.elapsed())
    }

    #[test]
    fn a_programmer_succeeds_fails_or_lies() {
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
                Err("port-0: /programmer failed (exit status: 3): bad bitstream"),
            ),
            (
                "true",
                Err("port-0: /programmer ended well, but /sys/id is `old`, not `new`"),
            ),
            (
                "echo other > $1",
                Err("port-0: /programmer ended well, but /sys/id is `other`, not `new`"),
            ),
        ] {
            let (done, _, _) = prepared(script, 60);
            assert_eq!(done, wanted.map_err(str::to_owned), "{script}");
        }
    }

    #[test]
    fn a_programmer_that_hangs_is_killed_with_what_it_started() {
        let (done, content, elapsed) = prepared("(sleep 3; echo $2 > $1) & sleep 60", 1);
        let wanted = "port-0: /programmer took longer than 1 seconds and was killed";
        assert_eq!(done, Err(wanted.to_owned()));
        assert_eq!(content, "old\n");
        assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    }

    #[test]
    fn a_programmer_that_is_missing_is_named() {
        let plan_error = run_program(Path::new("/nowhere"), &[], Duration::from_secs(1));
        let message = plan_error.unwrap_err().to_string();
        assert!(message.starts_with("/nowhere can't be run: "), "{message}");
    }
}
