//! The program `boathook-webhook`: a mutating webhook. The library `cluster` has its code.

use std::process::ExitCode;

use cluster::webhook::program::Cli;

fn main() -> ExitCode {
    cluster::process::run_program("boathook-webhook", Cli::run)
}
