//! The common parts of the command lines of all programs except the hook. The hook has its
//! own, because it is started for each container and must be small.

#![forbid(unsafe_code)]

mod address;
mod failure;
#[cfg(feature = "log")]
mod log;
mod node;
mod output;

pub use address::listen_address;
pub use failure::{FAILURE, parse, report, warn};
#[cfg(feature = "log")]
pub use log::LogOptions;
pub use node::{NodeOptions, ProgramInRoot, absolute_path, seconds};
pub use output::{print, print_json};
