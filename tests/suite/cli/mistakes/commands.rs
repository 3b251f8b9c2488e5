//! Command lines, and users without the rights.

use super::{Mistake, Wrong};

/// A wrong command line, and what is printed.
const fn line(
    name: &'static str,
    run: &'static [&'static str],
    code: i32,
    printed: [&'static str; 3],
) -> Mistake {
    Mistake {
        name,
        wrong: Wrong::Command,
        run,
        code,
        printed,
    }
}

const NO_CLASS: [&str; 3] = [
    "no class file dumy-npu.toml",
    "on this host",
    "did you mean dummy-npu?",
];
const NO_DEVICE: &str = "is neither a path in /dev nor an id";

pub(super) const MISTAKES: [Mistake; 14] = [
    line(
        "a class is misspelled on the command line",
        &["list", "dumy-npu"],
        2,
        NO_CLASS,
    ),
    line(
        "a class is misspelled for CDI",
        &["cdi", "generate", "dumy-npu"],
        2,
        NO_CLASS,
    ),
    line(
        "a class is misspelled for a recording",
        &["class", "record", "--class", "dumy-npu", "/nowhere"],
        2,
        NO_CLASS,
    ),
    line(
        "an option is misspelled",
        &["list", "--al"],
        2,
        ["unexpected argument", "'--al'", "'--all'"],
    ),
    line(
        "a command is misspelled",
        &["lst"],
        2,
        ["unrecognized subcommand", "'lst'", "'list'"],
    ),
    line(
        "a form of CDI that does not exist",
        &["cdi", "generate", "--form", "dense"],
        2,
        [
            "invalid value 'dense'",
            "--form <FORM>",
            "possible values: thin, plain",
        ],
    ),
    line(
        "a directory for CDI that cannot be",
        &["cdi", "generate", "--output", "/proc/cdi", "dummy-npu"],
        1,
        [
            "cannot create the directory",
            "/proc/cdi",
            "No such file or directory",
        ],
    ),
    line(
        "a file for a device",
        &["class", "new", "/etc/passwd"],
        2,
        [NO_DEVICE, "`/etc/passwd`", "such as pci:10ee:5000"],
    ),
    line(
        "a directory for a device",
        &["class", "new", "/dev"],
        2,
        [NO_DEVICE, "`/dev`", "such as pci:10ee:5000"],
    ),
    line(
        "an id without its bus",
        &["class", "new", "10ee:5000"],
        2,
        [NO_DEVICE, "`10ee:5000`", "such as pci:10ee:5000"],
    ),
    line(
        "a class that is tried does not exist",
        &["class", "test", "/nowhere/thing.toml"],
        3,
        [
            "cannot be read",
            "/nowhere/thing.toml",
            "No such file or directory",
        ],
    ),
    Mistake {
        name: "CDI files are written by another user",
        wrong: Wrong::User,
        run: &["cdi", "generate", "dummy-npu"],
        code: 1,
        printed: ["Permission denied", "/run/cdi", "run this as root"],
    },
    Mistake {
        name: "`check` is run by another user",
        wrong: Wrong::User,
        run: &["check"],
        code: 0,
        printed: ["not root", "warning  privileges", "run this as root"],
    },
    Mistake {
        name: "a container is tried by another user",
        wrong: Wrong::User,
        run: &["class", "test", "CLASS"],
        code: 1,
        printed: ["Permission denied", "/run", "run this as root"],
    },
];
