//! Implements the commands of `boathook`, and declares the error that a failed command returns.

mod attach;
mod cdi;
mod cdi_names;
mod cdi_yaml;
mod check;
mod class;
mod class_kind;
mod containers;
mod devices;
mod doctor;
mod example;
mod explain;
mod facts;
mod finding;
mod follow;
mod holders;
mod launcher;
mod list;
mod list_directory;
mod list_path;
mod missing_follower;
mod node_log;
mod output;
mod restarting;
mod running_root;
mod unknown_variable;
mod unlisted_path;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use crate::live::ContainerChangeError;
use device_class::config::{Config, DEFAULT_PATH, InstalledDirectories};
use device_class::load::ClassSource;
use device_class::name::ClassName;
use device_class::similar;
use device_class::strict_toml::FileError;
use hook::exit::ExitCode;
use hook::installation;
use hook::log::{self, LogRecipient};
use hook::oci::{Bundle, BundleError};
use hook::planner::PlannerError;
use hook::start::{self, StartError};
use host_files::printable;
use serde::Serialize;

use class::TargetError;
use holders::Holders;
use list::ListOptions;

use crate::cli::{Cli, Command, ListTarget};

/// The error that a failed command returns. Its message names the operation that failed, the
/// container, and what the user can do. `main` prints this message and the messages of all causes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Config(#[from] FileError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("container {id}")]
    Container {
        id: String,
        #[source]
        error: Box<CommandError>,
    },
    #[error("cannot drop capabilities")]
    Confine(#[from] caps::errors::CapsError),
    #[error("cannot set a deadline")]
    Deadline(#[source] nix::errno::Errno),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Planner(Box<PlannerError>),
    #[error(
        "cannot enter the namespaces of the node's first process by {}; the pod needs `hostPID: \
         true` and the capabilities SYS_ADMIN, SYS_CHROOT and SYS_PTRACE",
        path.display()
    )]
    Node {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot receive the kernel's messages of devices")]
    Uevents(#[source] nix::errno::Errno),
    #[error("cannot read the log")]
    Log(#[source] io::Error),
    #[error(transparent)]
    Cdi(#[from] cdi::CdiError),
    #[error("a class and a path cannot be listed together: name one kind")]
    ClassAndPath,
    #[error("--watch lists classes: name the class of the device in place of its path")]
    WatchedPath,
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Live(#[from] ContainerChangeError),
    #[error("{reason}; {hint}")]
    NoContainer { reason: String, hint: String },
    /// The container of `boathook class test` could not be started.
    #[error("{0}")]
    TestContainer(String),
    /// No class has the variables that `boathook explain --env` names.
    #[error("{0}")]
    UnknownVariables(String),
    #[error("no class file {name}.toml on this host; {hint}")]
    UnknownClass { name: ClassName, hint: String },
    #[error("{} is not a recorded host: {reason}", path.display())]
    NotRecordedHost { path: PathBuf, reason: String },
    #[error("cannot read the golden file {}", path.display())]
    GoldenFile {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot write {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot write the output")]
    Output(#[from] io::Error),
    #[error("cannot serialize the output as JSON")]
    Json(#[from] serde_json::Error),
}

impl CommandError {
    fn from_container_lookup_error(unknown: containers::ContainerLookupError) -> Self {
        CommandError::NoContainer {
            reason: unknown.reason,
            hint: unknown.fix,
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            CommandError::Live(ContainerChangeError::Planner(error)) => error.exit_code(),
            CommandError::Live(ContainerChangeError::Bundle(_)) => ExitCode::Spec,
            CommandError::Live(
                ContainerChangeError::NotAttached(_) | ContainerChangeError::NoDevice(_),
            )
            | CommandError::UnknownVariables(_) => ExitCode::Request,
            CommandError::Live(_) => ExitCode::Injection,
            CommandError::Config(_) => ExitCode::Config,
            CommandError::Bundle(_) => ExitCode::Spec,
            CommandError::Start(error) => error.exit_code(),
            CommandError::Container { error, .. } => error.exit_code(),
            CommandError::Planner(error) => error.exit_code(),
            CommandError::Target(_)
            | CommandError::ClassAndPath
            | CommandError::WatchedPath
            | CommandError::UnknownClass { .. }
            | CommandError::NoContainer { .. }
            | CommandError::NotRecordedHost { .. } => ExitCode::Usage,
            CommandError::Cdi(_)
            | CommandError::File { .. }
            | CommandError::GoldenFile { .. }
            | CommandError::TestContainer(_)
            | CommandError::Confine(_)
            | CommandError::Deadline(_)
            | CommandError::Uevents(_)
            | CommandError::Node { .. }
            | CommandError::Log(_)
            | CommandError::Output(_)
            | CommandError::Json(_) => ExitCode::Failure,
        }
    }
}

impl From<PlannerError> for CommandError {
    fn from(error: PlannerError) -> Self {
        CommandError::Planner(Box::new(error))
    }
}

/// Runs the command that the command line names. If the command fails, logs its error and returns
/// the exit code of the error.
pub fn main() -> process::ExitCode {
    let cli = Cli::parse_arguments();
    match run(&cli) {
        Ok(code) => code.into(),
        // A program such as head(1) may close the pipe before this program has written all output.
        // That is not an error.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            ExitCode::Success.into()
        }
        Err(error) => {
            let (message, code) = (log::format_error_chain(&error), error.exit_code());
            log::error(&message);
            if cli.is_json {
                code.print_failure(&message);
            }
            code.into()
        }
    }
}

fn print_json(value: &impl Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(value)?;
    writeln!(io::stdout().lock(), "{}", printable::escape_json(&text))?;
    Ok(())
}

fn run(cli: &Cli) -> Result<ExitCode, CommandError> {
    match &cli.command {
        Command::Prestart(arguments) | Command::CreateRuntime(arguments) => {
            start::run_hook(&arguments.to_start_options(cli)).map_err(CommandError::from)
        }
        Command::Explain {
            bundle,
            container,
            env,
        } => {
            let config = load_config(cli)?;
            let directory = match (bundle, container) {
                (_, Some(container)) => Some(doctor::find_bundle(container, &config)?),
                (bundle, None) => bundle.clone(),
            };
            let Some(directory) = directory else {
                let bundle = Bundle::from_variables(Path::new("/"), env)?;
                let unknown_variables = unknown_variable::describe_unknown_variables(env, &config)?;
                if let Some(text) = unknown_variables {
                    return Err(CommandError::UnknownVariables(text));
                }
                explain::print_plan(&bundle, cli, &config)?;
                return Ok(ExitCode::Success);
            };
            explain::explain_bundle(&directory, cli, &config)
        }
        Command::Attach(arguments) => attach::attach(arguments, cli.is_json, &load_config(cli)?),
        Command::Detach(arguments) => attach::detach(arguments, cli.is_json, &load_config(cli)?),
        Command::Refresh(arguments) => attach::refresh(arguments, cli.is_json, &load_config(cli)?),
        Command::Follow {
            retry_seconds,
            should_enter_node_namespaces,
        } => {
            if *should_enter_node_namespaces {
                follow::enter_node_namespaces()?;
            }
            follow::run(*retry_seconds, &load_config(cli)?)
        }
        Command::List {
            targets,
            include_all_classes,
            only_held_devices,
            should_watch,
            state_root,
        } => {
            let config = load_config(cli)?;
            let (mut class_names, mut paths) = (Vec::new(), Vec::new());
            for target in targets {
                match target {
                    ListTarget::Class(class) => class_names.push(class.clone()),
                    ListTarget::Path(path) => paths.push(path.clone()),
                }
            }
            if !paths.is_empty() && !class_names.is_empty() {
                return Err(CommandError::ClassAndPath);
            }
            if !paths.is_empty() && *should_watch {
                return Err(CommandError::WatchedPath);
            }
            if !paths.is_empty() {
                return list_path::run(&paths, cli.is_json, &config);
            }
            let options = ListOptions {
                class_names: &class_names,
                include_all_classes: *include_all_classes,
                only_held_devices: *only_held_devices,
                include_empty_classes: cli.is_verbose,
                as_json: cli.is_json,
            };
            if *should_watch {
                return list::watch(&options, &config);
            }
            let holders = if *only_held_devices {
                Some(Holders::inspect_running_containers(
                    state_root.clone(),
                    &config,
                ))
            } else {
                Holders::read(&config)
            };
            list::run(&options, holders.as_ref(), &config)
        }
        Command::Doctor {
            selector,
            state_root,
        } => doctor::run(
            selector,
            state_root.clone(),
            cli.is_json,
            cli.is_verbose,
            &load_config(cli)?,
        ),
        Command::Cdi { command } => cdi::run(
            command,
            cli.is_json,
            &load_config(cli)?,
            cli.config_path.as_deref(),
        ),
        Command::Class { command } => class::run(
            command,
            cli.is_json,
            &load_config(cli)?,
            cli.config_path.as_deref(),
        ),
        Command::Check {
            classes,
            state_root,
        } => check::run(classes, state_root.clone(), cli.is_json, &load_config(cli)?),
        Command::Facts { classes } => facts::run(classes, cli.is_json, &load_config(cli)?),
        Command::Containers => print_containers(cli.is_json, &load_config(cli)?),
        Command::Log(arguments) => node_log::run(arguments, cli.is_json, &load_config(cli)?),
    }
}

/// Returns the path of the configuration file that is read without `--config`:
/// /etc/boathook/config.toml, or that of the installation if this file does not exist.
fn find_default_config_path() -> PathBuf {
    let default_path = Path::new(DEFAULT_PATH);
    if default_path.exists() {
        return default_path.to_owned();
    }
    let directories = InstalledDirectories::find(Path::new("/"));
    directories.unwrap_or_default().config_path()
}

/// Initializes the log for a command of a user, and reads the configuration. The hook does not use
/// this function, because an engine, and not a user, reads the hook's messages.
fn load_config(cli: &Cli) -> Result<Config, CommandError> {
    log::init(LogRecipient::User, None, cli.log_level());
    let config = installation::load_configuration(cli.config_path.as_deref())?;
    log::info(|| {
        let directories: Vec<String> = config
            .classes
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let config_path = cli
            .config_path
            .clone()
            .unwrap_or_else(find_default_config_path);
        format!(
            "configuration {}; classes in {}; host root {}",
            if config_path.exists() {
                config_path.display().to_string()
            } else {
                "built in".to_owned()
            },
            directories.join(", "),
            config.host_root.display()
        )
    });
    Ok(config)
}

/// Prints the names of the running containers. Shell completions use the output.
fn print_containers(as_json: bool, config: &Config) -> Result<ExitCode, CommandError> {
    let names = containers::list_running_container_names(&config.host_root);
    if as_json {
        print_json(&serde_json::json!({ "containers": names }))?;
    } else {
        let mut out = io::stdout().lock();
        for name in names {
            writeln!(out, "{}", printable::escape_line(&name))?;
        }
    }
    Ok(ExitCode::Success)
}

/// Checks that this host has a class file for each name in `requested_names`. The error for an
/// unknown name suggests the most similar class name.
fn check_class_names<'a>(
    requested_names: &[ClassName],
    sources: impl Iterator<Item = &'a ClassSource> + Clone,
) -> Result<(), CommandError> {
    let known_names = || sources.clone().map(|source| source.name.as_str());
    let is_unknown = |name: &&ClassName| !known_names().any(|class| class == name.as_str());
    let Some(unknown_name) = requested_names.iter().find(is_unknown) else {
        return Ok(());
    };
    Err(CommandError::UnknownClass {
        hint: match similar::find_most_similar(unknown_name.as_str(), known_names()) {
            Some(similar_name) => format!("did you mean {similar_name}?"),
            None => "`boathook list` shows all classes".to_owned(),
        },
        name: unknown_name.clone(),
    })
}

/// Returns the sources of the classes `class_names`. If there are no names, returns those of all
/// classes. Class files that cannot be read are also returned, because one could belong to a named
/// class.
fn select_sources(
    class_names: &[ClassName],
    mut sources: Vec<Result<ClassSource, FileError>>,
) -> Result<Vec<Result<ClassSource, FileError>>, CommandError> {
    check_class_names(class_names, sources.iter().flatten())?;
    let is_selected =
        |source: &ClassSource| class_names.is_empty() || class_names.contains(&source.name);
    sources.retain(|source| source.as_ref().map_or(true, is_selected));
    Ok(sources)
}
