//! The probe: a static program put into a container that reports, as JSON, what
//! it sees there. What a container can do is what this program could do in it;
//! nothing is read from outside.

mod answer;
mod questions;
mod report;

pub use answer::answer;
pub use questions::{NewNode, Questions};
pub use report::{Access, Kind, NodeAttempt, PathReport, Report};

/// The path of the probe in every root file system of [`crate::rootfs`].
pub const PATH: &str = "/bin/probe";

/// The probe's argument that makes it sleep until it is killed: something for a
/// container to run while other processes examine it.
pub const PAUSE: &str = "--pause";
