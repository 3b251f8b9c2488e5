//! `boathook`: the hook, and the commands that explain it.

use std::process::ExitCode;

use clap::Parser;
use hook::cli::Cli;
use hook::command;

fn main() -> ExitCode {
    match command::run(&Cli::parse()) {
        Ok(code) => code.into(),
        Err(error) => {
            tracing::error!("{error}");
            error.exit_code().into()
        }
    }
}
