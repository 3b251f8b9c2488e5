//! Parses the command line of an OCI runtime, to find the bundle of a new container, the resources
//! of an update, and the log for errors.
//!
//! runc parses options as Go's package flag does: `-keep` means `--keep`, and a word after one dash
//! is never a group of letters. crun (argp) and youki (clap) accept `-bPATH` and groups of letters
//! after one dash. This module reads a word after one dash as a long option if the option is known.
//! Otherwise the word is read as a group of letters. It validates nothing, because the real runtime
//! rejects unknown arguments itself.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

use device_class::name::excerpt;

use super::runtime_log::RuntimeLog;

/// The parts of an OCI runtime's command line that `boathook-runtime` needs. The engine wrote the
/// command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The log file that the engine reads to find errors of the runtime.
    pub(super) log: Option<RuntimeLog>,
    pub(super) action: RuntimeCommand,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum RuntimeCommand {
    Create(NewContainer),
    Update(UpdateCommand),
    Other,
}

/// An `update` command that reads a container's new resources from a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UpdateCommand {
    /// The number of arguments before the subcommand `update`: 2 for `--root DIR update`.
    pub(super) global_argument_count: usize,
    pub(super) id: OsString,
    /// The path of the file that contains the new resources, or `-` for stdin.
    pub(super) resources_path: PathBuf,
    /// The index of the argument that ends with `resources_path`. This argument is the path alone,
    /// or an option with its value such as `--resources=PATH`.
    pub(super) resources_argument_index: usize,
}

/// The container that a `create` or `run` command creates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewContainer {
    pub(super) bundle: PathBuf,
    /// The file name of the configuration in the bundle. It is config.json, unless an option of
    /// crun sets another name.
    pub(super) config_file_name: PathBuf,
    pub(super) id: String,
}

/// The options that OCI runtimes accept at one place of the command line: before the subcommand, or
/// after a certain subcommand.
struct AcceptedOptions {
    /// The long names of the options that have a value, separated by blanks.
    value_option_names: &'static str,
    /// The short options that have a value. Each item contains the letter and the option's long
    /// name.
    short_value_options: &'static [(u8, &'static str)],
    /// The long names of the options that have no value, separated by blanks.
    flag_names: &'static str,
}

/// The options that runc 1.5, crun 1.29 and youki 0.7 accept before the subcommand.
const GLOBAL_OPTIONS: AcceptedOptions = AcceptedOptions {
    value_option_names: "cgroup-manager criu log log-format log-level root rootless",
    short_value_options: &[(b'l', "log"), (b'r', "root")],
    flag_names: "debug help systemd-cgroup version",
};

/// The options that runc, crun and youki accept after `create` and `run`.
const CREATE_OPTIONS: AcceptedOptions = AcceptedOptions {
    value_option_names: "bundle config console-socket pid-file pidfd-socket preserve-fds",
    short_value_options: &[
        (b'b', "bundle"),
        (b'c', "console-socket"),
        (b'f', "config"),
        (b'p', "pid-file"),
    ],
    flag_names: "detach help keep no-new-keyring no-pivot no-subreaper",
};

/// The options that runc, crun and youki accept after `update`.
const UPDATE_OPTIONS: AcceptedOptions = AcceptedOptions {
    value_option_names: "\
        blkio-weight cpu-burst cpu-idle cpu-period cpu-quota cpu-rt-period \
        cpu-rt-runtime cpu-share cpuset-cpus cpuset-mems kernel-memory kernel-memory-tcp \
        l3-cache-schema mem-bw-schema memory memory-reservation memory-swap pids-limit \
        resources",
    short_value_options: &[(b'r', "resources")],
    flag_names: "help",
};

impl CommandLine {
    /// Parses the arguments of the process. They do not include the program name.
    pub(super) fn parse(arguments: &[OsString]) -> Self {
        let mut parsed_arguments = ParsedArguments::new(arguments, &GLOBAL_OPTIONS);
        let mut log_path = None;
        let mut is_json = false;
        let mut subcommand = None;
        for parsed_argument in parsed_arguments.by_ref() {
            match parsed_argument {
                ParsedArgument::Option("log", Some(value)) => log_path = Some(value),
                ParsedArgument::Option("log-format", Some(value)) => is_json = value == "json",
                ParsedArgument::Option("help", _) => break,
                ParsedArgument::Option(..) => {}
                ParsedArgument::Operand(operand) => {
                    subcommand = Some(operand);
                    break;
                }
            }
        }
        let parsed_argument_count = arguments.len() - parsed_arguments.arguments.len();
        let action = match subcommand.and_then(OsStr::to_str) {
            Some("create" | "run") => {
                parse_container(parsed_arguments.with_options(&CREATE_OPTIONS))
                    .map(RuntimeCommand::Create)
            }
            Some("update") => {
                let global_argument_count = parsed_argument_count - 1;
                parse_update(
                    arguments,
                    global_argument_count,
                    parsed_arguments.with_options(&UPDATE_OPTIONS),
                )
                .map(RuntimeCommand::Update)
            }
            _ => None,
        };
        CommandLine {
            log: log_path.map(|path| RuntimeLog {
                path: path.into(),
                is_json,
            }),
            action: action.unwrap_or(RuntimeCommand::Other),
        }
    }
}

