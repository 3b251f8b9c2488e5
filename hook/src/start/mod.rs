//! `boathook-hook`: the program that container runtimes call at the start of each container.
//!
//! It is a program of its own, without the commands of `boathook`, because its file is mapped
//! and its pages are read at every container start. `boathook-runtime` is a third program and
//! not a second name of this one: the caller chooses the name by which a program is called
//! (the first argument of a hook, the path of a runtime), so the name cannot decide what the
//! program does.

mod command_line;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process;

use command_line::CommandLine;

use crate::command;
use crate::exit::ExitCode;
use crate::log;

pub(crate) use command_line::StartOptions;

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
        Ok(CommandLine::Start(options)) => {
            command::report(command::start(&options), options.is_json)
        }
        Ok(CommandLine::Help) => print(&[HELP, env!("CARGO_PKG_REPOSITORY"), HELP_OPTIONS]),
        Ok(CommandLine::Version) => print(&["boathook-hook ", env!("CARGO_PKG_VERSION"), "\n"]),
        Err(error) => {
            let message = format!("{error}; see `boathook-hook --help`");
            log::error(&message);
            if arguments.iter().any(|argument| argument == "--json") {
                ExitCode::Usage.print_failure(&message);
            }
            ExitCode::Usage.into()
        }
    }
}

fn print(texts: &[&str]) -> process::ExitCode {
    // The reader of the output may have closed it.
    let _ = io::stdout().write_all(texts.concat().as_bytes());
    ExitCode::Success.into()
}
