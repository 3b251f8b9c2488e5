//! The program `boathook-dra`. It parses the command line, calls the crate `dra`, and reports an
//! error as a message and an exit code.

use std::process::ExitCode;

use anyhow::Context;
use daemon::command_line;
use daemon::command_line::{FAILURE_EXIT_CODE, print_lines};
use daemon::host_inventory::host_program;
use dra::cli::{Cli, Command, RunOptions};
use dra::device_class;

fn main() -> ExitCode {
    let cli: Cli = command_line::parse_command_line();
    let result = match cli.command {
        Command::Run(options) => run(options),
        Command::DeviceClass {
            classes,
            config,
            host_root,
        } => device_class::build_manifests(&classes, config.as_deref(), &host_root)
            .and_then(|text| Ok(print_lines(&text)?)),
        Command::ExecInRoot(program) => {
            let error = host_program::enter_root_and_exec(
                &program.root,
                &program.program,
                &program.arguments,
            );
            let message = format!("cannot run {}: {error}", program.program.display());
            command_line::print_warning("boathook-dra", &message);
            return ExitCode::from(host_program::NOT_EXECUTED_STATUS);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            command_line::report_failure("boathook-dra", &format!("{error:#}"), false);
            ExitCode::from(FAILURE_EXIT_CODE)
        }
    }
}

fn run(options: Box<RunOptions>) -> anyhow::Result<()> {
    options.log.start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let result = runtime.block_on(dra::run(*options));
    // A device scan on another thread may hang in a driver, so the process waits at most 50 ms for
    // such threads.
    runtime.shutdown_timeout(std::time::Duration::from_millis(50));
    result
}
