//! Prints the failure of a program as text on stderr and, with `--json`, as JSON on stdout.

use std::io::{self, Write};

use clap::Parser;
use serde_json::json;

use crate::print_json;

/// The exit code of a program that fails, except for a wrong command line. `--help` of each program
/// lists it.
pub const FAILURE: u8 = 1;

/// Parses the command line of this process. If it is wrong or requests help, the function prints that
/// and ends the process.
pub fn parse<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|error| {
        // After an error clap does not return the options, so `--json` is searched in the arguments.
        if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
            print_failure(&format_clap_error(&error), "usage", error.exit_code());
        }
        error.exit()
    })
}

/// Prints the reason why the program fails on stderr. With `json`, also prints the reason as a JSON
/// document on stdout.
pub fn report(program: &str, message: &str, json: bool) {
    warn(program, message);
    if json {
        print_failure(message, "failure", FAILURE.into());
    }
}

/// Prints a line on stderr, after the name of the program. An error of printing is ignored.
pub fn warn(program: &str, message: &str) {
    let _ = writeln!(io::stderr(), "{program}: {}", printable::line(message));
}

/// Returns the message of a clap error in one line, without the hints that follow it.
fn format_clap_error(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or_default();
    let words = message.trim_start_matches("error: ").split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

/// Prints a failure as a JSON document on stdout. `boathook --json` has the same form.
fn print_failure(message: &str, kind: &str, code: i32) {
    let error = json!({ "message": message, "kind": kind, "exit_code": code });
    let _ = print_json(&json!({ "error": error }));
}
