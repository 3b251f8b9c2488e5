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
    pub(super) global_arguments: usize,
    pub(super) id: OsString,
    /// The file with the new resources, or `-` for stdin.
    pub(super) resources: PathBuf,
    /// The index of the argument that ends with the path `resources`.
    pub(super) argument: usize,
}

/// The container that the command `create` or `run` creates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewContainer {
    pub(super) bundle: PathBuf,
    /// The file name of config.json in the bundle. crun has an option for it.
    pub(super) config: PathBuf,
    pub(super) id: String,
}

/// The options that a command of an OCI runtime accepts.
struct KnownOptions {
    /// The long names of the options with a value, separated by blanks.
    long: &'static str,
    /// The letters of options with a value, with the long name of each.
    short: &'static [(u8, &'static str)],
    /// The long names of the options without a value, separated by blanks.
    flags: &'static str,
}

/// The options that runc 1.5, crun 1.29 and youki 0.7 accept before the subcommand.
const GLOBAL: KnownOptions = KnownOptions {
    long: "cgroup-manager criu log log-format log-level root rootless",
    short: &[(b'l', "log"), (b'r', "root")],
    flags: "debug help systemd-cgroup version",
};

/// The options that runc, crun and youki accept after `create` and `run`.
const CONTAINER: KnownOptions = KnownOptions {
    long: "bundle config console-socket pid-file pidfd-socket preserve-fds",
    short: &[
        (b'b', "bundle"),
        (b'c', "console-socket"),
        (b'f', "config"),
        (b'p', "pid-file"),
    ],
    flags: "detach help keep no-new-keyring no-pivot no-subreaper",
};

/// The options that runc, crun and youki accept after `update`.
const UPDATE: KnownOptions = KnownOptions {
    long: "\
        blkio-weight cpu-burst cpu-idle cpu-period cpu-quota cpu-rt-period \
        cpu-rt-runtime cpu-share cpuset-cpus cpuset-mems kernel-memory kernel-memory-tcp \
        l3-cache-schema mem-bw-schema memory memory-reservation memory-swap pids-limit \
        resources",
    short: &[(b'r', "resources")],
    flags: "help",
};

