//! The reasons for which no injection plan can be made.

use std::path::PathBuf;

use device_class::class::PathTemplateError;

use crate::request::RefusedRequest;

/// The reason why no injection plan can be made. The container must not start.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    #[error("{user}: {problem}")]
    Unfit {
        /// The device or class that needs the missing part.
        user: String,
        problem: String,
    },
    #[error(
        "{} is claimed by both {first} and {second}; fix the class file, or the path in the request",
        path.display()
    )]
    Conflict {
        path: PathBuf,
        first: String,
        second: String,
    },
    #[error("{user} cannot be at {} in the container: {reason}; choose another path", path.display())]
    Occupied {
        user: String,
        path: PathBuf,
        /// A description of the node or mount that the container has there.
        reason: String,
    },
    #[error("no unassigned device of {class} matches {env}={select}")]
    NoPartner {
        env: String,
        select: String,
        class: String,
    },
    #[error("{user}")]
    Template {
        user: String,
        #[source]
        error: PathTemplateError,
    },
}
