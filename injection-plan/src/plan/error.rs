//! Why there is no plan.

use std::path::PathBuf;

use device_class::class::PathTemplateError;

use crate::request::RefusedRequest;

/// Why there is no plan: the container must not start.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A request that cannot be met.
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    /// Something that the class requires is missing.
    #[error("{whose}: {problem}")]
    Unfit {
        /// The device or class that lacks it.
        whose: String,
        problem: String,
    },
    /// Two sources have the same path in the container.
    #[error("{} is claimed by both {first} and {second}; fix the class file", path.display())]
    Conflict {
        path: PathBuf,
        first: String,
        second: String,
    },
    /// No unassigned device of the container matches a pair of the request.
    #[error("no unassigned device of {class} matches {env}={select}")]
    NoPartner {
        env: String,
        select: String,
        class: String,
    },
    /// A template of the class cannot be filled in for a device.
    #[error("{whose}: {error}")]
    Template {
        whose: String,
        error: PathTemplateError,
    },
}
