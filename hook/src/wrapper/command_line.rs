//! Parses the command line of an OCI runtime: the bundle of a new container, the resources of
//! an update, and the log for errors.
//!
//! runc parses options as Go's package flag does: `-keep` means `--keep`, and a word after one
//! dash is never several letters. crun (argp) and youki (clap) accept `-bPATH` and several
//! letters after one dash. A word after one dash is taken for an option of runc if it is the
//! name of one, and for letters otherwise. Nothing is validated, because the real runtime gets
//! every argument unchanged and rejects those that it does not know.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

use device_class::name::excerpt;

use super::runtime_log::RuntimeLog;

/// The parts of a command line that the wrapper uses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// The log from which the engine reads errors.
    pub(super) log: Option<RuntimeLog>,
    pub(super) action: Action,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Create(NewContainer),
    Update(Update),
    Other,
}

/// An update of a container's resources from a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Update {
    /// The number of arguments before the subcommand.
    pub(super) global_arguments: usize,
    pub(super) id: OsString,
    /// The file with the resources; `-` is stdin.
    pub(super) resources: PathBuf,
    /// The index of the argument that ends with the file's name.
    pub(super) argument: usize,
}

/// The container that a `create` or `run` command creates.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewContainer {
    pub(super) bundle: PathBuf,
    /// The file name of the configuration, which is an option of crun.
    pub(super) config: PathBuf,
    pub(super) id: String,
}

/// The options of a command, with their names separated by spaces: options with a value,
/// letters for these, and flags.
struct KnownOptions {
    long: &'static str,
    short: &'static [(u8, &'static str)],
    flags: &'static str,
}

/// The options before the subcommand, of runc 1.5, crun 1.29 and youki 0.7.
const GLOBAL: KnownOptions = KnownOptions {
    long: "cgroup-manager criu log log-format log-level root rootless",
    short: &[(b'l', "log"), (b'r', "root")],
    flags: "debug help systemd-cgroup version",
};

/// The options after `create` and `run`.
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

/// The options after `update`.
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
    /// Parses the arguments after the name of the program.
    pub(super) fn parse(arguments: &[OsString]) -> Self {
        let mut words = Words::new(arguments, &GLOBAL);
        let mut path = None;
        let mut json = false;
        let mut subcommand = None;
        for word in words.by_ref() {
            match word {
                Word::Option("log", Some(value)) => path = Some(value),
                Word::Option("log-format", Some(value)) => json = value == "json",
                Word::Option("help", _) => break,
                Word::Option(..) => {}
                Word::Operand(operand) => {
                    subcommand = Some(operand);
                    break;
                }
            }
        }
        let at = arguments.len() - words.arguments.len();
        let action = match subcommand.and_then(OsStr::to_str) {
            Some("create" | "run") => {
                parse_container(words.with_options(&CONTAINER)).map(Action::Create)
            }
            Some("update") => {
                parse_update(arguments, at - 1, words.with_options(&UPDATE)).map(Action::Update)
            }
            _ => None,
        };
        CommandLine {
            log: path.map(|path| RuntimeLog {
                path: path.into(),
                json,
            }),
            action: action.unwrap_or(Action::Other),
        }
    }
}

/// Returns the requested update, or `None` if it has no file of resources.
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
    // The value is a slice of one of the arguments, so the two end at the same address.
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

/// Returns the requested container, or `None` if only help is requested.
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

/// An option by its long name with its value, or another argument.
enum Word<'a> {
    Option(&'a str, Option<&'a OsStr>),
    Operand(&'a OsStr),
}

/// An iterator over the options and operands of a command line.
struct Words<'a> {
    arguments: slice::Iter<'a, OsString>,
    options: &'static KnownOptions,
    /// Whether `--` was read; after it there are only operands.
    ended: bool,
}

impl<'a> Words<'a> {
    fn new(arguments: &'a [OsString], options: &'static KnownOptions) -> Self {
        Words {
            arguments: arguments.iter(),
            options,
            ended: false,
        }
    }

    /// Returns the remaining arguments, to be parsed with other options.
    fn with_options(self, options: &'static KnownOptions) -> Self {
        Words {
            options,
            ended: false,
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

    /// Parses letters after one dash: flags, and at most one option with a value. The value is
    /// the rest of the word, or the next word.
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
        if !self.ended && argument == "--" {
            self.ended = true;
            argument = self.next_argument()?;
        }
        if self.ended {
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
