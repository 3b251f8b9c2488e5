//! The program `boathook-plugin`. It parses the command line, calls the crate `plugin`, and reports
//! an error as a message and an exit code.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use daemon::command_line;
use daemon::command_line::{FAILURE_EXIT_CODE, print_json, print_lines};
use daemon::host_inventory::host_program;
use daemon::process::{block_on, report_error};
use device_class::config::Config;
use plugin::Listing;
use plugin::cli::{Cli, Command, ListOptions, RunOptions};

const NAME: &str = "boathook-plugin";

fn main() -> ExitCode {
    let cli: Cli = command_line::parse_command_line();
    let reports_json = matches!(&cli.command, Some(Command::List(list)) if list.json);
    let result = match cli.command {
        None => run(cli.run),
        Some(Command::Run(options)) => run(*options),
        Some(Command::List(options)) => list(&options),
        Some(Command::CheckEngine { host_root, socket }) => {
            check_engine(&host_root, socket.as_deref())
        }
        Some(Command::Replace { pid, ready_timeout }) => {
            plugin::replace(pid, ready_timeout).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::OpenDevices {
            directory,
            interfaces,
        }) => open_devices(&directory, &interfaces),
        Some(Command::ExecInRoot(program)) => Ok(host_program::exec_in_root(NAME, &program)),
    };
    result.unwrap_or_else(|error| report_error(NAME, &error, reports_json))
}

fn list(options: &ListOptions) -> anyhow::Result<ExitCode> {
    let (config_path, host_root) = (options.config.as_deref(), options.host_root.as_deref());
    let mut config = Config::load_in_container(config_path, host_root).context("configuration")?;
    if let Some(host_root) = host_root {
        config = config.with_root_prefix(host_root);
    }
    let listing = Listing::scan(&config, &options.kubelet_dir, &options.classes)?;
    if options.json {
        print_json(&listing.to_json())?
    } else {
        print_lines(&listing.to_table())?
    }
    for warning in &listing.warnings {
        command_line::print_warning(NAME, warning);
    }
    for problem in &listing.problems {
        command_line::print_warning(NAME, &format!("left out: {problem}"));
    }
    Ok(ExitCode::from(u8::from(!listing.problems.is_empty())))
}

fn check_engine(host_root: &Path, socket: Option<&Path>) -> anyhow::Result<ExitCode> {
    let engines = block_on(plugin::check_engine(host_root, socket))?;
    print_lines(&format!(
        "CDI annotations work with {}\n",
        engines.join(", ")
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn open_devices(directory: &Path, interface_directory: &Path) -> anyhow::Result<ExitCode> {
    let devices = plugin::check_container_devices(directory, interface_directory)?;
    for name in &devices.interface_names {
        print_lines(&format!("interface {name} is there\n"))?;
    }
    let mut exit_code = ExitCode::SUCCESS;
    for device in devices.opened_devices {
        let path = device.path.display();
        match device.open_error {
            None => print_lines(&format!("{path} works\n"))?,
            Some(error) => {
                command_line::print_warning(NAME, &format!("cannot open {path}: {error}"));
                exit_code = ExitCode::from(FAILURE_EXIT_CODE);
            }
        }
    }
    Ok(exit_code)
}

fn run(options: RunOptions) -> anyhow::Result<ExitCode> {
    options.log.start();
    block_on(plugin::run(options))?;
    Ok(ExitCode::SUCCESS)
}
