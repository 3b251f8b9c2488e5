//! `boathook-webhook`: see the crate `cluster`.

use std::process::ExitCode;

use clap::Parser;
use cluster::webhook::program::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("boathook-webhook: {error:#}");
            ExitCode::FAILURE
        }
    }
}