/// Parses the arguments after `update`. Returns `None` if the command line requests help or names
/// no file with resources.
fn parse_update(
    arguments: &[OsString],
    global_argument_count: usize,
    parsed_arguments: ParsedArguments<'_>,
) -> Option<UpdateCommand> {
    let mut id = None;
    let mut resources_path = None;
    for parsed_argument in parsed_arguments {
        match parsed_argument {
            ParsedArgument::Option("resources", value) => resources_path = value,
            ParsedArgument::Option("help", _) => return None,
            ParsedArgument::Operand(operand) => id = id.or(Some(operand)),
            ParsedArgument::Option(..) => {}
        }
    }
    let resources_path = resources_path?;
    // `resources_path` borrows the end of an argument such as `--resources=PATH`. So the argument
    // is the one that ends at the same memory address.
    let value_end = resources_path.as_bytes().as_ptr_range().end;
    let resources_argument_index = arguments
        .iter()
        .position(|argument| argument.as_bytes().as_ptr_range().end == value_end)?;
    Some(UpdateCommand {
        global_argument_count,
        id: id?.into(),
        resources_path: resources_path.into(),
        resources_argument_index,
    })
}

/// Parses the arguments after `create` or `run`. Returns `None` if the command line requests help.
fn parse_container(parsed_arguments: ParsedArguments<'_>) -> Option<NewContainer> {
    let mut container = NewContainer {
        bundle: ".".into(),
        config_file_name: "config.json".into(),
        id: String::new(),
    };
    for parsed_argument in parsed_arguments {
        match parsed_argument {
            ParsedArgument::Option("bundle", Some(value)) => container.bundle = value.into(),
            ParsedArgument::Option("config", Some(value)) => {
                container.config_file_name = value.into()
            }
            ParsedArgument::Option("help", _) => return None,
            ParsedArgument::Operand(id) if container.id.is_empty() => {
                container.id = excerpt(&id.to_string_lossy());
            }
            ParsedArgument::Option(..) | ParsedArgument::Operand(_) => {}
        }
    }
    Some(container)
}

enum ParsedArgument<'a> {
    /// An option: its long name, and its value if it has one.
    Option(&'a str, Option<&'a OsStr>),
    /// An argument that is not an option, such as the container's id.
    Operand(&'a OsStr),
}

/// An iterator that splits a command line into options and operands.
struct ParsedArguments<'a> {
    arguments: slice::Iter<'a, OsString>,
    options: &'static AcceptedOptions,
    /// True after the argument `--`. All arguments after it are operands.
    only_operands_follow: bool,
}

impl<'a> ParsedArguments<'a> {
    fn new(arguments: &'a [OsString], options: &'static AcceptedOptions) -> Self {
        ParsedArguments {
            arguments: arguments.iter(),
            options,
            only_operands_follow: false,
        }
    }

    /// Returns an iterator over the remaining arguments, which follow the subcommand. `options` are
    /// the options of this subcommand.
    fn with_options(self, options: &'static AcceptedOptions) -> Self {
        ParsedArguments {
            options,
            only_operands_follow: false,
            ..self
        }
    }

    fn parse_long_option(&mut self, option_text: &'a [u8]) -> ParsedArgument<'a> {
        let (name, value) = split_option_value(option_text);
        let name = str::from_utf8(name).unwrap_or_default();
        match value {
            None if is_listed_name(self.options.value_option_names, name) => {
                ParsedArgument::Option(name, self.next_argument())
            }
            value => ParsedArgument::Option(name, value),
        }
    }

    /// Parses short options: one or more letters after a dash. Each letter is a flag, until a
    /// letter of an option with a value. The value is the rest of the argument, or the next
    /// argument if there is no rest.
    fn parse_short_options(&mut self, letters: &'a [u8]) -> ParsedArgument<'a> {
        let short_value_options = self.options.short_value_options;
        for (index, letter) in letters.iter().enumerate() {
            if matches!(letter, b'h' | b'?') {
                return ParsedArgument::Option("help", None);
            }
            let Some((_, name)) = short_value_options
                .iter()
                .find(|(option_letter, _)| option_letter == letter)
            else {
                continue;
            };
            return match &letters[index + 1..] {
                [] => ParsedArgument::Option(name, self.next_argument()),
                [b'=', value @ ..] | value => {
                    ParsedArgument::Option(name, Some(OsStr::from_bytes(value)))
                }
            };
        }
        ParsedArgument::Option("", None)
    }

    fn next_argument(&mut self) -> Option<&'a OsStr> {
        self.arguments.next().map(OsString::as_os_str)
    }
}

impl<'a> Iterator for ParsedArguments<'a> {
    type Item = ParsedArgument<'a>;

    fn next(&mut self) -> Option<ParsedArgument<'a>> {
        let mut argument = self.next_argument()?;
        if !self.only_operands_follow && argument == "--" {
            self.only_operands_follow = true;
            argument = self.next_argument()?;
        }
        if self.only_operands_follow {
            return Some(ParsedArgument::Operand(argument));
        }
        Some(match argument.as_bytes() {
            [b'-', b'-', option_text @ ..] => self.parse_long_option(option_text),
            [b'-', option_text @ ..] if !option_text.is_empty() => {
                let name = str::from_utf8(split_option_value(option_text).0).unwrap_or_default();
                if is_listed_name(self.options.value_option_names, name)
                    || is_listed_name(self.options.flag_names, name)
                {
                    self.parse_long_option(option_text)
                } else {
                    self.parse_short_options(option_text)
                }
            }
            _ => ParsedArgument::Operand(argument),
        })
    }
}

fn is_listed_name(listed_names: &str, name: &str) -> bool {
    listed_names
        .split_whitespace()
        .any(|listed_name| listed_name == name)
}

fn split_option_value(option_text: &[u8]) -> (&[u8], Option<&OsStr>) {
    match option_text.iter().position(|byte| *byte == b'=') {
        Some(index) => (
            &option_text[..index],
            Some(OsStr::from_bytes(&option_text[index + 1..])),
        ),
        None => (option_text, None),
    }
}

#[cfg(test)]
mod tests;
