//! Code that the command lines of several programs share: error reports, output, and options for
//! the log and for the node. The plugin, the DRA driver, the installer, the scheduler and the
//! webhook use this crate. The hook must not use it: the hook is started for each container and
//! must be small.

mod address;
mod failure;
#[cfg(feature = "log")]
mod log;
mod node;
mod output;

pub use address::parse_listen_address;
pub use failure::{FAILURE_EXIT_CODE, parse_command_line, print_warning, report_failure};
#[cfg(feature = "log")]
pub use log::LogOptions;
pub use node::{ChrootProgram, NodeOptions, parse_absolute_path, parse_seconds};
pub use output::{print_json, print_lines};
