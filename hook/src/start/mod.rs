//! `boathook-hook`: the program that container runtimes call at the start of each container.
//!
//! It is a program of its own, without the commands of `boathook`, because its file is mapped
//! and its pages are read at every container start. `boathook-runtime` is a third program and
//! not a second name of this one: the caller chooses the name by which a program is called
//! (the first argument of a hook, the path of a runtime), so the name cannot decide what the
//! program does.

mod command_line;
mod error;
mod inject;

use std::ffi::OsString;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::process;

use command_line::CommandLine;
use device_class::class::leave_out_unplanned_patterns;

use crate::exit::ExitCode;
use crate::installation;
use crate::log::{self, LogReader};
use crate::sys::deadline::{self, Deadline};

pub(crate) use command_line::{StartOptions, parse_level};
pub(crate) use error::StartError;

const HELP: &str = "\
The OCI hook of Boathook, which makes devices available in containers.

Container engines and OCI runtimes call this program at the start of each container, with the
container's state on stdin. Administrators do not call it: they use `boathook`. The manual page
is boathook-hook(1), and the documentation is in
";

const HELP_OPTIONS: &str = "

Usage: boathook-hook [OPTIONS] prestart|create-runtime

Stages of the OCI runtime specification:
  prestart        Run as the hook of the stage `prestart`
  create-runtime  Run as the hook of the stage `createRuntime`

Options:
      --config FILE       The configuration [default: /etc/boathook/config.toml, which may be
                          absent]
      --cdi CLASS=DEVICE  A device that a CDI specification grants; a container has one hook
                          for each
      --masked-path PATH  A path that boathook-runtime has taken out of maskedPaths in config.json,
                          and that this hook masks except for the files of the devices
      --log-level LEVEL   Which messages are reported on stderr and in the log: error, warning
                          or info [default: log_level in the configuration]
  -v, --verbose           Same as --log-level info
      --json              Print a failure as JSON: {\"error\": ...}
  -h, --help              Print this text
  -V, --version           Print the version
";

/// `boathook-hook`: gives the container whose state is on stdin what it requests, and reports
/// a failure.
pub fn main() -> process::ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match CommandLine::parse(&arguments) {
        Ok(CommandLine::Start(options)) => match start(&options) {
            Ok(code) => code.into(),
            Err(error) => report(error.exit_code(), &log::chain(&error), options.is_json),
        },
        Ok(CommandLine::Help) => print(&[HELP, env!("CARGO_PKG_REPOSITORY"), HELP_OPTIONS]),
        Ok(CommandLine::Version) => print(&["boathook-hook ", env!("CARGO_PKG_VERSION"), "\n"]),
        Err(error) => {
            // The engine may discard what a hook writes to stderr, so the log has it as well.
            log::start(LogReader::Engine, None, None);
            let message = format!("{error}; see `boathook-hook --help`");
            let is_json = arguments.iter().any(|argument| argument == "--json");
            report(ExitCode::Usage, &message, is_json)
        }
    }
}

/// Gives the container whose state is on stdin what it requests.
pub(crate) fn start(options: &StartOptions) -> Result<ExitCode, StartError> {
    let confined = crate::process::confine();
    leave_out_unplanned_patterns();
    let deadline = Deadline::start(options.deadline.map_or(deadline::SECONDS, NonZeroU32::get));
    // The deadline also limits the report of an error, which is written after this function.
    let mut deadline = deadline.map(ManuallyDrop::new);
    let mut config = installation::load_configuration(options.config.as_deref());
    if let Ok(config) = &mut config {
        config.classes.extend(options.also_classes.clone());
    }
    log::start(LogReader::Engine, config.as_ref().ok(), options.log_level);
    confined?;
    let deadline = deadline
        .as_mut()
        .map_err(|errno| StartError::Deadline(*errno))?;
    match config {
        Ok(config) => inject::run(&config, options, deadline),
        Err(error) => inject::handle_config_error(error, options),
    }
}

fn report(code: ExitCode, message: &str, is_json: bool) -> process::ExitCode {
    log::error(message);
    if is_json {
        code.print_failure(message);
    }
    code.into()
}

fn print(texts: &[&str]) -> process::ExitCode {
    // The reader of the output may have closed it.
    let _ = io::stdout().write_all(texts.concat().as_bytes());
    ExitCode::Success.into()
}
