//! `boathook`: the hook, and the commands that explain it.

use std::process::ExitCode;

use clap::Parser;
use hook::cli::Cli;
use hook::{command, log};

fn main() -> ExitCode {
    match command::run(&Cli::parse()) {
        Ok(code) => code.into(),
        Err(error) => {
            log::error(&log::chain(&error));
            error.exit_code().into()
        }
    }
}
