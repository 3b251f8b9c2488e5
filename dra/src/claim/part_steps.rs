//! Executes the steps that create and remove parts of devices: programs, and writes to sysfs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use daemon::host_inventory::host_program;
use device_class::discover::PartAction;
use device_class::name::excerpt;
use device_class::ownership;
use injection_plan::program_output;

/// The maximum number of bytes that are read from a program's output. If the program fails, the
/// error message quotes the last line.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;

/// The result of a sequence of steps. `Killed` means that a step exceeded its timeout. It is then
/// unknown what the step has changed on the device.
#[derive(Debug)]
pub(super) enum StepsResult {
    Success,
    Failed(String),
    Killed(String),
}

impl StepsResult {
    pub(super) fn is_success(&self) -> bool {
        matches!(self, StepsResult::Success)
    }

    pub(super) fn is_killed(&self) -> bool {
        matches!(self, StepsResult::Killed(_))
    }

    /// Returns the reason why the steps did not have the intended effect on the devices. There is a
    /// reason even if each step succeeded.
    pub(super) fn describe_failure(&self) -> String {
        match self {
            StepsResult::Success => {
                "each step succeeded, but the devices are as before (`found` in \
                            [[parts]] of the class)"
                    .to_owned()
            }
            StepsResult::Failed(reason) | StepsResult::Killed(reason) => reason.clone(),
        }
    }
}

/// Executes steps in order on the host with the root directory `host_root`. If `stops_at_failure`
/// is true, the first failed step ends the sequence. A step that exceeds the timeout always ends
/// the sequence.
pub(super) fn run_steps(
    host_root: &Path,
    steps: &[PartAction],
    timeout: Duration,
    stops_at_failure: bool,
) -> StepsResult {
    let mut result = StepsResult::Success;
    for step in steps {
        let step_result = match step {
            PartAction::Run {
                command,
                library_path,
            } => run_program(host_root, command, library_path, timeout),
            PartAction::Write(file, text) => write_file(host_root, file, text, timeout),
        };
        if !step_result.is_success() {
            tracing::warn!("{}", step_result.describe_failure());
            result = step_result;
            if stops_at_failure || result.is_killed() {
                break;
            }
        }
    }
    result
}

/// The paths of the files to which a thread is still writing. A thread may write longer than its
/// timeout, because a driver may block the write.
static PENDING_WRITES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn lock_pending_writes() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PENDING_WRITES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Writes a text to a sysfs file with one call of write(2). A driver may block this call forever,
/// and a blocked thread cannot be ended. Therefore the thread is abandoned after the timeout, and
/// no further write to the file is started while this one lasts.
#[expect(
    clippy::disallowed_methods,
    reason = "a file of a driver; nobody waits for the thread"
)]
fn write_file(host_root: &Path, file: &Path, text: &str, timeout: Duration) -> StepsResult {
    let path = host_root.join(file.strip_prefix("/").unwrap_or(file));
    let step_text = format!("writing `{}` to {}", excerpt(text), file.display());
    if !lock_pending_writes().insert(path.clone()) {
        return StepsResult::Killed(format!("{step_text}: an earlier write has not ended"));
    }
    let (text, (sender, receiver)) = (text.to_owned(), mpsc::channel());
    thread::spawn(move || {
        let write_text = || -> io::Result<()> {
            // The file is opened without `create`, because a missing file must not be created.
            let mut file = File::options().write(true).open(&path)?;
            match file.write(text.as_bytes())? {
                count if count == text.len() => Ok(()),
                _ => Err(io::Error::other("the driver took a part of the text")),
            }
        };
        let result = write_text();
        lock_pending_writes().remove(&path);
        // An error is ignored, because nobody receives the result after the timeout.
        let _ = sender.send(result);
    });
    match receiver.recv_timeout(timeout) {
        Ok(Ok(())) => StepsResult::Success,
        Ok(Err(error)) => StepsResult::Failed(format!("{step_text} failed: {error}")),
        Err(_) => StepsResult::Killed(format!(
            "{step_text} takes longer than {} s",
            timeout.as_secs()
        )),
    }
}

fn run_program(
    host_root: &Path,
    command: &[String],
    library_path: &[PathBuf],
    timeout: Duration,
) -> StepsResult {
    let Some((program, arguments)) = command.split_first() else {
        return StepsResult::Success;
    };
    let (command_text, program) = (excerpt(&command.join(" ")), Path::new(program));
    if let Err(error) = ownership::resolve_trusted_program(host_root, program) {
        return StepsResult::Failed(format!("`{command_text}` cannot be run: {error}"));
    }
    let mut program_command = host_program::build_command(host_root, program, arguments);
    program_output::set_library_path(&mut program_command, library_path);
    match program_output::run_program(program_command, timeout, MAX_OUTPUT_BYTES) {
        Err(error) => StepsResult::Failed(format!("`{command_text}` cannot be run: {error}")),
        Ok(None) => StepsResult::Killed(format!(
            "`{command_text}` took longer than {} s and was killed",
            timeout.as_secs()
        )),
        Ok(Some((status, _))) if status.success() => StepsResult::Success,
        Ok(Some((status, output))) => {
            let mut lines = output.lines().map(str::trim);
            let last_line = lines.rfind(|line| !line.is_empty()).unwrap_or("nothing");
            let last_line = excerpt(last_line);
            StepsResult::Failed(format!(
                "`{command_text}` failed ({status}), and printed: {last_line}"
            ))
        }
    }
}
