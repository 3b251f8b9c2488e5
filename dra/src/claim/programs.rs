//! Executes the steps that make and remove parts: programs, and writes to sysfs.

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

/// The maximum length in bytes of a program's output that is read.
const MAX_OUTPUT: usize = 64 * 1024;

/// The result of steps.
#[derive(Debug)]
pub(super) enum StepsResult {
    Well,
    Failed(String),
    Killed(String),
}

impl StepsResult {
    pub(super) fn is_success(&self) -> bool {
        matches!(self, StepsResult::Well)
    }

    pub(super) fn is_killed(&self) -> bool {
        matches!(self, StepsResult::Killed(_))
    }

    /// Returns why the steps did not have their effect.
    pub(super) fn reason(&self) -> String {
        match self {
            StepsResult::Well => "each step succeeded, but the devices are as before (`found` in \
                            [[parts]] of the class)"
                .to_owned(),
            StepsResult::Failed(reason) | StepsResult::Killed(reason) => reason.clone(),
        }
    }
}

/// Executes steps, one after another, on the host whose root directory is `root`. With
/// `until_failure` the first failure ends the execution. A step that exceeds the timeout ends
/// it in any case.
pub(super) fn run(
    root: &Path,
    steps: &[Step],
    timeout: Duration,
    until_failure: bool,
) -> StepsResult {
    let mut result = StepsResult::Well;
    for step in steps {
        let result_of_step = match step {
            Step::Run(command) => run_one(root, command, timeout),
            Step::Write(file, text) => write(root, file, text, timeout),
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

/// The files to which a write has exceeded its timeout and not ended yet.
static PENDING_WRITES: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn pending_writes() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PENDING_WRITES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Writes a text to a file of sysfs in one call. A driver may block the call for ever. A
/// thread with such a call stays behind, because nothing can end it, and no other write to the
/// file is started.
#[expect(
    clippy::disallowed_methods,
    reason = "a file of a driver; nobody waits for the thread"
)]
fn write(root: &Path, file: &Path, text: &str, timeout: Duration) -> StepsResult {
    let path = root.join(file.strip_prefix("/").unwrap_or(file));
    let step = format!("writing `{}` to {}", excerpt(text), file.display());
    if !pending_writes().insert(path.clone()) {
        return StepsResult::Killed(format!("{step}: an earlier write has not ended"));
    }
    let (text, (sender, written)) = (text.to_owned(), mpsc::channel());
    thread::spawn(move || {
        let write = || -> io::Result<()> {
            // A file that does not exist must not be created.
            let mut file = File::options().write(true).open(&path)?;
            match file.write(text.as_bytes())? {
                count if count == text.len() => Ok(()),
                _ => Err(io::Error::other("the driver took a part of the text")),
            }
        };
        let result = write();
        pending_writes().remove(&path);
        // The receiver may have stopped waiting.
        let _ = sender.send(result);
    });
    match written.recv_timeout(timeout) {
        Ok(Ok(())) => StepsResult::Well,
        Ok(Err(error)) => StepsResult::Failed(format!("{step} failed: {error}")),
        Err(_) => StepsResult::Killed(format!("{step} takes longer than {} s", timeout.as_secs())),
    }
}

fn run_one(root: &Path, command: &[String], timeout: Duration) -> StepsResult {
    let Some((program, arguments)) = command.split_first() else {
        return StepsResult::Well;
    };
    let (text, program) = (excerpt(&command.join(" ")), Path::new(program));
    if let Err(error) = ownership::program(root, program) {
        return StepsResult::Failed(format!("`{text}` cannot be run: {error}"));
    }
    let start = host_program::command(root, program, arguments);
    match program_output::run_program(start, timeout, MAX_OUTPUT) {
        Err(error) => StepsResult::Failed(format!("`{text}` cannot be run: {error}")),
        Ok(None) => StepsResult::Killed(format!(
            "`{text}` took longer than {} s and was killed",
            timeout.as_secs()
        )),
        Ok(Some((status, _))) if status.success() => StepsResult::Well,
        Ok(Some((status, output))) => {
            let mut lines = output.lines().map(str::trim);
            let last = lines.rfind(|line| !line.is_empty()).unwrap_or("nothing");
            let last = excerpt(last);
            StepsResult::Failed(format!("`{text}` failed ({status}), and printed: {last}"))
        }
    }
}
