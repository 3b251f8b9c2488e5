//! `boathook-hook`: the program that container runtimes call at the start of each container.
//!
//! The program is separate from `boathook` and small, because it is loaded into memory at every
//! container start. `boathook-runtime` is also a separate program. It is not a second name of this
//! one, because the caller chooses the name (`argv[0]`), and a program must not depend on it.

mod command_line;
mod error;
mod inject;

use std::ffi::OsString;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::num::NonZeroU32;
use std::process;

use command_line::CommandLine;
use device_class::class::disable_report_patterns;

use crate::exit::ExitCode;
use crate::installation;
use crate::log::{self, LogRecipient};
use crate::sys::deadline::{self, Deadline};

pub use command_line::{StartOptions, parse_log_level};
pub use error::StartError;

const HELP_INTRODUCTION: &str = "\
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

/// Runs `boathook-hook`: reads a container's state from stdin and injects the requested devices.
/// After an error, reports the error and returns an exit code other than 0, so that the runtime
/// does not start the container.
pub fn main() -> process::ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match CommandLine::parse(&arguments) {
        Ok(CommandLine::Start(options)) => match run_hook(&options) {
            Ok(code) => code.into(),
            Err(error) => report_failure(
                error.exit_code(),
                &log::format_error_chain(&error),
                options.is_json,
            ),
        },
        Ok(CommandLine::Help) => print_texts(&[
            HELP_INTRODUCTION,
            env!("CARGO_PKG_REPOSITORY"),
            HELP_OPTIONS,
        ]),
        Ok(CommandLine::Version) => {
            print_texts(&["boathook-hook ", env!("CARGO_PKG_VERSION"), "\n"])
        }
        Err(error) => {
            // The error is also logged, because the engine may discard the hook's stderr.
            log::init(LogRecipient::Engine, None, None);
            let message = format!("{error}; see `boathook-hook --help`");
            let is_json = arguments.iter().any(|argument| argument == "--json");
            report_failure(ExitCode::Usage, &message, is_json)
        }
    }
}

/// Injects the devices that a container requests. Drops privileges and starts the deadline before
/// it reads the container's state from stdin.
pub fn run_hook(options: &StartOptions) -> Result<ExitCode, StartError> {
    let confine_result = crate::process::drop_privileges();
    disable_report_patterns();
    let deadline = Deadline::start(
        options
            .deadline_seconds
            .map_or(deadline::DEADLINE_SECONDS, NonZeroU32::get),
    );
    // `ManuallyDrop` keeps the deadline when this function returns, because the deadline must still
    // apply while the caller reports an error.
    let mut deadline = deadline.map(ManuallyDrop::new);
    let mut config = installation::load_configuration(options.config_path.as_deref());
    if let Ok(config) = &mut config {
        config.classes.extend(options.additional_class_dir.clone());
    }
    log::init(
        LogRecipient::Engine,
        config.as_ref().ok(),
        options.log_level,
    );
    confine_result?;
    let deadline = deadline
        .as_mut()
        .map_err(|errno| StartError::Deadline(*errno))?;
    match config {
        Ok(config) => inject::inject_from_stdin(&config, options, deadline),
        Err(error) => inject::ignore_irrelevant_config_error(error, options),
    }
}

fn report_failure(code: ExitCode, message: &str, is_json: bool) -> process::ExitCode {
    log::error(message);
    if is_json {
        code.print_failure(message);
    }
    code.into()
}

fn print_texts(texts: &[&str]) -> process::ExitCode {
    // The error is ignored, because the reader of the text may have closed the pipe.
    let _ = io::stdout().write_all(texts.concat().as_bytes());
    ExitCode::Success.into()
}
