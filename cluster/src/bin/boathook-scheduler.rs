//! The program `boathook-scheduler`: a scheduler extender. The library `cluster` has its code.

use std::process::ExitCode;

use cluster::scheduler::program::Cli;

fn main() -> ExitCode {
    cluster::process::run_program("boathook-scheduler", Cli::run)
}
