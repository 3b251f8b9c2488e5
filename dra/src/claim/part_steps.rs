//! Executes the steps that create and remove parts: programs, and writes to sysfs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use device_class::discover::Step;
use device_class::name::excerpt;
use device_class::ownership;
use host_inventory::host_program;
use injection_plan::program_output;

/// The number of bytes of a program's output that are read.
const MAX_OUTPUT: usize = 64 * 1024;

/// The result of a sequence of steps.
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

    /// Describes why the steps had no effect.
    pub(super) fn reason(&self) -> String {
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

/// Executes steps in order on the host with the root directory `root`. If `until_failure` is set,
/// the first failure ends the sequence. A step that exceeds the timeout always ends it.
pub(super) fn run_steps(
    root: &Path,
    steps: &[Step],
    timeout: Duration,
    until_failure: bool,
) -> StepsResult {
    let mut result = StepsResult::Success;
    for step in steps {
        let result_of_step = match step {
            Step::Run {
                command,
                library_path,
            } => run_program(root, command, library_path, timeout),
            Step::Write(file, text) => write_file(root, file, text, timeout),
        };
        if !result_of_step.is_success() {
            tracing::warn!("{}", result_of_step.reason());
            result = result_of_step;
            if until_failure || result.is_killed() {
                break;
            }
        }
    }
    result
}

/// The files with a write that exceeded its timeout and has not ended.
static PENDING_WRITES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn pending_writes() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PENDING_WRITES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Writes a text to a sysfs file with one call. A driver may block the call for ever, and nothing
/// can end a thread with such a call. The thread is then abandoned, and no other write to the file
/// starts.
#[expect(
    clippy::disallowed_methods,
    reason = "a file of a driver; nobody waits for the thread"
)]
fn write_file(root: &Path, file: &Path, text: &str, timeout: Duration) -> StepsResult {
    let path = root.join(file.strip_prefix("/").unwrap_or(file));
    let step = format!("writing `{}` to {}", excerpt(text), file.display());
    if !pending_writes().insert(path.clone()) {
        return StepsResult::Killed(format!("{step}: an earlier write has not ended"));
    }
    let (text, (sender, written)) = (text.to_owned(), mpsc::channel());
    thread::spawn(move || {
        let write = || -> io::Result<()> {
            // `create` is not set: a missing file must not be created.
            let mut file = File::options().write(true).open(&path)?;
            match file.write(text.as_bytes())? {
                count if count == text.len() => Ok(()),
                _ => Err(io::Error::other("the driver took a part of the text")),
            }
        };
        let result = write();
        pending_writes().remove(&path);
        // The receiver may have given up after the timeout.
        let _ = sender.send(result);
    });
    match written.recv_timeout(timeout) {
        Ok(Ok(())) => StepsResult::Success,
        Ok(Err(error)) => StepsResult::Failed(format!("{step} failed: {error}")),
        Err(_) => StepsResult::Killed(format!("{step} takes longer than {} s", timeout.as_secs())),
    }
}

fn run_program(
    root: &Path,
    command: &[String],
    library_path: &[PathBuf],
    timeout: Duration,
) -> StepsResult {
    let Some((program, arguments)) = command.split_first() else {
        return StepsResult::Success;
    };
    let (text, program) = (excerpt(&command.join(" ")), Path::new(program));
    if let Err(error) = ownership::program(root, program) {
        return StepsResult::Failed(format!("`{text}` cannot be run: {error}"));
    }
    let mut start = host_program::command(root, program, arguments);
    program_output::set_library_path(&mut start, library_path);
    match program_output::run_program(start, timeout, MAX_OUTPUT) {
        Err(error) => StepsResult::Failed(format!("`{text}` cannot be run: {error}")),
        Ok(None) => StepsResult::Killed(format!(
            "`{text}` took longer than {} s and was killed",
            timeout.as_secs()
        )),
        Ok(Some((status, _))) if status.success() => StepsResult::Success,
        Ok(Some((status, output))) => {
            let mut lines = output.lines().map(str::trim);
            let last = lines.rfind(|line| !line.is_empty()).unwrap_or("nothing");
            let last = excerpt(last);
            StepsResult::Failed(format!("`{text}` failed ({status}), and printed: {last}"))
        }
    }
}
