//! Prints the error of a program that fails. It is printed as text on stderr and, with `--json`,
//! also as JSON on stdout.

use std::io::{self, Write};

use clap::Parser;
use host_files::printable;
use serde_json::json;

use crate::command_line::print_json;

/// The exit code of a program that fails for any reason except a wrong command line. The help of
/// each program lists the exit codes.
pub const FAILURE_EXIT_CODE: u8 = 1;

/// Parses the command line of this process. If the command line is wrong or asks for help, prints
/// the error or the help and ends the process.
pub fn parse_command_line<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|error| {
        // clap returns no options after an error. So this function searches the arguments for
        // `--json`.
        if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
            print_json_failure(&format_clap_error(&error), "usage", error.exit_code());
        }
        error.exit()
    })
}

/// Prints on stderr why the program failed. If `as_json` is set, also prints a JSON document with
/// the reason on stdout.
pub fn report_failure(program: &str, message: &str, as_json: bool) {
    print_warning(program, message);
    if as_json {
        print_json_failure(message, "failure", FAILURE_EXIT_CODE.into());
    }
}

/// Prints the name of the program and a message as one line on stderr. A write error is ignored.
pub fn print_warning(program: &str, message: &str) {
    let _ = writeln!(
        io::stderr(),
        "{program}: {}",
        printable::escape_line(message)
    );
}

/// Returns the message of a clap error as one line. The hints after the message are left out.
fn format_clap_error(error: &clap::Error) -> String {
    let text = error.to_string();
    let message = text.split("\n\n").next().unwrap_or_default();
    let words = message.trim_start_matches("error: ").split_whitespace();
    words.collect::<Vec<_>>().join(" ")
}

/// Prints an error as a JSON document on stdout. `boathook --json` prints errors in the same
/// format.
fn print_json_failure(message: &str, kind: &str, exit_code: i32) {
    let error = json!({ "message": message, "kind": kind, "exit_code": exit_code });
    let _ = print_json(&json!({ "error": error }));
}
