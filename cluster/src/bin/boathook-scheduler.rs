//! `boathook-scheduler`: see the crate `cluster`.

use std::process::ExitCode;

use clap::Parser;
use cluster::scheduler::program::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("boathook-scheduler: {error:#}");
            ExitCode::FAILURE
        }
    }
}
