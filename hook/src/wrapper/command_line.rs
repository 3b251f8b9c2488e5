//! The command line of an OCI runtime, as far as it says which bundle a new
//! container has and where errors go.
//!
//! Every runtime has its own way with options: runc takes `-bundle` for
//! `--bundle` (Go's package flag), crun and youki take `-bPATH` and several
//! letters after one dash. What can be meant only one way is taken that way.
//! Nothing is checked: the real runtime gets every argument as it is, and
//! refuses what it does not know.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice;

use device_class::name::excerpt;

use super::runtime_log::RuntimeLog;

/// What matters of a command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// Where the engine wants to read of errors.
    pub(super) log: Option<RuntimeLog>,
    /// The container that is to be made; none for any other subcommand.
    pub(super) container: Option<NewContainer>,
}

/// A container that `create` or `run` is to make.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NewContainer {
    /// The bundle's directory.
    pub(super) bundle: PathBuf,
    /// The name of its configuration; crun lets it be another.
    pub(super) config: PathBuf,
    /// The container's id, for messages.
    pub(super) id: String,
}

/// Options that have a value, by their long names, and letters for them.
struct Options {
    long: &'static [&'static str],
    short: &'static [(u8, &'static str)],
}

/// Before the subcommand: those of runc 1.5, crun 1.29 and youki 0.7.
const GLOBAL: Options = Options {
    long: &[
        "cgroup-manager",
        "criu",
        "log",
        "log-format",
        "log-level",
        "root",
        "rootless",
    ],
    short: &[(b'l', "log"), (b'r', "root")],
};

/// After `create` and `run`.
const CONTAINER: Options = Options {
    long: &[
        "bundle",
        "config",
        "console-socket",
        "pid-file",
        "pidfd-socket",
        "preserve-fds",
    ],
    short: &[
        (b'b', "bundle"),
        (b'c', "console-socket"),
        (b'f', "config"),
        (b'p', "pid-file"),
    ],
};

impl CommandLine {
    /// Reads the arguments after the program's name.
    pub(super) fn parse(arguments: &[OsString]) -> Self {
        let mut words = Words::new(arguments, &GLOBAL);
        let mut path = None;
        let mut json = false;
        let mut subcommand = None;
        for word in words.by_ref() {
            match word {
                Word::Option("log", Some(value)) => path = Some(value),
                Word::Option("log-format", Some(value)) => json = value == "json",
                Word::Option("help", None) => break,
                Word::Option(..) => {}
                Word::Operand(operand) => {
                    subcommand = Some(operand);
                    break;
                }
            }
        }
        let makes = subcommand.is_some_and(|name| name == "create" || name == "run");
        CommandLine {
            log: path.map(|path| RuntimeLog {
                path: path.into(),
                json,
            }),
            container: makes.then(|| words.with(&CONTAINER)).and_then(container),
        }
    }
}

/// The container that is asked for; none when it is only help.
fn container(words: Words<'_>) -> Option<NewContainer> {
    let mut container = NewContainer {
        bundle: ".".into(),
        config: "config.json".into(),
        id: String::new(),
    };
    for word in words {
        match word {
            Word::Option("bundle", Some(value)) => container.bundle = value.into(),
            Word::Option("config", Some(value)) => container.config = value.into(),
            Word::Option("help", None) => return None,
            Word::Operand(id) if container.id.is_empty() => {
                container.id = excerpt(&id.to_string_lossy());
            }
            Word::Option(..) | Word::Operand(_) => {}
        }
    }
    Some(container)
}

/// An option by its long name, with its value; or an argument that is none.
enum Word<'a> {
    Option(&'a str, Option<&'a OsStr>),
    Operand(&'a OsStr),
}

/// Arguments, taken apart.
struct Words<'a> {
    arguments: slice::Iter<'a, OsString>,
    options: &'static Options,
}

impl<'a> Words<'a> {
    fn new(arguments: &'a [OsString], options: &'static Options) -> Self {
        Words {
            arguments: arguments.iter(),
            options,
        }
    }

    /// What is left, with other options.
    fn with(self, options: &'static Options) -> Self {
        Words { options, ..self }
    }

