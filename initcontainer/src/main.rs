//! `boathook-init`: installs the hook on a host, reports on it and removes it.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use initcontainer::cli::Cli;
use serde_json::json;

mod command;
mod output;
mod restart;

/// The exit code of a failure, as `--help` lists it.
const FAILURE: u8 = 1;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| wrong_command_line(&error));
    let json = cli.json;
    match command::run(cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILURE),
        Err(error) => {
            let message = format!("{error:#}");
            let _ = writeln!(std::io::stderr(), "boathook-init: {message}");
            if json {
                print_json_error(&message, "failure", FAILURE.into());
            }
            ExitCode::from(FAILURE)
        }
    }
}

/// Ends the process: the command line is wrong, or asks for help.
fn wrong_command_line(error: &clap::Error) -> ! {
    // What was understood before the error is not known.
    if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
        let text = error.to_string();
        // Without the hints that follow.
        let message = text.split("\n\n").next().unwrap_or_default();
        let words = message.trim_start_matches("error: ").split_whitespace();
        let message: Vec<&str> = words.collect();
        print_json_error(&message.join(" "), "usage", error.exit_code());
    }
    error.exit()
}

/// Prints a failure whose message is on stderr, in the form of the other programs.
fn print_json_error(message: &str, kind: &str, code: i32) {
    let error = json!({ "message": message, "kind": kind, "exit_code": code });
    let _ = writeln!(std::io::stdout(), "{:#}", json!({ "error": error }));
}
