//! Prints failures as text and as JSON.

use std::io::{self, Write};

use clap::Parser;
use serde_json::json;

use crate::print_json;

/// The exit code of a failure, as `--help` lists it.
pub const FAILURE: u8 = 1;

/// Parses the command line of this process. The process ends if the command line is wrong or
/// requests help.
pub fn parse<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|error| {
        // clap does not return the options that it parsed before the error.
        if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
            print_failure(&format_clap_error(&error), "usage", error.exit_code());
        }
        error.exit()
    })
}

/// Prints why the program fails. With `json`, also prints it as a JSON document on stdout.
pub fn report(program: &str, message: &str, json: bool) {
    warn(program, message);
    if json {
        print_failure(message, "failure", FAILURE.into());
    }
}

/// Prints a line on stderr.
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

/// Prints a failure in the form of `boathook --json`.
fn print_failure(message: &str, kind: &str, code: i32) {
    let error = json!({ "message": message, "kind": kind, "exit_code": code });
    let _ = print_json(&json!({ "error": error }));
}