    fn long(&mut self, body: &'a [u8]) -> Word<'a> {
        let (name, value) = split_at_equals(body);
        let name = str::from_utf8(name).unwrap_or_default();
        match value {
            None if self.options.long.contains(&name) => Word::Option(name, self.following()),
            value => Word::Option(name, value),
        }
    }

    /// Letters after one dash: flags, and at most one with a value, which is
    /// the rest of the word or the next one.
    fn letters(&mut self, letters: &'a [u8]) -> Word<'a> {
        let short = self.options.short;
        for (at, letter) in letters.iter().enumerate() {
            if matches!(letter, b'h' | b'?') {
                return Word::Option("help", None);
            }
            let Some((_, name)) = short.iter().find(|(short, _)| short == letter) else {
                continue;
            };
            return match &letters[at + 1..] {
                [] => Word::Option(name, self.following()),
                [b'=', value @ ..] | value => Word::Option(name, Some(OsStr::from_bytes(value))),
            };
        }
        Word::Option("", None)
    }

    fn following(&mut self) -> Option<&'a OsStr> {
        self.arguments.next().map(OsString::as_os_str)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let argument = self.following()?;
        Some(match argument.as_bytes() {
            b"--" => Word::Operand(self.following()?),
            [b'-', b'-', body @ ..] => self.long(body),
            [b'-', body @ ..] if !body.is_empty() => {
                let name = str::from_utf8(split_at_equals(body).0).unwrap_or_default();
                if name == "help" || self.options.long.contains(&name) {
                    self.long(body)
                } else {
                    self.letters(body)
                }
            }
            _ => Word::Operand(argument),
        })
    }
}

fn split_at_equals(body: &[u8]) -> (&[u8], Option<&OsStr>) {
    match body.iter().position(|byte| *byte == b'=') {
        Some(at) => (&body[..at], Some(OsStr::from_bytes(&body[at + 1..]))),
        None => (body, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> CommandLine {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        CommandLine::parse(&words)
    }

    #[test]
    fn a_new_containers_bundle_is_found_however_it_is_written() {
        for (line, bundle, config, id) in [
            ("create c1", ".", "config.json", "c1"),
            ("run c1", ".", "config.json", "c1"),
            ("create --bundle /b c1", "/b", "config.json", "c1"),
            ("create --bundle=/b c1", "/b", "config.json", "c1"),
            ("create -b /b c1", "/b", "config.json", "c1"),
            ("create -b/b c1", "/b", "config.json", "c1"),
            ("create -b=/b c1", "/b", "config.json", "c1"),
            ("create -bundle /b c1", "/b", "config.json", "c1"),
            ("create -bundle=/b c1", "/b", "config.json", "c1"),
            ("create --bundle= c1", "", "config.json", "c1"),
            ("run -db /b c1", "/b", "config.json", "c1"),
            ("run -d -b relative/b c1", "relative/b", "config.json", "c1"),
            ("run --bundle /a --bundle /b c1", "/b", "config.json", "c1"),
            ("create c1 --bundle /b", "/b", "config.json", "c1"),
            ("create --bundle /b -- -c1", "/b", "config.json", "-c1"),
            (
                "create --no-pivot --bundle /b c1",
                "/b",
                "config.json",
                "c1",
            ),
            ("create --pid-file -b c1", ".", "config.json", "c1"),
            (
                "create --console-socket=/s -b /b c1",
                "/b",
                "config.json",
                "c1",
            ),
            ("create -p /pid -b /b c1", "/b", "config.json", "c1"),
            ("create -f other.json -b /b c1", "/b", "other.json", "c1"),
            (
                "run --keep --preserve-fds 3 -b /b run",
                "/b",
                "config.json",
                "run",
            ),
            ("--root /r create -b /b c1", "/b", "config.json", "c1"),
            ("--root create create -b /b c1", "/b", "config.json", "c1"),
            ("-r /r -s create -b /b c1", "/b", "config.json", "c1"),
            (
                "--debug --systemd-cgroup --criu x run -b /b c1",
                "/b",
                "config.json",
                "c1",
            ),
            (
                "--cgroup-manager disabled --rootless=true run -b /b c1",
                "/b",
                "config.json",
                "c1",
            ),
            ("create", ".", "config.json", ""),
            ("create --bundle", ".", "config.json", ""),
        ] {
            let found = parse(line).container;
            let wanted = NewContainer {
                bundle: bundle.into(),
                config: config.into(),
                id: id.into(),
            };
            assert_eq!(found, Some(wanted), "{line}");
        }
    }

    #[test]
    fn everything_else_makes_no_container() {
        for line in [
            "",
            "--version",
            "-v",
            "--help",
            "--help create c1",
            "create --help",
            "create -b /b -h",
            "run -?",
            "--root /r",
            "--root create",
            "start c1",
            "state create",
            "delete --force create",
            "exec c1 create --bundle /b",
            "restore --bundle /b c1",
            "spec --bundle /b",
            "--log create delete run",
            "createx",
        ] {
            assert_eq!(parse(line).container, None, "{line}");
        }
    }

    #[test]
    fn the_engines_log_is_found() {
        for (line, wanted) in [
            ("create c1", None),
            ("--log /l create c1", Some(("/l", false))),
            ("--log=/l --log-format json create c1", Some(("/l", true))),
            ("--log-format=json --log /l delete c1", Some(("/l", true))),
            ("-log /l -log-format json create c1", Some(("/l", true))),
            ("-l /l start c1", Some(("/l", false))),
            ("--log-format json create c1", None),
            ("create --log /l c1", None),
        ] {
            let wanted = wanted.map(|(path, json)| RuntimeLog {
                path: path.into(),
                json,
            });
            assert_eq!(parse(line).log, wanted, "{line}");
        }
    }

    #[test]
    fn an_argument_need_not_be_text() {
        let arguments = [
            OsString::from("create"),
            OsStr::from_bytes(b"--bundle=/\xff").into(),
            OsStr::from_bytes(b"--\xff").into(),
            OsStr::from_bytes(b"-\xffb").into(),
            "/b".into(),
            OsStr::from_bytes(b"c\xff").into(),
        ];
        let found = CommandLine::parse(&arguments).container.unwrap();
        assert_eq!(found.bundle, PathBuf::from("/b"));
        assert_eq!(found.id, "c\u{fffd}");
    }
}
