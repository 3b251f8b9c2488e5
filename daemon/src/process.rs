//! Starts and ends a program: its command line, its exit code and its asynchronous runtime.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use crate::command_line::{FAILURE_EXIT_CODE, parse_command_line, report_failure};

/// The time that [`block_on`] waits, at the end, for blocking work on other threads.
const BLOCKING_WORK_TIMEOUT: Duration = Duration::from_millis(50);

/// Parses the command line of this process and calls `run` with the result. If `run` fails, prints
/// the error on stderr with the program's name.
pub fn run_program<C: Parser>(
    name: &str,
    run: impl FnOnce(C) -> anyhow::Result<ExitCode>,
) -> ExitCode {
    run(parse_command_line()).unwrap_or_else(|error| report_error(name, &error, false))
}

/// Prints the error that ends a program on stderr. Returns the program's exit code. With `as_json`,
/// also prints the error as JSON on stdout.
pub fn report_error(name: &str, error: &anyhow::Error, as_json: bool) -> ExitCode {
    report_failure(name, &format!("{error:#}"), as_json);
    ExitCode::from(FAILURE_EXIT_CODE)
}

/// Runs a future to completion on this thread. Only blocking work, such as a device scan, gets
/// threads of its own. Such work may hang in a driver, so this function does not wait for its end.
pub fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(BLOCKING_WORK_TIMEOUT);
    result
}
