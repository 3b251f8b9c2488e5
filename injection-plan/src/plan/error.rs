//! Why there is no plan.

use std::path::PathBuf;

use device_class::class::PathTemplateError;

use crate::request::RefusedRequest;

/// Why there is no plan: the container must not start.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    #[error("{whose}: {problem}")]
    Unfit {
        /// The device or class that lacks it.
        whose: String,
        problem: String,
    },
    #[error("{} is claimed by both {first} and {second}; fix the class file", path.display())]
    Conflict {
        path: PathBuf,
        first: String,
        second: String,
    },
    #[error("no unassigned device of {class} matches {env}={select}")]
    NoPartner {
        env: String,
        select: String,
        class: String,
    },
    #[error("{whose}")]
    Template {
        whose: String,
        #[source]
        error: PathTemplateError,
    },
}
