//! Why the real runtime was not started.

use std::io;
use std::path::PathBuf;

use device_class::strict_toml::FileError;

use crate::exit::ExitCode;
use crate::oci::BundleError;
use crate::planner::PlannerError;

/// Why the real runtime was not started. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum WrapperError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] FileError),
    /// The bundle can't be used.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The container can't have what it asks for.
    #[error(transparent)]
    Planner(Box<PlannerError>),
    /// The hook can't be named in config.json.
    #[error("the hook {} {problem}; set hook in the configuration's [runtime]", path.display())]
    Hook {
        /// Where it should be.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is no place in config.json for what has to go there.
    #[error("cannot edit {}", path.display())]
    Edit {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        error: json_text::EditError,
    },
    /// config.json can't be replaced.
    #[error("cannot replace {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The resources of an update could not be read or handed on.
    #[error("cannot read the resources of the update from {}", path.display())]
    Resources {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// There is no runtime to hand the container to.
    #[error(
        "no OCI runtime (runc, crun or youki) is in PATH or the usual directories; install one, or set path in the configuration's [runtime]"
    )]
    NoRuntime,
    /// The configured runtime can't be run.
    #[error("the OCI runtime {} {problem}; set path in the configuration's [runtime] to runc, crun or youki", path.display())]
    Runtime {
        /// The runtime.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The real runtime leads back here.
    #[error("the OCI runtime {} leads back to this program; set path in the configuration's [runtime] to runc, crun or youki", .0.display())]
    Recursion(PathBuf),
    /// The real runtime does not start.
    #[error("cannot execute the OCI runtime {}", path.display())]
    Exec {
        /// The runtime.
        path: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The handlers of signals could not be set.
    #[error("cannot set a handler of a signal")]
    Signal(#[source] nix::errno::Errno),
    /// The container for which something failed.
    #[error("container {id}")]
    Container {
        /// Its id.
        id: String,
        /// What failed.
        #[source]
        error: Box<WrapperError>,
    },
}

impl WrapperError {
    /// The same error, with the container that it concerns.
    pub(super) fn of(self, id: &str) -> Self {
        WrapperError::Container {
            id: id.to_owned(),
            error: Box::new(self),
        }
    }

    /// The exit code that tells this failure from others.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            WrapperError::Config(_)
            | WrapperError::Hook { .. }
            | WrapperError::NoRuntime
            | WrapperError::Runtime { .. }
            | WrapperError::Recursion(_) => ExitCode::Config,
            WrapperError::Bundle(_) | WrapperError::Edit { .. } => ExitCode::Spec,
            WrapperError::Planner(error) => error.exit_code(),
            WrapperError::Write { .. }
            | WrapperError::Resources { .. }
            | WrapperError::Exec { .. }
            | WrapperError::Signal(_) => ExitCode::Failure,
            WrapperError::Container { error, .. } => error.exit_code(),
        }
    }
}

impl From<PlannerError> for WrapperError {
    fn from(error: PlannerError) -> Self {
        WrapperError::Planner(Box::new(error))
    }
}
