//! One thing that is tried in the machine.

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use harness::vm::Vm;

/// The time that udev, the plugin or an engine may take to notice a change, in an emulated machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A case. It leaves the machine as it was.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// The modules that it needs, loaded before, with their options.
    pub(super) modules: &'static [&'static str],
    /// Returns what was seen.
    pub(super) test: fn(&mut Vm) -> Result<String>,
}

pub(super) enum Outcome {
    Passed(String),
    /// The kernel has no such driver.
    Absent(String),
    Failed(String),
}

impl Case {
    pub(super) fn run(&self, vm: &mut Vm) -> Outcome {
        for module in self.modules {
            match vm.try_run(&format!("modprobe {module} && udevadm settle")) {
                Ok(loaded) if loaded.status.success() => (),
                Ok(loaded) if loaded.stderr.contains("not found") => {
                    return Outcome::Absent(format!("the kernel has no {module}"));
                }
                Ok(loaded) => return Outcome::Failed(loaded.stderr),
                Err(error) => return Outcome::Failed(format!("{error:#}")),
            }
        }
        match (self.test)(vm) {
            Ok(seen) => Outcome::Passed(seen.trim().replace('\n', "; ")),
            Err(error) => Outcome::Failed(format!("{error:#}")),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(seen) => write!(formatter, "ok: {seen}"),
            Self::Absent(reason) => write!(formatter, "absent: {reason}"),
            Self::Failed(reason) => write!(formatter, "FAILED: {reason}"),
        }
    }
}

/// Fails unless `text` contains this.
pub(super) fn expect(text: &str, wanted: &str) -> Result<()> {
    if !text.contains(wanted) {
        bail!("no {wanted:?} in: {text}");
    }
    Ok(())
}

/// Runs lines until their output contains this.
pub(super) fn wait_for(vm: &mut Vm, lines: &str, wanted: &str) -> Result<String> {
    let start = Instant::now();
    loop {
        let ran = vm.try_run(lines)?;
        if ran.stdout.contains(wanted) {
            return Ok(ran.stdout);
        }
        if start.elapsed() > PATIENCE {
            bail!(
                "{lines}: no {wanted:?} within {PATIENCE:?}: {}{}",
                ran.stdout,
                ran.stderr
            );
        }
        sleep(Duration::from_millis(500));
    }
}

/// Runs lines while the host has another class, in which version and resource are omitted.
pub(super) fn with_class(vm: &mut Vm, name: &str, class: &str, lines: &str) -> Result<String> {
    let file = format!("/etc/boathook/classes.d/{name}.toml");
    vm.run(&format!(
        "mkdir -p /etc/boathook/classes.d; cat >{file} <<'END'\n\
         version = 1\nresource = \"example.com/{name}\"\n{class}\nEND\n\
         {lines}\nrm {file}"
    ))
}
