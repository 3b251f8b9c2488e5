//! The program `boathook-dra`. It parses the command line, calls the crate `dra`, and reports an
//! error as a message and an exit code.

use std::process::ExitCode;

use daemon::command_line::print_lines;
use daemon::host_inventory::host_program;
use daemon::process::{block_on, run_program};
use dra::cli::{Cli, Command};
use dra::device_class;

const NAME: &str = "boathook-dra";

fn main() -> ExitCode {
    run_program(NAME, run)
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Run(options) => {
            options.log.start();
            block_on(dra::run(*options))?;
        }
        Command::DeviceClass {
            classes,
            config,
            host_root,
        } => {
            let manifests = device_class::build_manifests(&classes, config.as_deref(), &host_root)?;
            print_lines(&manifests)?;
        }
        Command::ExecInRoot(program) => return Ok(host_program::exec_in_root(NAME, &program)),
    }
    Ok(ExitCode::SUCCESS)
}
