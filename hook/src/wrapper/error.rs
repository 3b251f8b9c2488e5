//! Declares the errors of `boathook-runtime`, and their exit codes.

use std::io;
use std::path::PathBuf;

use device_class::strict_toml::FileError;
use host_files::json_text;

use crate::exit::ExitCode;
use crate::oci::BundleError;
use crate::planner::PlannerError;

/// The reason why `boathook-runtime` ended without executing the real runtime. If the engine wanted
/// to create a container, the container does not start.
#[derive(Debug, thiserror::Error)]
pub enum WrapperError {
    #[error(transparent)]
    Config(#[from] FileError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Planner(Box<PlannerError>),
    #[error("the hook {} {problem}; set hook in the configuration's [runtime]", path.display())]
    Hook {
        path: PathBuf,
        problem: &'static str,
    },
    #[error("cannot edit {}", path.display())]
    Edit {
        path: PathBuf,
        #[source]
        error: json_text::JsonEditError,
    },
    #[error("cannot replace {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot read the resources of the update from {}", path.display())]
    Resources {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error(
        "no OCI runtime (runc, crun or youki) is in PATH or the usual directories; install one, or set path in the configuration's [runtime]"
    )]
    NoRuntime,
    #[error("the OCI runtime {} {problem}; set path in the configuration's [runtime] to runc, crun or youki", path.display())]
    Runtime { path: PathBuf, problem: String },
    #[error("the OCI runtime {} leads back to this program; set path in the configuration's [runtime] to runc, crun or youki", .0.display())]
    Recursion(PathBuf),
    #[error("cannot execute the OCI runtime {}", path.display())]
    Exec {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot set a handler of a signal")]
    Signal(#[source] nix::errno::Errno),
    #[error("container {id}")]
    Container {
        id: String,
        #[source]
        error: Box<WrapperError>,
    },
}

impl WrapperError {
    /// Adds the container's id to the error message, because a log has messages about many
    /// containers.
    pub(super) fn with_container(self, id: &str) -> Self {
        WrapperError::Container {
            id: id.to_owned(),
            error: Box::new(self),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
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
