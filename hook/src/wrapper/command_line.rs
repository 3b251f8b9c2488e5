//! Parses the command line of an OCI runtime, to find the bundle of a new container, the resources
//! of an update, and the log for errors.
//!
//! runc parses options as Go's package flag does: `-keep` means `--keep`, and a word after one
//! dash is never a group of letters. crun (argp) and youki (clap) accept `-bPATH` and groups of
//! letters after one dash. Here a word after one dash counts as an option of runc if runc has an
//! option of this name, and otherwise as a group of letters. Nothing is validated, because the
//! real runtime gets every argument unchanged and rejects unknown arguments itself.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

use device_class::name::excerpt;

use super::runtime_log::RuntimeLog;

/// The parts of the command line that `boathook-runtime` uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The log file from which the engine reads the runtime's errors.
    pub(super) log: Option<RuntimeLog>,
    pub(super) action: Action,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Create(NewContainer),
    Update(Update),
    Other,
}

/// An `update` command that reads the new resources of a container from a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Update {
    /// The number of arguments before the word `update`.
    pub(super) global_argument_count: usize,
    pub(super) id: OsString,
    /// The file with the new resources, or `-` for stdin.
    pub(super) resources_path: PathBuf,
    /// The index of the argument that ends with `resources_path`.
    pub(super) resources_index: usize,
}

/// The container that the command `create` or `run` creates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewContainer {
    pub(super) bundle: PathBuf,
    /// The file name of config.json in the bundle. crun has an option for it.
    pub(super) config_name: PathBuf,
    pub(super) id: String,
}

/// The options that a command of an OCI runtime accepts.
struct KnownOptions {
    /// The long names of the options with a value, separated by blanks.
    long_names: &'static str,
    /// The letters of options with a value, with the long name of each.
    short_names: &'static [(u8, &'static str)],
    /// The long names of the options without a value, separated by blanks.
    flags: &'static str,
}

/// The options that runc 1.5, crun 1.29 and youki 0.7 accept before the subcommand.
const GLOBAL_OPTIONS: KnownOptions = KnownOptions {
    long_names: "cgroup-manager criu log log-format log-level root rootless",
    short_names: &[(b'l', "log"), (b'r', "root")],
    flags: "debug help systemd-cgroup version",
};

/// The options that runc, crun and youki accept after `create` and `run`.
const CREATE_OPTIONS: KnownOptions = KnownOptions {
    long_names: "bundle config console-socket pid-file pidfd-socket preserve-fds",
    short_names: &[
        (b'b', "bundle"),
        (b'c', "console-socket"),
        (b'f', "config"),
        (b'p', "pid-file"),
    ],
    flags: "detach help keep no-new-keyring no-pivot no-subreaper",
};

/// The options that runc, crun and youki accept after `update`.
const UPDATE_OPTIONS: KnownOptions = KnownOptions {
    long_names: "\
        blkio-weight cpu-burst cpu-idle cpu-period cpu-quota cpu-rt-period \
        cpu-rt-runtime cpu-share cpuset-cpus cpuset-mems kernel-memory kernel-memory-tcp \
        l3-cache-schema mem-bw-schema memory memory-reservation memory-swap pids-limit \
        resources",
    short_names: &[(b'r', "resources")],
    flags: "help",
};

impl CommandLine {
    /// Parses the arguments of a command line without the name of the program.
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
        let parsed_count = arguments.len() - parsed_arguments.arguments.len();
        let action = match subcommand.and_then(OsStr::to_str) {
            Some("create" | "run") => {
                parse_container(parsed_arguments.with_options(&CREATE_OPTIONS)).map(Action::Create)
            }
            Some("update") => {
                let global_argument_count = parsed_count - 1;
                parse_update(
                    arguments,
                    global_argument_count,
                    parsed_arguments.with_options(&UPDATE_OPTIONS),
                )
                .map(Action::Update)
            }
            _ => None,
        };
        CommandLine {
            log: log_path.map(|path| RuntimeLog {
                path: path.into(),
                is_json,
            }),
            action: action.unwrap_or(Action::Other),
        }
    }
}

