//! The commands, each in its file.

mod check;
mod class;
mod explain;
mod inject;
mod list;
mod table;

use std::io;
use std::path::PathBuf;

use device_class::config::Config;
use device_class::starter::TargetError;
use device_class::strict_toml::FileError;

use crate::apply::ApplyError;
use crate::cli::{Cli, Command};
use crate::exit::ExitCode;
use crate::grant::GrantError;
use crate::oci::{BundleError, StateError};

/// Why a command failed. The message says what, for which container and what
/// to do; it is printed once, in `main`.
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
    Grant(Box<GrantError>),
    /// The plan could not be carried out.
    #[error(transparent)]
    Apply(Box<ApplyError>),
    /// The container for which something failed.
    #[error("container {id}: {error}")]
    Container {
        /// Its id.
        id: String,
        /// What failed.
        error: Box<CommandError>,
    },
    /// The process could not give up its capabilities.
    #[error("capabilities can't be given up: {0}")]
    Confine(#[from] caps::errors::CapsError),
    /// There is no class file for what was given.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A file that was asked for can't be written.
    #[error("{} can't be written: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What came of it.
        error: io::Error,
    },
    /// The output could not be written.
    #[error("the output can't be written: {0}")]
    Output(#[from] io::Error),
    /// The output could not be made into JSON.
    #[error("the output can't be made into JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl CommandError {
    /// The exit code that tells this failure from others.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            CommandError::Config(_) => ExitCode::Config,
            CommandError::State(_) | CommandError::Bundle(_) => ExitCode::Spec,
            CommandError::Grant(error) => error.exit_code(),
            CommandError::Apply(_) => ExitCode::Injection,
            CommandError::Container { error, .. } => error.exit_code(),
            CommandError::Target(_) => ExitCode::Usage,
            CommandError::File { .. }
            | CommandError::Confine(_)
            | CommandError::Output(_)
            | CommandError::Json(_) => ExitCode::Failure,
        }
    }
}

impl From<GrantError> for CommandError {
    fn from(error: GrantError) -> Self {
        CommandError::Grant(Box::new(error))
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
    let is_hook = matches!(cli.command, Command::Prestart | Command::CreateRuntime);
    if is_hook {
        crate::process::confine()?;
    }
    let config = match Config::load(cli.config.as_deref()) {
        Ok(config) => config,
        Err(error) => {
            crate::log::start(None);
            return Err(error.into());
        }
    };
    // The other commands are for people, who read stderr, and change nothing.
    let log_file = config.log_file.as_deref().filter(|_| is_hook);
    crate::log::start(log_file);
    let done = match &cli.command {
        Command::Prestart | Command::CreateRuntime => inject::run(&config),
        Command::Explain { bundle, json } => explain::run(bundle, *json, &config),
        Command::List { json } => list::run(*json, &config),
        Command::Class { command } => class::run(command, &config),
        Command::Check => check::run(&config),
    };
    match done {
        // Whoever read the output has read enough.
        Err(CommandError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(ExitCode::Success)
        }
        done => done,
    }
}
