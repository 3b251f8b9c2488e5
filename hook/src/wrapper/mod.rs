//! `boathook-runtime`: takes the place of an OCI runtime, for engines without support of
//! hooks.
//!
//! For `create` and `run`, the wrapper reads config.json of the bundle. If the container
//! requests devices, it adds the hook, the device rules and the groups of the device nodes to the
//! file, and takes masks away that would hide the devices' files ([`masked_paths`]). The rules
//! persist there when an engine or systemd sets the rules of config.json again. For `update`, it
//! keeps these rules in the resources ([`update`]). Then this process executes the real runtime,
//! which therefore has its process number, stdio and signals, and determines the exit code.
//!
//! The config.json of a container that requests nothing is not changed, because the hook
//! would read the same file with the same result. Every other subcommand is passed on
//! unchanged. `restore` is one of them: a restored container has its old mounts, and its
//! config.json was written at `create`.

mod command_line;
mod config_file;
mod entry;
mod error;
mod masked_paths;
mod node_groups;
mod real_runtime;
mod runtime_log;
mod update;

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use device_class::config::{Config, RuntimeConfig};
use device_class::strict_toml::FileError;
use nix::unistd::getppid;

use crate::installation;
use crate::log::{self, LogReader};
use crate::oci::{Bundle, read_capped};
use crate::planner;
use crate::sys;
use crate::sys::deadline::{self, Deadline, Stage};
use command_line::{Action, CommandLine, NewContainer};
use config_file::ConfigFile;
use entry::HookEntry;
use masked_paths::RemovedPaths;

pub(crate) use error::WrapperError;
pub(crate) use real_runtime::find as real_runtime;

/// The variable with the path of the configuration, if it is not the default. It can be
/// trusted, because a process that sets the environment of a runtime could also start another
/// runtime.
const CONFIG_VARIABLE: &str = "BOATHOOK_CONFIG";

/// Runs `boathook-runtime` with the command line of an OCI runtime. The function returns only
/// if the real runtime could not be started. The error is then reported on stderr and in the
/// log that the engine gave to the runtime.
pub fn main() -> process::ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let line = CommandLine::parse(&arguments);
    let config = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from);
    let Err(error) = become_runtime(&line, &arguments, config.as_deref());
    let message = log::chain(&error);
    log::error(&message);
    if let Some(log) = &line.log {
        log.write(&printable::line(&format!("boathook: {message}")));
    }
    error.exit_code().into()
}

/// Returns the bundle of a container from the command line of the calling runtime, which is
/// the parent process of this hook.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(crate) fn bundle_of_caller(id: &str) -> Option<PathBuf> {
    const MAX_LENGTH: usize = 2 << 20;
    let file = File::open(format!("/proc/{}/cmdline", getppid())).ok()?;
    let bytes = read_capped(file, MAX_LENGTH).ok()??;
    let words: Vec<OsString> = bytes
        .split(|byte| *byte == 0)
        .skip(1)
        .map(|word| OsStr::from_bytes(word).to_owned())
        .collect();
    let arguments = words
        .split_last()
        .map_or(&[][..], |(_, arguments)| arguments);
    match CommandLine::parse(arguments).action {
        Action::Create(container) if container.id == id && container.bundle.is_absolute() => {
            Some(container.bundle)
        }
        _ => None,
    }
}

fn become_runtime(
    line: &CommandLine,
    arguments: &[OsString],
    config_path: Option<&Path>,
) -> Result<Infallible, WrapperError> {
    let deadline = Deadline::start(deadline::SECONDS).map_err(WrapperError::Signal)?;
    let file_size = sys::process::ignore_file_size_signal().map_err(WrapperError::Signal)?;
    let mut update = None;
    let runtime = match &line.action {
        Action::Create(container) => {
            let config = installation::configuration(config_path);
            log::start(LogReader::Engine, config.as_ref().ok(), None);
            // The runtime is found before config.json is changed.
            let runtime = match &config {
                Ok(config) => real_runtime(&config.runtime),
                Err(_) => real_runtime(&runtime_config(config_path)),
            }?;
            let added = match config {
                Ok(config) => add_hook(container, &config, config_path),
                Err(error) => ignore_config_error(container, error),
            };
            added.map_err(|error| error.with_container(&container.id))?;
            runtime
        }
        Action::Update(_) | Action::Other => {
            log::start(LogReader::Engine, None, None);
            real_runtime(&runtime_config(config_path))?
        }
    };
    if let Action::Update(action) = &line.action {
        let edited_arguments = update::add_devices(action, arguments, &runtime);
        update = Some(
            edited_arguments.map_err(|error| error.with_container(&action.id.to_string_lossy()))?,
        );
    }
    if is_help_or_version(arguments) && io::stderr().is_terminal() {
        print_introduction(&runtime);
    }
    let mut command = Command::new(&runtime);
    command.args(update.as_ref().map_or(arguments, |update| &update.words));
    count_level(&mut command, &runtime)?;
    deadline.cancel();
    sys::process::restore_file_size_signal(&file_size);
    // The name of the program is that of the real runtime, because crun behaves differently if
    // it is called krun.
    let error = command.exec();
    Err(WrapperError::Exec {
        path: runtime,
        error,
    })
}

