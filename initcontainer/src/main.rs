//! `boathook-init`: installs the hook on a host, reports on it and removes it.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use initcontainer::cli::Cli;

mod command;
mod restart;

fn main() -> ExitCode {
    match command::run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "boathook-init: {error:#}");
            ExitCode::FAILURE
        }
    }
}
