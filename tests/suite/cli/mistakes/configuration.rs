//! config.toml.

use super::{CHECK, Mistake, Wrong};

/// A wrong line, which is the fourth, and what is printed.
const fn line(
    name: &'static str,
    line: &'static str,
    code: i32,
    printed: [&'static str; 3],
) -> Mistake {
    Mistake {
        name,
        wrong: Wrong::Config(line),
        run: CHECK,
        code,
        printed,
    }
}

pub(super) const MISTAKES: [Mistake; 8] = [
    line(
        "a key of config.toml is misspelled",
        "clases = []",
        3,
        [
            "unknown key `clases`",
            "config.toml:4",
            "did you mean `classes`?",
        ],
    ),
    line(
        "a table of config.toml is misspelled",
        "[clas.thing]\nreplicas = 2",
        3,
        [
            "unknown key `clas`",
            "config.toml:4",
            "did you mean `class`?",
        ],
    ),
    line(
        "config.toml is no TOML",
        "log_level = = \"info\"",
        3,
        ["extra `=`", "config.toml:4: log_level", "expected nothing"],
    ),
    line(
        "config.toml configures a class that does not exist",
        "[class.dumy-npu]\nenabled = true",
        0,
        [
            "there is no such class",
            "a table [class.dumy-npu]",
            "did you mean [class.dummy-npu]?",
        ],
    ),
    line(
        "`except` names no device",
        "[class.thing]\nexcept = [\"nope\"]",
        0,
        [
            "which no device of this host is called",
            "`except` in config.toml names nope",
            "class thing",
        ],
    ),
    line(
        "the runtime of config.toml does not exist",
        "[runtime]\npath = \"/usr/bin/rnc\"",
        1,
        [
            "is no program",
            "/usr/bin/rnc, of [runtime] path",
            "name runc, crun or youki",
        ],
    ),
    line(
        "the host has no runtime",
        "",
        0,
        [
            "none of runc, crun, youki",
            "warning  runtime",
            "install one, or name it: [runtime] path",
        ],
    ),
    Mistake {
        name: "others can change config.toml",
        wrong: Wrong::Mode("config.toml", 0o666),
        run: CHECK,
        code: 3,
        printed: [
            "so others could change what runs as root",
            "/config.toml: has mode 0666",
            "run: chmod go-w",
        ],
    },
];
