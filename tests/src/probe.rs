//! The probe: a static program that runs in a container and reports as JSON what the container has.
//! Tests only judge what this program could see and do, and read nothing from outside.

mod answer;
mod questions;
mod report;

pub use answer::answer;
pub use questions::{NewNode, Questions};
pub use report::{Access, Kind, NodeAttempt, PathReport, Report};

/// The path of the probe in every root file system of [`crate::rootfs`].
pub const PATH: &str = "/bin/probe";

/// The argument by which the probe sleeps until it is killed, so that a container runs while other
/// processes examine it.
pub const PAUSE: &str = "--pause";
