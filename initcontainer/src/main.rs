//! `boathook-init`: installs the hook on a host, reports on it and removes it.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use initcontainer::cli::{Cli, Command};

mod command;
mod restart;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = matches!(cli.command, Command::Status { json: true });
    match command::run(cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let message = format!("{error:#}");
            let _ = writeln!(std::io::stderr(), "boathook-init: {message}");
            if json {
                let error = serde_json::json!({ "error": { "message": message } });
                let _ = writeln!(std::io::stdout(), "{error:#}");
            }
            ExitCode::FAILURE
        }
    }
}
