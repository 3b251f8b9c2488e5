//! `boathook-scheduler`: see the crate `cluster`.

use std::process::ExitCode;

use cluster::scheduler::program::Cli;
use command_line::FAILURE;

fn main() -> ExitCode {
    let cli: Cli = command_line::parse();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command_line::report("boathook-scheduler", &format!("{error:#}"), false);
            ExitCode::from(FAILURE)
        }
    }
}
