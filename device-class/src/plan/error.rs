//! Why there is no plan.

use std::path::PathBuf;

use crate::class::PathTemplateError;
use crate::request::RefusedRequest;

/// Why there is no plan: the container must not start.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A request that cannot be met.
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    /// Something that the class promises is missing.
    #[error("{whose}: {problem}")]
    Unfit {
        /// The device or class that lacks it.
        whose: String,
        /// What is wrong.
        problem: String,
    },
    /// Two things claim one place in the container.
    #[error("{} is claimed by both {first} and {second}; fix the class file", path.display())]
    Conflict {
        /// The place.
        path: PathBuf,
        /// What was there first.
        first: String,
        /// What came second.
        second: String,
    },
    /// No device of the container is left for a pair of the request.
    #[error("no unassigned device of {class} matches {env}={select}")]
    NoPartner {
        /// The variable.
        env: String,
        /// Its value.
        select: String,
        /// The class.
        class: String,
    },
    /// A template of the class cannot be filled in for a device.
    #[error("{whose}: {error}")]
    Template {
        /// The device.
        whose: String,
        /// What is wrong.
        error: PathTemplateError,
    },
}
