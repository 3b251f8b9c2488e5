//! Runs programs of the host that prepare a device before it is injected. For example, a program
//! loads the bitstream that the container requests.
//!
//! A program gets an empty environment, an empty stdin and a time limit. If it fails, the error
//! message contains its stderr. If it succeeds, the state of the device is verified.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use device_class::class::MAX_CONTAINER_START_TIME;
use device_class::host::{HostView, MAX_ATTRIBUTE_BYTES, RealHost};
use device_class::name::excerpt;
use device_class::ownership;
use injection_plan::plan::{Action, InjectionPlan, Preparation};
use injection_plan::program_output::ProgramOutput;
use nix::sys::signal::{Signal, killpg};

use super::ApplyError;
use crate::sys::group::ProcessGroup;

/// The interval at which this process checks whether a program has ended. It also reads the
/// program's stderr then, so that the pipe does not become full and block the program.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The maximum number of bytes of a program's stderr that are kept for the error message.
const MAX_STDERR_BYTES: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The program does not exist, could not be started, or is unsafe because users other than root
    /// can change it.
    #[error("{} cannot be run", program.display())]
    Run {
        program: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{} {failure}", program.display())]
    Failed { program: PathBuf, failure: String },
}

/// Runs the programs that prepare the devices of a plan, one after the other. All programs together
/// must end within [`MAX_CONTAINER_START_TIME`]. Their paths are below the directory `host_root`.
pub(super) fn prepare_devices(plan: &InjectionPlan, host_root: &Path) -> Result<(), ApplyError> {
    let deadline = Instant::now() + MAX_CONTAINER_START_TIME;
    for step in &plan.steps {
        if let Action::Prepare(preparation) = &step.action {
            let remaining_time = deadline.saturating_duration_since(Instant::now());
            let time_limit = Duration::from_secs(preparation.timeout_seconds).min(remaining_time);
            prepare_device(preparation, time_limit, host_root)
                .map_err(|error| ApplyError::from(error).with_owner_labels(&step.owner_labels))?;
        }
    }
    Ok(())
}

/// Runs the program that prepares a device, for at most `time_limit`. Then reads the state of the
/// device from a file, such as a sysfs attribute. Fails if the state is not the requested one, even
/// if the program reported success.
fn prepare_device(
    preparation: &Preparation,
    time_limit: Duration,
    host_root: &Path,
) -> Result<(), PrepareError> {
    let program = &preparation.program;
    let run_program = || {
        let path =
            ownership::resolve_trusted_program(host_root, program).map_err(io::Error::other)?;
        let mut command = Command::new(path);
        command.arg0(program).args(&preparation.arguments);
        run_command(command, time_limit)
    };
    let run_result = run_program().map_err(|error| PrepareError::Run {
        program: program.clone(),
        error,
    })?;
    let read_current_state =
        || read_state(preparation, host_root).unwrap_or_else(|error| error.to_string());
    let failure = match run_result {
        // The remaining time of all programs may be less than a second, so the message has one
        // decimal place.
        None => format!(
            "took longer than {} seconds and was killed",
            (time_limit.as_secs_f64() * 10.0).round() / 10.0
        ),
        Some((status, stderr)) if !status.success() => {
            format!("failed ({status}): {}", excerpt(stderr.trim()))
        }
        Some(_) => match read_current_state() {
            state if state.eq_ignore_ascii_case(&preparation.requested_state) => return Ok(()),
            state => format!(
                "exited 0, but {} is `{}`, not `{}`",
                preparation.state_path.display(),
                excerpt(&state),
                excerpt(&preparation.requested_state)
            ),
        },
    };
    Err(PrepareError::Failed {
        program: program.clone(),
        failure,
    })
}

