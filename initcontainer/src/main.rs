//! `boathook-init`: installs the hook on a host, reports on it and removes it.

use std::process::ExitCode;

use daemon::command_line;
use daemon::command_line::FAILURE_EXIT_CODE;
use initcontainer::cli::Cli;

mod command;
mod output;
mod restart;
mod running_services;
mod selinux;

fn main() -> ExitCode {
    let cli: Cli = command_line::parse_command_line();
    let json = cli.json;
    match command::run(cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FAILURE_EXIT_CODE),
        Err(error) => {
            command_line::report_failure("boathook-init", &format!("{error:#}"), json);
            ExitCode::from(FAILURE_EXIT_CODE)
        }
    }
}
