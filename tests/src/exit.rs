//! Ends the harness's own programs.

use std::process::ExitCode;

use anyhow::Result;

/// Converts the result of a program into its exit code. An error is printed on one line that begins
/// with the program's name.
pub fn with(program: &str, result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
