//! Implements `boathook-runtime`. Engines without support for hooks call this program in place of
//! an OCI runtime such as runc.
//!
//! For `create` and `run`, this program reads config.json of the bundle. If the container requests
//! devices, the program adds the hook, the device rules and the groups of the device nodes to
//! config.json, and removes masked paths that would hide the devices' files ([`masked_paths`]).
//! Device rules in config.json are not lost when an engine or systemd sets the rules of the
//! container again. For `update`, the program adds these rules to the new resources ([`update`]).
//! Then it executes the real runtime in this process. So the engine sees the process id, stdio and
//! exit code of the real runtime, and signals of the engine reach the real runtime.
//!
//! The config.json of a container that requests nothing is not changed. Every other subcommand is
//! passed on unchanged, including `restore`: a restored container has its old mounts, and its
//! config.json was changed at `create`.

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
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use device_class::class::disable_report_patterns;
use device_class::config::{Config, RuntimeConfig};
use device_class::strict_toml::FileError;
use host_files::printable;
use nix::unistd::getppid;

use crate::installation;
use crate::log::{self, LogRecipient};
use crate::oci::{Bundle, read_capped};
use crate::planner;
use crate::sys;
use crate::sys::deadline::{self, Deadline, Stage};
use command_line::{CommandLine, NewContainer, RuntimeCommand};
use config_file::ConfigFile;
use entry::HookEntry;
use masked_paths::RemovedPaths;

pub use error::WrapperError;
pub use real_runtime::find_real_runtime as real_runtime;

/// The environment variable with the path of config.toml. Without it, the default path is used. The
/// path is trusted, because a process that can set the environment of a runtime could also start
/// another runtime.
const CONFIG_PATH_VARIABLE: &str = "BOATHOOK_CONFIG";

/// Runs `boathook-runtime`, which has the command line of an OCI runtime. Returns only after an
/// error, because otherwise the real runtime replaces this program. The error is reported on stderr
/// and in the log file that the option `--log` names.
pub fn main() -> process::ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let command_line = CommandLine::parse(&arguments);
    disable_report_patterns();
    let config_path = std::env::var_os(CONFIG_PATH_VARIABLE).map(PathBuf::from);
    let Err(error) = exec_real_runtime(&command_line, &arguments, config_path.as_deref());
    let message = log::format_error_chain(&error);
    log::error(&message);
    if let Some(log) = &command_line.log {
        log.write(&printable::escape_line(&format!("boathook: {message}")));
    }
    error.exit_code().into()
}

/// Returns the bundle of the container `container_id` that the runtime's command line names. The
/// hook calls this function. The runtime is its parent process, so the command line is in
/// `/proc/PPID/cmdline`.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(crate) fn find_caller_bundle(container_id: &str) -> Option<PathBuf> {
    const MAX_COMMAND_LINE_BYTES: usize = 2 << 20;
    let file = File::open(format!("/proc/{}/cmdline", getppid())).ok()?;
    let bytes = read_capped(file, MAX_COMMAND_LINE_BYTES).ok()??;
    let command_line_words: Vec<OsString> = bytes
        .split(|byte| *byte == 0)
        .skip(1)
        .map(|word| OsStr::from_bytes(word).to_owned())
        .collect();
    let arguments = command_line_words
        .split_last()
        .map_or(&[][..], |(_, arguments)| arguments);
    match CommandLine::parse(arguments).action {
        RuntimeCommand::Create(container)
            if container.id == container_id && container.bundle.is_absolute() =>
        {
            Some(container.bundle)
        }
        _ => None,
    }
}

fn exec_real_runtime(
    command_line: &CommandLine,
    arguments: &[OsString],
    config_path: Option<&Path>,
) -> Result<Infallible, WrapperError> {
    // `ManuallyDrop` keeps the deadline when this function returns, because the deadline must still
    // apply while the caller reports an error.
    let deadline = Deadline::start(deadline::DEADLINE_SECONDS).map_err(WrapperError::Signal)?;
    let deadline = ManuallyDrop::new(deadline);
    let original_signal_action =
        sys::process::ignore_file_size_signal().map_err(WrapperError::Signal)?;
    let mut update_arguments = None;
    let runtime_path = match &command_line.action {
        RuntimeCommand::Create(container) => {
            let config = installation::load_configuration(config_path);
            log::init(LogRecipient::Engine, config.as_ref().ok(), None);
            // The real runtime is searched before config.json is changed, so that config.json stays
            // unchanged if there is none.
            let runtime_path = match &config {
                Ok(config) => real_runtime(&config.runtime),
                Err(_) => real_runtime(&load_runtime_config(config_path)),
            }?;
            let result = match config {
                Ok(config) => add_hook(container, &config, config_path),
                Err(error) => refuse_container_with_requests(container, error),
            };
            result.map_err(|error| error.with_container(&container.id))?;
            runtime_path
        }
        RuntimeCommand::Update(_) | RuntimeCommand::Other => {
            log::init(LogRecipient::Engine, None, None);
            real_runtime(&load_runtime_config(config_path))?
        }
    };
    if let RuntimeCommand::Update(action) = &command_line.action {
        let config = installation::load_configuration(config_path).unwrap_or_default();
        let host_root = &config.host_root;
        let edited_arguments =
            update::add_device_rules(action, arguments, &runtime_path, host_root);
        update_arguments = Some(
            edited_arguments.map_err(|error| error.with_container(&action.id.to_string_lossy()))?,
        );
    }
    if is_help_or_version(arguments) && io::stderr().is_terminal() {
        print_introduction(&runtime_path);
    }
    let mut command = Command::new(&runtime_path);
    command.args(
        update_arguments
            .as_ref()
            .map_or(arguments, |update_arguments| &update_arguments.arguments),
    );
    increment_nesting_level(&mut command, &runtime_path)?;
    ManuallyDrop::into_inner(deadline).cancel();
    sys::process::restore_file_size_signal(&original_signal_action);
    // `argv[0]` is the path of the real runtime instead of this program's name, because crun
    // behaves differently if `argv[0]` is `krun`.
    let error = command.exec();
    Err(WrapperError::Exec {
        path: runtime_path,
        error,
    })
}