/// Returns whether the command line has nothing but the option for the help or the version of
/// the real runtime. The long options and `-v` are those of runc, crun and youki.
fn is_help_or_version(arguments: &[OsString]) -> bool {
    const OPTIONS: [&str; 5] = ["--help", "-h", "--version", "-v", "-V"];
    matches!(arguments, [option] if OPTIONS.iter().any(|known| option == known))
}

/// Names this program to a user at a terminal, because the following text is that of the real
/// runtime. An engine has no terminal on stderr, and gets only the text of the real runtime.
fn print_introduction(runtime: &Path) {
    let (version, runtime) = (env!("CARGO_PKG_VERSION"), runtime.display());
    let text = format!(
        "boathook-runtime {version} of Boathook calls {runtime}, whose answer follows; the manual \
         page is boathook-runtime(1)"
    );
    // A failure is ignored, because the answer of the real runtime is right without this text.
    let _ = writeln!(io::stderr(), "{}", printable::line(&text));
}

/// Reads the settings of the real runtime, even if the configuration has errors elsewhere.
/// Commands that enter or stop a container must still work.
fn runtime_config(path: Option<&Path>) -> RuntimeConfig {
    RuntimeConfig::load(path).unwrap_or_else(|error| {
        log::warning(&format!("{error}; the host's own runtime is called"));
        RuntimeConfig::default()
    })
}

/// Ignores an error in config.toml for a container that requests nothing, and returns it for
/// any other container.
fn ignore_config_error(container: &NewContainer, error: FileError) -> Result<(), WrapperError> {
    let file = ConfigFile::read(&container.bundle.join(&container.config))?;
    let bundle = Bundle::parse(&container.bundle, file.path(), file.text().as_bytes())?;
    let requests_nothing =
        |config| planner::requests_nothing(&bundle, &planner::Caller::Engine, &config);
    if !installation::config_despite_error(&error).is_some_and(requests_nothing) {
        return Err(error.into());
    }
    log::warning(&format!(
        "container {} requests nothing and is started: {error}",
        container.id
    ));
    Ok(())
}

/// The variable that counts nested wrappers. It ends a loop that comparing the files cannot
/// detect, for example if the real runtime is a script or a copy of this program, after
/// [`MAX_LEVELS`].
const LEVEL_VARIABLE: &str = "BOATHOOK_RUNTIME_LEVEL";

/// The maximum number of nested wrappers. A few are unusual, but no loop.
const MAX_LEVELS: u32 = 8;

/// Increments the count of nested wrappers.
fn count_level(command: &mut Command, runtime: &Path) -> Result<(), WrapperError> {
    let nesting: u32 = std::env::var(LEVEL_VARIABLE)
        .ok()
        .and_then(|level| level.parse().ok())
        .unwrap_or(0);
    if nesting >= MAX_LEVELS {
        return Err(WrapperError::Recursion(runtime.into()));
    }
    command.env(LEVEL_VARIABLE, (nesting + 1).to_string());
    Ok(())
}

/// Adds the hook and the device rules to a container's config.json, if the container needs
/// them.
fn add_hook(
    container: &NewContainer,
    config: &Config,
    config_path: Option<&Path>,
) -> Result<(), WrapperError> {
    let file = ConfigFile::read(&container.bundle.join(&container.config))?;
    let bundle = Bundle::parse(&container.bundle, file.path(), file.text().as_bytes())?;
    deadline::set_container(&printable::line(&container.id));
    Stage::Planning.begin();
    let plan = planner::plan_for(&bundle, &planner::Caller::Engine, config)?;
    // A plan with only warnings needs the hook too, because the hook logs the warnings.
    let is_empty = plan.steps.is_empty() && plan.env.is_empty() && plan.warnings.is_empty();
    if is_empty && !plan.is_waiting() {
        return Ok(());
    }
    let hook = HookEntry::new(config.runtime.hook.as_deref(), config_path)?;
    let (host_root, in_namespace) = (&config.host_root, bundle.has_user_namespace);
    let groups = node_groups::find_missing_groups(file.text(), in_namespace, &plan, host_root);
    let removed = RemovedPaths::find(&plan, &bundle, config);
    let text = hook
        .add_to(file.text(), &bundle.hooks, &plan, &groups, &removed)
        .map_err(|error| WrapperError::Edit {
            path: file.path().into(),
            error,
        })?;
    file.replace(&text).map_err(|error| WrapperError::Write {
        path: file.path().into(),
        error,
    })
}
