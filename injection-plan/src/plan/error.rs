//! The reasons why no injection plan can be made.

use std::path::PathBuf;

use device_class::class::PathTemplateError;

use crate::request::RefusedRequest;

/// The reason why no injection plan can be made. The container must then not start.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    #[error("{owner}: {problem}")]
    Unusable {
        /// The label of the device or class that needs the missing or unusable file.
        owner: String,
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
    #[error("{owner} cannot be at {} in the container: {reason}; choose another path", path.display())]
    OccupiedPath {
        owner: String,
        path: PathBuf,
        /// The node or mount that config.json has at this path, as text for the message.
        reason: String,
    },
    #[error("no unassigned device of {class} matches {variable}={selector}")]
    NoMatchingDevice {
        variable: String,
        selector: String,
        class: String,
    },
    #[error("{owner}")]
    Template {
        owner: String,
        #[source]
        error: PathTemplateError,
    },
}
