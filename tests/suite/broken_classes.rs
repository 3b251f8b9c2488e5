//! Every shipped class file, broken in every way.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use harness::binaries;
use harness::demo_host::HostDirectory;

/// The result for a container that requests the class of a broken file.
#[derive(Clone, Copy)]
pub(crate) enum Consequence {
    Refused,
    /// The file does not show its variable: the container starts without devices, with a
    /// message that names the file.
    LeftOut,
    /// The file is as the documentation has it for a class that is disabled.
    Disabled,
}
use Consequence::{Disabled, LeftOut, Refused};

/// Breaks a class file with this text, of which the second part begins after the line of the
/// request variable.
pub(crate) type Break = fn(&Path, (&str, &str));

pub(crate) const WAYS: [(&str, Consequence, Break); 17] = [
    ("cut after its variable", Refused, |file, (head, _)| {
        write(file, head)
    }),
    ("cut in its variable", LeftOut, |file, (head, _)| {
        write(file, &head[..head.len() - "ES\"\n".len()]);
    }),
    ("cut after env =", LeftOut, |file, (head, _)| {
        write(file, &head[..head.rfind('=').unwrap() + 1]);
    }),
    ("of another owner", Refused, |file, _| {
        chown(file, Some(1000), None).unwrap();
    }),
    ("writable by all", Refused, |file, _| set_mode(file, 0o666)),
    (
        "writable by all, with an inline env and an escape",
        Refused,
        |file, parts| {
            write(file, &format!("{}{INLINE_ENV}{ESCAPE}{}", parts.0, parts.1));
            set_mode(file, 0o666);
        },
    ),
    ("with a syntax error", Refused, |file, (head, rest)| {
        write(file, &format!("{head}{rest}[device\n"));
    }),
    (
        "with a syntax error and an inline env",
        Refused,
        |file, (head, rest)| {
            write(file, &format!("{head}{INLINE_ENV}{rest}= 1\n"));
        },
    ),
    (
        "with a syntax error and an escape",
        Refused,
        |file, (head, rest)| {
            write(file, &format!("{head}{ESCAPE}{rest}\"\n"));
        },
    ),
    (
        "with an escape in its variable",
        Refused,
        |file, (head, rest)| {
            let (before, variable) = head.rsplit_once('"').unwrap().0.rsplit_once('"').unwrap();
            let (first, others) = variable.split_at(1);
            let escape = format!("\\u{:04x}", first.as_bytes()[0]);
            write(
                file,
                &format!("{before}\"{escape}{others}\"\nnoodles = 1\n{rest}"),
            );
        },
    ),
    ("with an unknown key", Refused, |file, (head, rest)| {
        write(file, &format!("{head}noodles = 1\n{rest}"));
    }),
    (
        "with an unknown key and an inline env",
        Refused,
        |file, (head, rest)| {
            write(file, &format!("{head}{rest}\n[noodles]\n{INLINE_ENV}"));
        },
    ),
    ("with a duplicate key", Refused, |file, (head, rest)| {
        let line = head.lines().last().unwrap();
        write(file, &format!("{head}{line}\n{rest}"));
    }),
    (
        "with a value of another kind",
        Refused,
        |file, (head, rest)| {
            write(file, &format!("{head}pairs = 'no'\n{rest}"));
        },
    ),
    (
        "with bytes that are no UTF-8",
        Refused,
        |file, (head, rest)| {
            fs::write(
                file,
                [head.as_bytes(), rest.as_bytes(), b"# \xff\n"].concat(),
            )
            .unwrap();
        },
    ),
    ("replaced by a directory", LeftOut, |file, _| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    }),
    ("empty", Disabled, |file, _| write(file, "")),
];

const INLINE_ENV: &str = "env = { A = \"b\" }\n";
const ESCAPE: &str = "# \\u0041 \\U00000041 \\x41\n";

pub(crate) fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
}

pub(crate) fn set_mode(file: &Path, mode: u32) {
    fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
}

/// A class that the project ships, as a file of a host.
pub(crate) struct ShippedClass {
    pub(crate) file: PathBuf,
    text: String,
}

impl ShippedClass {
    /// The text to the end of the line with the request variable, and the rest.
    fn parts(&self) -> (&str, &str) {
        let line = self.text.find("\nenv = \"").unwrap() + 1;
        let end = line + self.text[line..].find('\n').unwrap() + 1;
        self.text.split_at(end)
    }

    pub(crate) fn variable(&self) -> &str {
        self.parts().0.rsplit('"').nth(1).unwrap()
    }
}

/// Adds all classes that the project ships, broken in this way, but the one that the host has.
/// Each is beside every other one.
pub(crate) fn add_broken_classes(host: &HostDirectory, break_file: Break) -> Vec<ShippedClass> {
    let entries = fs::read_dir(binaries::source_tree().join("device-class/classes")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let others = paths.filter(|path| !path.ends_with("dummy-npu.toml"));
    let classes: Vec<ShippedClass> = others
        .map(|path| ShippedClass {
            file: host.classes().join(path.file_name().unwrap()),
            text: fs::read_to_string(path).unwrap(),
        })
        .collect();
    assert!(classes.len() > 60, "{}", classes.len());
    for class in &classes {
        write(&class.file, &class.text);
        break_file(&class.file, class.parts());
    }
    classes
}
