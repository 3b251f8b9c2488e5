//! Class files.

use super::{CHECK, CLASS_CHECK, Mistake, THING, Wrong};

const LINE: &str = "thing.toml:";

const PORT: &str = r#"version = 1
follow = true
resource = "example.com/port"
request = { env = "PORTS" }
discover = [{ path = "/sys/thing{index:number}" }]
device = { id = "port-{index}", nodes = ["/dev/port{index}"] }
"#;

/// A wrong text in a class file, and what `class check` prints.
const fn text(
    name: &'static str,
    (right, wrong): (&'static str, &'static str),
    printed: [&'static str; 3],
) -> Mistake {
    Mistake {
        name,
        wrong: Wrong::Class(right, wrong),
        run: CLASS_CHECK,
        code: 3,
        printed,
    }
}

pub(super) const MISTAKES: [Mistake; 30] = [
    text(
        "a table of a class file is misspelled",
        ("[[discover]]", "[[discovr]]"),
        [
            "unknown key `discovr`",
            "thing.toml:6",
            "did you mean `discover`?",
        ],
    ),
    text(
        "a key of a device is misspelled",
        ("[sharing]", "node = []\n[sharing]"),
        [
            "unknown key `node`",
            "thing.toml:11",
            "did you mean `nodes`?",
        ],
    ),
    text(
        "a key of a condition is misspelled",
        ("equals", "equal"),
        [
            "unknown key `equal`",
            "thing.toml:10",
            "did you mean `equals`?",
        ],
    ),
    text(
        "an attribute is misspelled",
        ("thing-{index}", "thing-{indx}"),
        [
            "uses the attribute `indx`",
            "thing.toml:9",
            "known attributes are index",
        ],
    ),
    text(
        "a number in quotes",
        ("replicas = 2", "replicas = \"2\""),
        [
            "invalid type: string \"2\"",
            "thing.toml:12: replicas",
            "expected",
        ],
    ),
    text(
        "a mode without quotes",
        (
            "[sharing]",
            "nodes = [{ path = \"/dev/x\", mode = 0660 }]\n[sharing]",
        ),
        [
            "unexpected leading zero",
            "thing.toml:11: mode",
            "leading zero",
        ],
    ),
    text(
        "the version is of another program",
        ("version = 1", "version = 2"),
        [
            "version 2 is not known",
            "thing.toml:1: version",
            "which reads 1: write that",
        ],
    ),
    text(
        "the version is missing",
        ("version = 1", ""),
        ["missing field", LINE, "`version`"],
    ),
    text(
        "a resource without a domain",
        ("example.com/thing", "thing"),
        [
            "resource `thing`",
            "thing.toml:2",
            "write it as vendor.example/chip",
        ],
    ),
    text(
        "a variable that every container has",
        ("\"THINGS\"", "\"PATH\""),
        [
            "`PATH` is a variable that containers have",
            "thing.toml:4",
            "choose a name such as",
        ],
    ),
    text(
        "one bracket instead of two",
        ("[[discover]]", "[discover]"),
        [
            "invalid type: map",
            "thing.toml:6: [discover]",
            "expected a sequence",
        ],
    ),
    text(
        "what captures is in a template",
        ("\"thing-{index}\"", "\"thing-{index:number}\""),
        [
            "has an unknown format",
            "thing.toml:9",
            "belongs in `for_each`",
        ],
    ),
    text(
        "a device's attribute in `[[edits]]`",
        ("/etc/thing.conf", "/etc/thing{index}.conf"),
        [
            "uses the attribute `index`",
            "thing.toml:14",
            "put what belongs to one device into [device]",
        ],
    ),
    Mistake {
        name: "two devices have one id",
        wrong: Wrong::Class("thing-{index}", "thing"),
        run: CLASS_CHECK,
        code: 0,
        printed: [
            "the id thing is not unique",
            "class thing: OK, with warnings",
            "put what tells the devices apart into `id`",
        ],
    },
    Mistake {
        name: "a library is not in ld.so.cache",
        wrong: Wrong::Class(
            "files = [\"/etc/thing.conf\"]",
            "libraries = [\"libthing.so.1\"]",
        ),
        run: CHECK,
        code: 1,
        printed: [
            "libthing.so.1 is not in the host's ld.so.cache",
            "class thing",
            "run ldconfig, or name their directory in `library_directories`",
        ],
    },
    Mistake {
        name: "a control node or file is missing",
        wrong: Wrong::Class("thing.conf", "missing.conf"),
        run: CHECK,
        code: 1,
        printed: [
            "a container that requests devices would be refused",
            "thing: /etc/missing.conf does not exist",
            "install what has it, or add `optional = true`",
        ],
    },
    Mistake {
        name: "a file of the class is missing",
        wrong: Wrong::Class("thing.conf", "missing.conf"),
        run: CLASS_CHECK,
        code: 1,
        printed: [
            "this host lacks what the file names",
            "/etc/missing.conf does not exist",
            "install what has it, or add `optional = true`",
        ],
    },
    Mistake {
        name: "a pattern matches nothing",
        wrong: Wrong::Class("/sys/thing{index:number}", "/sys/thingy{index:number}"),
        run: CLASS_CHECK,
        code: 0,
        printed: [
            "no device of this class on this host",
            "nothing matches /sys/thingy{index:number}",
            "load the driver, or compare this with the host's paths",
        ],
    },
    Mistake {
        name: "a condition refuses every device",
        wrong: Wrong::Class(
            "[device]",
            "attributes = [{ name = \"state\", file = \"state\" }]\n\
             require = [{ value = \"{state}\", equals = \"OK\" }]\n[device]",
        ),
        run: CLASS_CHECK,
        code: 0,
        printed: [
            "`require` refuses all that matches",
            "/sys/thing0",
            "{state} is `ok`, not `OK`",
        ],
    },
    Mistake {
        name: "the class file does not exist",
        wrong: Wrong::Command,
        run: &["class", "check", "CLASSES/thin.toml"],
        code: 3,
        printed: ["cannot be read", "/thin.toml", "No such file or directory"],
    },
    Mistake {
        name: "a class is followed whose ids are the numbers of its nodes",
        wrong: Wrong::File("port.toml", PORT),
        run: &["class", "check", "CLASSES/port.toml"],
        code: 3,
        printed: [
            "port.toml:6: ",
            "with `follow = true` the id `port-{index}` may not have `index`, a number that changes",
            "use what is read of the device, such as its serial number",
        ],
    },
    Mistake {
        name: "the class file has another ending",
        wrong: Wrong::File("thing.tml", THING),
        run: &["class", "check", "CLASSES/thing.tml"],
        code: 3,
        printed: ["a class file is named", "/thing.tml: ", "CLASS.toml"],
    },
    Mistake {
        name: "a directory for a class file",
        wrong: Wrong::Command,
        run: &["class", "check", "CLASSES"],
        code: 3,
        printed: ["a class file is named", "/classes: ", "CLASS.toml"],
    },
    Mistake {
        name: "a class file has another ending",
        wrong: Wrong::File("mychip.tml", THING),
        run: CHECK,
        code: 0,
        printed: ["is not read", "mychip.tml", "name a class file CLASS.toml"],
    },
    Mistake {
        name: "others can change the class file that is checked",
        wrong: Wrong::Mode("classes/thing.toml", 0o666),
        run: CLASS_CHECK,
        code: 1,
        printed: [
            "the hook refuses this file",
            "/thing.toml has mode 0666",
            "run: chmod go-w",
        ],
    },
    Mistake {
        name: "others can change a class file",
        wrong: Wrong::Mode("classes/thing.toml", 0o666),
        run: CHECK,
        code: 1,
        printed: [
            "so others could change what runs as root",
            "/thing.toml: has mode 0666",
            "run: chmod go-w",
        ],
    },
    Mistake {
        name: "others can change a class file that is listed",
        wrong: Wrong::Mode("classes/thing.toml", 0o666),
        run: &["list", "thing"],
        code: 3,
        printed: [
            "so others could change what runs as root",
            "/thing.toml: has mode 0666",
            "run: chmod go-w",
        ],
    },
    Mistake {
        name: "two classes have one variable",
        wrong: Wrong::Class("env = \"THINGS\"", "env = \"DUMMY_VISIBLE_DEVICES\""),
        run: CHECK,
        code: 1,
        printed: ["both use DUMMY_VISIBLE_DEVICES", "thing", "disable one"],
    },
    Mistake {
        name: "two classes have one resource",
        wrong: Wrong::Class("example.com/thing", "dummy.com/npu"),
        run: CHECK,
        code: 1,
        printed: ["both use dummy.com/npu", "thing", "disable one"],
    },
    Mistake {
        name: "a host is recorded where one is",
        wrong: Wrong::After(&["class", "record", "--class", "thing", "CLASSES"]),
        run: &["class", "record", "--class", "thing", "CLASSES"],
        code: 1,
        printed: [
            "cannot write",
            "/host.txt: it exists",
            "name another directory",
        ],
    },
];
