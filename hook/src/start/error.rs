//! Declares the errors that prevent the start of a container, and their exit codes.

use device_class::name::ClassName;
use device_class::strict_toml::FileError;

use crate::apply::ApplyError;
use crate::exit::ExitCode;
use crate::oci::{BundleError, StateError};
use crate::planner::PlannerError;

/// An error that prevents the start of a container. The message says what failed, for which
/// container, and what the user can do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Config(#[from] FileError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Planner(Box<PlannerError>),
    #[error(transparent)]
    Apply(Box<ApplyError>),
    #[error("container {id}")]
    Container {
        id: String,
        #[source]
        error: Box<StartError>,
    },
    #[error(
        "this hook was called with `--cdi {class}={device}`, but no hook in config.json has that; \
         let the engine add the hook by a CDI specification, as `boathook cdi generate` writes it"
    )]
    UnknownGrant { class: ClassName, device: String },
    #[error("cannot drop capabilities")]
    Confine(#[from] caps::errors::CapsError),
    #[error("cannot set a deadline")]
    Deadline(#[source] nix::errno::Errno),
}

impl StartError {
    /// Returns the exit code of the hook for this error. For [`StartError::Container`], it is that
    /// of the error inside.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            StartError::Config(_) => ExitCode::Config,
            StartError::State(_) | StartError::Bundle(_) | StartError::UnknownGrant { .. } => {
                ExitCode::Spec
            }
            StartError::Planner(error) => error.exit_code(),
            StartError::Apply(_) => ExitCode::Injection,
            StartError::Container { error, .. } => error.exit_code(),
            StartError::Confine(_) | StartError::Deadline(_) => ExitCode::Failure,
        }
    }
}

impl From<PlannerError> for StartError {
    fn from(error: PlannerError) -> Self {
        StartError::Planner(Box::new(error))
    }
}

impl From<ApplyError> for StartError {
    fn from(error: ApplyError) -> Self {
        StartError::Apply(Box::new(error))
    }
}
