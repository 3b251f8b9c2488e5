//! `boathook-scheduler`: see the crate `cluster`.

use std::process::ExitCode;

use cluster::scheduler::program::Cli;

fn main() -> ExitCode {
    cluster::process::main("boathook-scheduler", Cli::run)
}
