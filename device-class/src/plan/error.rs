//! Why there is no plan.

use std::path::PathBuf;

use oci_spec::OciSpecError;

use crate::class::PathTemplateError;
use crate::request::RefusedRequest;

/// Why there is no plan: the container must not start.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A request that can't be met.
    #[error(transparent)]
    Request(#[from] RefusedRequest),
    /// Something that the class promises is not there.
    #[error("{whose}: {problem}")]
    Unfit {
        /// The device or class that lacks it.
        whose: String,
        /// What is wrong.
        problem: String,
    },
    /// Two things want to be in one place of the container.
    #[error("{} is to be both {first} and {second}; mend the class that says so", path.display())]
    Conflict {
        /// The place.
        path: PathBuf,
        /// What was there first.
        first: String,
        /// What came second.
        second: String,
    },
    /// What is wanted of a device that the container does not have.
    #[error("{env}={select}: the container has no further device of {class} like this")]
    NoPartner {
        /// The variable.
        env: String,
        /// Its value.
        select: String,
        /// The class.
        class: String,
    },
    /// A class's template can't be filled in for a device.
    #[error("{whose}: {error}")]
    Template {
        /// The device.
        whose: String,
        /// What is wrong.
        error: PathTemplateError,
    },
    /// A value that the OCI types refuse.
    #[error(transparent)]
    Oci(#[from] OciSpecError),
}
