//! `boathook-webhook`: see the crate `cluster`.

use std::process::ExitCode;

use cluster::webhook::program::Cli;

fn main() -> ExitCode {
    cluster::process::main("boathook-webhook", Cli::run)
}
