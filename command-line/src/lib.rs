//! The parts of a command line that several programs have in common: failures, output, and the
//! options of the log and of nodes. The plugin, the DRA driver, the installer, the scheduler and
//! the webhook use them. The hook must not, because it is started for each container and must be
//! small.

#![forbid(unsafe_code)]

mod address;
mod failure;
#[cfg(feature = "log")]
mod log;
mod node;
mod output;

pub use address::parse_listen_address;
pub use failure::{FAILURE, parse, report, warn};
#[cfg(feature = "log")]
pub use log::LogOptions;
pub use node::{NodeOptions, ProgramInRoot, parse_absolute_path, seconds};
pub use output::{print, print_json};