fn read_state(preparation: &Preparation, host_root: &Path) -> io::Result<String> {
    let bytes = RealHost::open(host_root)?.read(&preparation.state_path, MAX_ATTRIBUTE_BYTES)?;
    Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Runs a program. Returns its exit status, and at most [`MAX_STDERR_BYTES`] of its stderr. Returns
/// `None` if the program exceeded the time limit and was killed.
///
/// The program runs in its own process group. If this process ends, even by SIGKILL, the whole
/// group is killed.
fn run_command(
    mut command: Command,
    time_limit: Duration,
) -> io::Result<Option<(ExitStatus, String)>> {
    let group = ProcessGroup::start()?;
    let mut child = command
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(group.id().as_raw())
        .spawn()?;
    let pipe = child
        .stderr
        .take()
        .ok_or_else(|| io::Error::other("its stderr has no pipe"))?;
    let mut stderr = ProgramOutput::new(pipe, MAX_STDERR_BYTES)?;
    let status = wait_for_exit(child, &mut stderr, &group, time_limit)?;
    Ok(status.map(|status| (status, stderr.to_text())))
}

/// Waits until the program ends. Returns `None` if it exceeded the time limit and was killed with
/// its process group, which contains the processes that it started.
fn wait_for_exit(
    mut child: Child,
    stderr: &mut ProgramOutput<ChildStderr>,
    group: &ProcessGroup,
    timeout: Duration,
) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + timeout;
    loop {
        let status = child.try_wait()?;
        stderr.read_available();
        if status.is_some() {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            killpg(group.id(), Signal::SIGKILL)?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use injection_plan::plan::InjectionStep;

    use super::*;
    use crate::log::format_error_chain;

    /// Creates the root of a host with a shell, a file and a program that changes it.
    fn host(script: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys")).unwrap();
        fs::write(root.path().join("sys/id"), "old\n").unwrap();
        let text = root.path().join("text");
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        // The program is copied by another process. A descriptor of this process that is open
        // for writing could be inherited by a program that another test starts at the same
        // moment, and executing the copy would then fail with ETXTBSY.
        let copy_status = Command::new("/bin/cp")
            .args([text, root.path().join("programmer")])
            .status();
        assert!(copy_status.unwrap().success());
        root
    }

    fn run_preparation(script: &str, timeout: u64) -> (Result<(), String>, String, Duration) {
        let host = host(script);
        let file = host.path().join("sys/id");
        let preparation = Preparation {
            program: "/programmer".into(),
            arguments: vec![file.display().to_string(), "new".into()],
            timeout_seconds: timeout,
            state_path: "/sys/id".into(),
            requested_state: "new".into(),
        };
        let start = Instant::now();
        let result = prepare_device(&preparation, Duration::from_secs(timeout), host.path())
            .map_err(|error| format_error_chain(&error));
        (result, fs::read_to_string(file).unwrap(), start.elapsed())
    }

    #[test]
    fn a_programmer_succeeds_fails_or_programs_another_function() {
        for (script, wanted) in [
            ("echo $2 > $1", Ok(())),
            ("echo NEW > $1", Ok(())),
            // The environment is empty except for the variables that the shell itself adds.
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
            let (result, _, _) = run_preparation(script, 60);
            assert_eq!(result, wanted.map_err(str::to_owned), "{script}");
        }
    }

    #[test]
    fn output_without_end_is_dropped() {
        // A full pipe does not stop the program, and its output is not stored in a file that
        // would grow.
        let size = "$(stat -L -c %s /proc/self/fd/2)";
        let script =
            format!("head -c 9000000 /dev/zero >&2; test {size} -lt 100000 && echo $2 > $1");
        assert_eq!(run_preparation(&script, 60).0, Ok(()));
        let (result, _, _) = run_preparation("cat /dev/zero >&2", 1);
        let wanted = "/programmer took longer than 1 seconds and was killed";
        assert_eq!(result, Err(wanted.to_owned()));
        let script = "echo first >&2; head -c 9000000 /dev/zero | tr '\\0' x >&2; exit 3";
        let (result, _, _) = run_preparation(script, 60);
        let reason = result.unwrap_err();
        assert!(reason.contains("(exit status: 3): first"), "{reason}");
        assert!(reason.len() < 1000, "{reason}");
    }

    #[test]
    fn a_programmer_that_hangs_is_killed_with_what_it_started() {
        let (result, content, elapsed) = run_preparation("(sleep 3; echo $2 > $1) & sleep 60", 1);
        let wanted = "/programmer took longer than 1 seconds and was killed";
        assert_eq!(result, Err(wanted.to_owned()));
        assert_eq!(content, "old\n");
        assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
    }

    #[test]
    fn a_program_that_is_missing_and_its_device_are_named() {
        let host = host("true");
        let plan = |program: &str, wanted: &str| InjectionPlan {
            steps: vec![InjectionStep {
                action: Action::Prepare(Preparation {
                    program: program.into(),
                    arguments: Vec::new(),
                    timeout_seconds: 60,
                    state_path: "/sys/id".into(),
                    requested_state: wanted.to_owned(),
                }),
                owner_labels: "port-0".to_owned(),
                owners: Vec::new(),
            }],
            ..InjectionPlan::default()
        };
        prepare_devices(&plan("/programmer", "old"), host.path()).unwrap();
        let error = prepare_devices(&plan("/programmer", "new"), host.path()).unwrap_err();
        let wanted = "port-0: /programmer exited 0, but /sys/id is `old`, not `new`";
        assert_eq!(format_error_chain(&error), wanted);
        let message = format_error_chain(
            &prepare_devices(&plan("/nowhere", "old"), host.path()).unwrap_err(),
        );
        assert!(
            message.starts_with("port-0: /nowhere cannot be run: "),
            "{message}"
        );
    }
}