impl CommandLine {
    /// Parses the arguments of a command line without the name of the program.
    pub(super) fn parse(arguments: &[OsString]) -> Self {
        let mut words = Words::new(arguments, &GLOBAL);
        let mut log_path = None;
        let mut is_json = false;
        let mut subcommand = None;
        for word in words.by_ref() {
            match word {
                Word::Option("log", Some(value)) => log_path = Some(value),
                Word::Option("log-format", Some(value)) => is_json = value == "json",
                Word::Option("help", _) => break,
                Word::Option(..) => {}
                Word::Operand(operand) => {
                    subcommand = Some(operand);
                    break;
                }
            }
        }
        let parsed_count = arguments.len() - words.arguments.len();
        let action = match subcommand.and_then(OsStr::to_str) {
            Some("create" | "run") => {
                parse_container(words.with_options(&CONTAINER)).map(Action::Create)
            }
            Some("update") => {
                let global_arguments = parsed_count - 1;
                parse_update(arguments, global_arguments, words.with_options(&UPDATE))
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
    global_arguments: usize,
    words: Words<'_>,
) -> Option<Update> {
    let mut id = None;
    let mut resources = None;
    for word in words {
        match word {
            Word::Option("resources", value) => resources = value,
            Word::Option("help", _) => return None,
            Word::Operand(operand) => id = id.or(Some(operand)),
            Word::Option(..) => {}
        }
    }
    let resources = resources?;
    // The value is the end of one of the arguments, so the argument ends at the same address.
    let end = resources.as_bytes().as_ptr_range().end;
    let argument = arguments
        .iter()
        .position(|argument| argument.as_bytes().as_ptr_range().end == end)?;
    Some(Update {
        global_arguments,
        id: id?.into(),
        resources: resources.into(),
        argument,
    })
}

/// Parses the words after `create` or `run`. Returns `None` if only help is requested.
fn parse_container(words: Words<'_>) -> Option<NewContainer> {
    let mut container = NewContainer {
        bundle: ".".into(),
        config: "config.json".into(),
        id: String::new(),
    };
    for word in words {
        match word {
            Word::Option("bundle", Some(value)) => container.bundle = value.into(),
            Word::Option("config", Some(value)) => container.config = value.into(),
            Word::Option("help", _) => return None,
            Word::Operand(id) if container.id.is_empty() => {
                container.id = excerpt(&id.to_string_lossy());
            }
            Word::Option(..) | Word::Operand(_) => {}
        }
    }
    Some(container)
}

enum Word<'a> {
    /// An option by its long name, with its value.
    Option(&'a str, Option<&'a OsStr>),
    /// An argument that is no option, such as the id of a container.
    Operand(&'a OsStr),
}

/// An iterator over the options and operands of a command line.
struct Words<'a> {
    arguments: slice::Iter<'a, OsString>,
    options: &'static KnownOptions,
    /// True if `--` was read, after which all arguments are operands.
    has_ended_options: bool,
}

impl<'a> Words<'a> {
    fn new(arguments: &'a [OsString], options: &'static KnownOptions) -> Self {
        Words {
            arguments: arguments.iter(),
            options,
            has_ended_options: false,
        }
    }

    /// Returns an iterator over the remaining arguments, which are parsed with other options.
    fn with_options(self, options: &'static KnownOptions) -> Self {
        Words {
            options,
            has_ended_options: false,
            ..self
        }
    }

    fn parse_long(&mut self, body: &'a [u8]) -> Word<'a> {
        let (name, value) = split_at_equals(body);
        let name = str::from_utf8(name).unwrap_or_default();
        match value {
            None if contains_name(self.options.long, name) => {
                Word::Option(name, self.next_argument())
            }
            value => Word::Option(name, value),
        }
    }

    /// Parses a group of letters after one dash. They are flags, of which the last may be an option
    /// with a value. The value is the rest of the word, or the next argument.
    fn parse_letters(&mut self, letters: &'a [u8]) -> Word<'a> {
        let short = self.options.short;
        for (index, letter) in letters.iter().enumerate() {
            if matches!(letter, b'h' | b'?') {
                return Word::Option("help", None);
            }
            let Some((_, name)) = short.iter().find(|(short, _)| short == letter) else {
                continue;
            };
            return match &letters[index + 1..] {
                [] => Word::Option(name, self.next_argument()),
                [b'=', value @ ..] | value => Word::Option(name, Some(OsStr::from_bytes(value))),
            };
        }
        Word::Option("", None)
    }

    fn next_argument(&mut self) -> Option<&'a OsStr> {
        self.arguments.next().map(OsString::as_os_str)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let mut argument = self.next_argument()?;
        if !self.has_ended_options && argument == "--" {
            self.has_ended_options = true;
            argument = self.next_argument()?;
        }
        if self.has_ended_options {
            return Some(Word::Operand(argument));
        }
        Some(match argument.as_bytes() {
            [b'-', b'-', body @ ..] => self.parse_long(body),
            [b'-', body @ ..] if !body.is_empty() => {
                let name = str::from_utf8(split_at_equals(body).0).unwrap_or_default();
                if contains_name(self.options.long, name) || contains_name(self.options.flags, name)
                {
                    self.parse_long(body)
                } else {
                    self.parse_letters(body)
                }
            }
            _ => Word::Operand(argument),
        })
    }
}

fn contains_name(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}

fn split_at_equals(body: &[u8]) -> (&[u8], Option<&OsStr>) {
    match body.iter().position(|byte| *byte == b'=') {
        Some(at) => (&body[..at], Some(OsStr::from_bytes(&body[at + 1..]))),
        None => (body, None),
    }
}

#[cfg(test)]
mod tests;