/// Parses the words after `update`. Returns `None` if no file with resources is given, or if only
/// help is requested.
fn parse_update(
    arguments: &[OsString],
    global_argument_count: usize,
    parsed_arguments: ParsedArguments<'_>,
) -> Option<Update> {
    let mut id = None;
    let mut resources = None;
    for parsed_argument in parsed_arguments {
        match parsed_argument {
            ParsedArgument::Option("resources", value) => resources = value,
            ParsedArgument::Option("help", _) => return None,
            ParsedArgument::Operand(operand) => id = id.or(Some(operand)),
            ParsedArgument::Option(..) => {}
        }
    }
    let resources = resources?;
    // The value is the end of one of the arguments, so the argument ends at the same address.
    let end = resources.as_bytes().as_ptr_range().end;
    let resources_index = arguments
        .iter()
        .position(|argument| argument.as_bytes().as_ptr_range().end == end)?;
    Some(Update {
        global_argument_count,
        id: id?.into(),
        resources_path: resources.into(),
        resources_index,
    })
}

/// Parses the words after `create` or `run`. Returns `None` if only help is requested.
fn parse_container(parsed_arguments: ParsedArguments<'_>) -> Option<NewContainer> {
    let mut container = NewContainer {
        bundle: ".".into(),
        config_name: "config.json".into(),
        id: String::new(),
    };
    for parsed_argument in parsed_arguments {
        match parsed_argument {
            ParsedArgument::Option("bundle", Some(value)) => container.bundle = value.into(),
            ParsedArgument::Option("config", Some(value)) => container.config_name = value.into(),
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
    /// An option by its long name, with its value.
    Option(&'a str, Option<&'a OsStr>),
    /// An argument that is no option, such as the id of a container.
    Operand(&'a OsStr),
}

/// An iterator over the options and operands of a command line.
struct ParsedArguments<'a> {
    arguments: slice::Iter<'a, OsString>,
    options: &'static KnownOptions,
    /// True if `--` was read. All further arguments are operands.
    has_read_terminator: bool,
}

impl<'a> ParsedArguments<'a> {
    fn new(arguments: &'a [OsString], options: &'static KnownOptions) -> Self {
        ParsedArguments {
            arguments: arguments.iter(),
            options,
            has_read_terminator: false,
        }
    }

    /// Returns an iterator over the remaining arguments, which are parsed with other options.
    fn with_options(self, options: &'static KnownOptions) -> Self {
        ParsedArguments {
            options,
            has_read_terminator: false,
            ..self
        }
    }

    fn parse_long(&mut self, body: &'a [u8]) -> ParsedArgument<'a> {
        let (name, value) = split_at_equals(body);
        let name = str::from_utf8(name).unwrap_or_default();
        match value {
            None if contains_name(self.options.long_names, name) => {
                ParsedArgument::Option(name, self.next_argument())
            }
            value => ParsedArgument::Option(name, value),
        }
    }

    /// Parses a group of letters after one dash. The letters are flags, but the last one may be an
    /// option with a value. The value is the rest of the argument, or the next argument.
    fn parse_letters(&mut self, letters: &'a [u8]) -> ParsedArgument<'a> {
        let short_names = self.options.short_names;
        for (index, letter) in letters.iter().enumerate() {
            if matches!(letter, b'h' | b'?') {
                return ParsedArgument::Option("help", None);
            }
            let Some((_, name)) = short_names
                .iter()
                .find(|(short_names, _)| short_names == letter)
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
        if !self.has_read_terminator && argument == "--" {
            self.has_read_terminator = true;
            argument = self.next_argument()?;
        }
        if self.has_read_terminator {
            return Some(ParsedArgument::Operand(argument));
        }
        Some(match argument.as_bytes() {
            [b'-', b'-', body @ ..] => self.parse_long(body),
            [b'-', body @ ..] if !body.is_empty() => {
                let name = str::from_utf8(split_at_equals(body).0).unwrap_or_default();
                if contains_name(self.options.long_names, name)
                    || contains_name(self.options.flags, name)
                {
                    self.parse_long(body)
                } else {
                    self.parse_letters(body)
                }
            }
            _ => ParsedArgument::Operand(argument),
        })
    }
}

fn contains_name(names: &str, name: &str) -> bool {
    names
        .split_whitespace()
        .any(|listed_name| listed_name == name)
}

fn split_at_equals(body: &[u8]) -> (&[u8], Option<&OsStr>) {
    match body.iter().position(|byte| *byte == b'=') {
        Some(index) => (&body[..index], Some(OsStr::from_bytes(&body[index + 1..]))),
        None => (body, None),
    }
}

#[cfg(test)]
mod tests;
