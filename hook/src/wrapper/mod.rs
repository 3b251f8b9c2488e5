//! `boathook-runtime`: stands where an engine expects an OCI runtime, for
//! engines that can't be told of a hook.
//!
//! For `create` and `run` it looks at the bundle's config.json. A container
//! that asks for devices gets two things written there: the hook, and the
//! device rules, so that they last as long as the container's spec does, even
//! when an engine or systemd sets the rules anew from it. Then this process
//! *becomes* the real runtime: exit code, stdio and signals are that one's.
//!
//! A container that asks for nothing is left alone: the hook would read the
//! same file and find the same nothing. Every other subcommand goes straight
//! through. That includes `restore`: a restored container has the mounts that
//! it had, and its config.json is the one that was written at `create`.

mod command_line;
mod config_file;
mod entry;
mod error;
mod json;
mod level;
mod real_runtime;
mod runtime_log;

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use device_class::config::{Config, RuntimeConfig};

use crate::exit::ExitCode;
use crate::grant;
use crate::log;
use crate::oci::Bundle;
use command_line::{CommandLine, NewContainer};
use config_file::ConfigFile;
use entry::HookEntry;

pub use error::WrapperError;

/// Names the configuration, where it is not at its usual place. Whoever sets
/// the environment of a runtime could as well start another runtime.
const CONFIG_VARIABLE: &str = "BOATHOOK_CONFIG";

/// Runs the command line of an OCI runtime, the program's own name first. It
/// returns only when the real runtime could not be started; the error is
/// told then, on stderr and in the log that the engine gave the runtime.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = arguments.get(1..).unwrap_or_default();
    let line = CommandLine::parse(arguments);
    let config = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from);
    let Err(error) = become_runtime(&line, arguments, config.as_deref());
    tracing::error!("{error}");
    if let Some(log) = &line.log {
        log.write(&format!("boathook: {error}"));
    }
    error.exit_code()
}

fn become_runtime(
    line: &CommandLine,
    arguments: &[OsString],
    config_path: Option<&Path>,
) -> Result<Infallible, WrapperError> {
    let runtime = match &line.container {
        None => {
            log::start(None);
            real_runtime::find(&RuntimeConfig::load(config_path)?)?
        }
        Some(container) => {
            let config = Config::load(config_path).inspect_err(|_| log::start(None))?;
            log::start(config.log_file.as_deref());
            let runtime = real_runtime::find(&config.runtime)?;
            prepare(container, &config, config_path).map_err(|error| error.of(&container.id))?;
            runtime
        }
    };
    let mut command = Command::new(&runtime);
    command.args(arguments);
    level::rise(&mut command, &runtime)?;
    // The program's own name is the real runtime's: crun behaves otherwise
    // when it is called krun.
    let error = command.exec();
    Err(WrapperError::Exec {
        path: runtime,
        error,
    })
}

/// Adds what the container needs to its config.json.
fn prepare(
    container: &NewContainer,
    config: &Config,
    config_path: Option<&Path>,
) -> Result<(), WrapperError> {
    let file = ConfigFile::read(&container.bundle.join(&container.config))?;
    let bundle = Bundle::parse(&container.bundle, file.path(), file.text().as_bytes())?;
    let plan = grant::plan_for(&bundle, config)?;
    // A warning is for the hook to give, as it does without this wrapper.
    if plan.steps.is_empty() && plan.warnings.is_empty() {
        return Ok(());
    }
    let hook = HookEntry::new(config.runtime.hook.as_deref(), config_path)?;
    let text = hook.add_to(file.text(), &plan);
    let text = text.map_err(|error| WrapperError::Edit {
        path: file.path().into(),
        error,
    })?;
    file.replace(&text).map_err(|error| WrapperError::Write {
        path: file.path().into(),
        error,
    })
}
