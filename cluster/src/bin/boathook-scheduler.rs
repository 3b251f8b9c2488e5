//! The program `boathook-scheduler`: a scheduler extender. Its code is in the library `cluster`.

use std::process::ExitCode;

use cluster::scheduler::program::Cli;

fn main() -> ExitCode {
    daemon::process::run_program("boathook-scheduler", Cli::run)
}