/// Returns whether the only argument is an option that makes runc, crun or youki print its help or
/// version.
fn is_help_or_version(arguments: &[OsString]) -> bool {
    const OPTIONS: [&str; 5] = ["--help", "-h", "--version", "-v", "-V"];
    matches!(arguments, [option] if OPTIONS.iter().any(|known_option| option == known_option))
}

/// Prints the name of this program before the real runtime prints its help or version. Call this
/// only if stderr is a terminal, because an engine may parse the output.
fn print_introduction(runtime_path: &Path) {
    let (version, runtime_path) = (env!("CARGO_PKG_VERSION"), runtime_path.display());
    let text = format!(
        "boathook-runtime {version} of Boathook calls {runtime_path}, whose answer follows; the \
         manual page is boathook-runtime(1)"
    );
    // The error is ignored, because the real runtime works without this text.
    let _ = writeln!(io::stderr(), "{}", printable::escape_line(&text));
}

/// Reads the table `[runtime]` of config.toml. If config.toml has an error, logs a warning and
/// returns the default settings. Commands that enter or stop a container must work even then.
fn load_runtime_config(config_path: Option<&Path>) -> RuntimeConfig {
    RuntimeConfig::load(config_path).unwrap_or_else(|error| {
        log::warning(&format!("{error}; the host's own runtime is called"));
        RuntimeConfig::default()
    })
}

/// Handles `error`, an error in config.toml, when a container is created. Returns it if the
/// container may request devices. If the container certainly requests none, only logs the error, so
/// that the container can start.
fn refuse_container_with_requests(
    container: &NewContainer,
    error: FileError,
) -> Result<(), WrapperError> {
    let config_file = ConfigFile::read(&container.bundle.join(&container.config_file_name))?;
    let bundle = Bundle::parse(
        &container.bundle,
        config_file.path(),
        config_file.content().as_bytes(),
    )?;
    let requests_nothing =
        |config| planner::requests_nothing(&bundle, &planner::Caller::Engine, &config);
    if !installation::parse_class_dirs_only(&error).is_some_and(requests_nothing) {
        return Err(error.into());
    }
    log::warning(&format!(
        "container {} requests nothing and is started: {error}",
        container.id
    ));
    Ok(())
}

/// The environment variable that counts how often `boathook-runtime` has executed itself as the
/// real runtime. The count detects loops that a comparison of files cannot detect, for example if
/// the real runtime is a script that calls this program.
const NESTING_LEVEL_VARIABLE: &str = "BOATHOOK_RUNTIME_LEVEL";

/// The value of [`NESTING_LEVEL_VARIABLE`] at which this program assumes an endless loop and fails.
/// A few levels are unusual but can be intended.
const MAX_NESTING_LEVEL: u32 = 8;

/// Increments [`NESTING_LEVEL_VARIABLE`] in the environment of `command`. Fails if the value has
/// reached [`MAX_NESTING_LEVEL`].
fn increment_nesting_level(command: &mut Command, runtime_path: &Path) -> Result<(), WrapperError> {
    let nesting_level: u32 = std::env::var(NESTING_LEVEL_VARIABLE)
        .ok()
        .and_then(|level| level.parse().ok())
        .unwrap_or(0);
    if nesting_level >= MAX_NESTING_LEVEL {
        return Err(WrapperError::Recursion(runtime_path.into()));
    }
    command.env(NESTING_LEVEL_VARIABLE, (nesting_level + 1).to_string());
    Ok(())
}

/// Adds the hook and the device rules to the config.json of a new container. Leaves the file as it
/// is if the container requests no device.
fn add_hook(
    container: &NewContainer,
    config: &Config,
    config_path: Option<&Path>,
) -> Result<(), WrapperError> {
    let config_file = ConfigFile::read(&container.bundle.join(&container.config_file_name))?;
    let bundle = Bundle::parse(
        &container.bundle,
        config_file.path(),
        config_file.content().as_bytes(),
    )?;
    deadline::set_container_id(&printable::escape_line(&container.id));
    Stage::Planning.begin();
    let plan = planner::plan_container_injection(&bundle, &planner::Caller::Engine, config)?;
    // A plan with nothing but warnings does not count as empty, because the hook must run to log
    // the warnings.
    let is_empty = plan.steps.is_empty() && plan.env.is_empty() && plan.warnings.is_empty();
    if is_empty && !plan.has_awaited_devices() {
        return Ok(());
    }
    let hook_entry = HookEntry::new(config.runtime.hook.as_deref(), config_path)?;
    let (host_root, has_user_namespace) = (&config.host_root, bundle.has_user_namespace);
    let missing_gids = node_groups::find_missing_groups(
        config_file.content(),
        has_user_namespace,
        &plan,
        host_root,
    );
    let removed_paths = RemovedPaths::find(&plan, &bundle, config);
    let text = hook_entry
        .add_to_config(
            config_file.content(),
            &bundle.hooks,
            &plan,
            &missing_gids,
            &removed_paths,
        )
        .map_err(|error| WrapperError::Edit {
            path: config_file.path().into(),
            error,
        })?;
    config_file
        .replace(&text)
        .map_err(|error| WrapperError::Write {
            path: config_file.path().into(),
            error,
        })
}
