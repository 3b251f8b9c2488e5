//! The commands.

mod check;
mod class;
mod explain;
mod inject;
mod list;
mod table;

use std::io;
use std::path::PathBuf;

use device_class::config::Config;
use device_class::name::ClassName;
use device_class::starter::TargetError;
use device_class::strict_toml::FileError;

use crate::apply::ApplyError;
use crate::cli::{Cli, Command};
use crate::exit::ExitCode;
use crate::log::{self, Reader};
use crate::oci::{BundleError, StateError};
use crate::planner::PlannerError;
use crate::sys::deadline::{self, Deadline};

/// Why a command failed. The message says what, for which container and what
/// to do; it is printed once, with its causes, in `main`.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] FileError),
    /// The State on stdin can't be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The bundle can't be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The container can't have what it asks for.
    #[error(transparent)]
    Planner(Box<PlannerError>),
    /// The plan could not be carried out.
    #[error(transparent)]
    Apply(Box<ApplyError>),
    /// The container for which something failed.
    #[error("container {id}")]
    Container {
        /// Its id.
        id: String,
        /// What failed.
        #[source]
        error: Box<CommandError>,
    },
    /// The process could not give up its capabilities.
    #[error("cannot drop capabilities")]
    Confine(#[from] caps::errors::CapsError),
    /// The deadline could not be set.
    #[error("cannot set a deadline")]
    Deadline(#[source] nix::errno::Errno),
    /// The node's log could not be read.
    #[error("cannot read the log")]
    Log(#[source] io::Error),
    /// There is no class file for what was given.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A class that was named does not exist.
    #[error("no class file {0}.toml on this host; `boathook list` shows all classes")]
    UnknownClass(ClassName),
    /// A requested file could not be written.
    #[error("cannot write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The output could not be written.
    #[error("cannot write the output")]
    Output(#[from] io::Error),
    /// The output could not be made into JSON.
    #[error("cannot serialize the output as JSON")]
    Json(#[from] serde_json::Error),
}

impl CommandError {
    /// The exit code that tells this failure from others.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CommandError::Config(_) => ExitCode::Config,
            CommandError::State(_) | CommandError::Bundle(_) => ExitCode::Spec,
            CommandError::Planner(error) => error.exit_code(),
            CommandError::Apply(_) => ExitCode::Injection,
            CommandError::Container { error, .. } => error.exit_code(),
            CommandError::Target(_) | CommandError::UnknownClass(_) => ExitCode::Usage,
            CommandError::File { .. }
            | CommandError::Confine(_)
            | CommandError::Deadline(_)
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

impl From<ApplyError> for CommandError {
    fn from(error: ApplyError) -> Self {
        CommandError::Apply(Box::new(error))
    }
}

/// Runs a command.
///
/// # Errors
/// See [`CommandError`].
pub fn run(cli: &Cli) -> Result<ExitCode, CommandError> {
    let done = match &cli.command {
        Command::Prestart | Command::CreateRuntime => hook(cli),
        Command::Explain { bundle, json } => explain::run(bundle, *json, &config(cli)?),
        Command::List { classes, json } => list::run(classes, *json, &config(cli)?),
        Command::Class { command } => class::run(command, &config(cli)?),
        Command::Check => check::run(&config(cli)?),
        Command::Log => print_log(&config(cli)?),
    };
    match done {
        // The reader of the output has closed it.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ExitCode::Success)
        }
        done => done,
    }
}

fn hook(cli: &Cli) -> Result<ExitCode, CommandError> {
    let confined = crate::process::confine();
    let deadline = Deadline::start(cli.deadline.unwrap_or(deadline::SECONDS));
    let config = Config::load(cli.config.as_deref());
    log::start(Reader::Engine, config.as_ref().ok());
    confined?;
    let mut deadline = deadline.map_err(CommandError::Deadline)?;
    inject::run(&config?, &mut deadline)
}

/// The configuration for a command that is for users and changes nothing.
fn config(cli: &Cli) -> Result<Config, CommandError> {
    log::start(Reader::User, None);
    Ok(Config::load(cli.config.as_deref())?)
}

/// `boathook log`.
fn print_log(config: &Config) -> Result<ExitCode, CommandError> {
    log::print_node_log(&config.host_root, &mut io::stdout().lock()).map_err(CommandError::Log)?;
    Ok(ExitCode::Success)
}
