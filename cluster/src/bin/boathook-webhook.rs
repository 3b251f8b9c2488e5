//! The program `boathook-webhook`: a mutating webhook. Its code is in the library `cluster`.

use std::process::ExitCode;

use cluster::webhook::program::Cli;

fn main() -> ExitCode {
    daemon::process::run_program("boathook-webhook", Cli::run)
}
