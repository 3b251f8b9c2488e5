//! The common mistakes, each with the message that names its fix.
//! docs/troubleshooting.md lists the same ones.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use serde_json::{Value, json};

use super::{boathook, bundle_of, of_pod};

const THING: &str = r#"version = 1
resource = "example.com/thing"
[request]
env = "THINGS"
[[discover]]
path = "/sys/thing{index:number}"
[device]
id = "thing-{index}"
[sharing]
replicas = 2
[[edits]]
files = ["/etc/thing.conf"]
"#;

/// What is done wrong.
enum Wrong {
    /// The container's variables and the rest of its config.json.
    Container(&'static str),
    /// A pod's container with this in config.toml.
    Pod(&'static str),
    /// A part of a correct class file, and its replacement.
    Class(&'static str, &'static str),
    /// A file among the class files.
    File(&'static str, &'static str),
    /// A line of config.toml.
    Config(&'static str),
    /// A mode of the class file.
    Mode(u32),
    /// None: the command line is wrong.
    Command,
}

struct Mistake {
    /// As docs/troubleshooting.md calls it.
    name: &'static str,
    wrong: Wrong,
    /// What is run; `BUNDLE` and `CLASS` are the container's and the class file.
    run: &'static [&'static str],
    code: i32,
    /// What is printed: the reason, then the fix.
    printed: [&'static str; 2],
}

const DOCTOR: &[&str] = &["doctor", "--bundle", "BUNDLE"];
const CHECK: &[&str] = &["check"];
const CLASS_CHECK: &[&str] = &["class", "check", "CLASS"];

const MISTAKES: [Mistake; 31] = [
    Mistake {
        name: "`--runtime boathook` is forgotten",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=0"),
        run: DOCTOR,
        code: 13,
        printed: ["config.json has no boathook hook", "fix: "],
    },
    Mistake {
        name: "with a runtime handler, `runtimeClassName: boathook` is forgotten",
        wrong: Wrong::Pod("trusted_pods = ['training/job']"),
        run: DOCTOR,
        code: 13,
        printed: [
            "config.json has no boathook hook",
            "set `runtimeClassName: boathook`",
        ],
    },
    Mistake {
        name: "the pod has no limit",
        wrong: Wrong::Pod("kubelet_checkpoint = '/nowhere'"),
        run: DOCTOR,
        code: 16,
        printed: ["no device of dummy-npu", "limits: dummy.com/npu: 1"],
    },
    Mistake {
        name: "the variable is misspelled",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICE=0"),
        run: DOCTOR,
        code: 12,
        printed: [
            "did you mean DUMMY_VISIBLE_DEVICES",
            "set DUMMY_VISIBLE_DEVICES instead of",
        ],
    },
    Mistake {
        name: "no variable is set",
        wrong: Wrong::Container("PATH=/bin"),
        run: DOCTOR,
        code: 11,
        printed: [
            "sets no variable of any class",
            "-e DUMMY_VISIBLE_DEVICES=all",
        ],
    },
    Mistake {
        name: "the device does not exist",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=64"),
        run: DOCTOR,
        code: 5,
        printed: ["has no device `64`", "there are 64, from npu-0 to npu-63"],
    },
    Mistake {
        name: "devices are separated by blanks",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=0 1"),
        run: DOCTOR,
        code: 5,
        printed: [
            "`0 1` is neither a device nor a range",
            "separate several with commas",
        ],
    },
    Mistake {
        name: "a range is written backwards",
        wrong: Wrong::Container("DUMMY_VISIBLE_DEVICES=3-1"),
        run: DOCTOR,
        code: 5,
        printed: ["`3-1` ends before it begins", "write 1-3"],
    },
    Mistake {
        name: "the runtime of config.toml does not exist",
        wrong: Wrong::Config("[runtime]\npath = \"/usr/bin/rnc\""),
        run: CHECK,
        code: 1,
        printed: [
            "/usr/bin/rnc, of [runtime] path, is no program",
            "name runc",
        ],
    },
    Mistake {
        name: "`except` names no device",
        wrong: Wrong::Config("[class.thing]\nexcept = [\"nope\"]"),
        run: CHECK,
        code: 0,
        printed: [
            "`except` in config.toml names nope",
            "which no device of this host is called",
        ],
    },
    Mistake {
        name: "a condition refuses every device",
        wrong: Wrong::Class(
            "[device]",
            "require = [{ value = \"{index}\", equals = \"7\" }]\n[device]",
        ),
        run: CLASS_CHECK,
        code: 0,
        printed: ["`require` refuses all that matches", "/sys/thing0: "],
    },
    Mistake {
        name: "what captures is in a template",
        wrong: Wrong::Class("\"thing-{index}\"", "\"thing-{index:number}\""),
        run: CLASS_CHECK,
        code: 3,
        printed: ["has an unknown format", "belongs in `for_each`"],
    },
    Mistake {
        name: "the driver is not loaded",
        wrong: Wrong::Container("ABSENT=all"),
        run: DOCTOR,
        code: 15,
        printed: ["no device on this host", "its driver is loaded"],
    },
    Mistake {
        name: "the container's id is wrong",
        wrong: Wrong::Command,
        run: &["doctor", "--container", "no-such-container"],
        code: 10,
        printed: ["no container no-such-container", "give the id"],
    },
    Mistake {
        name: "a control node or file is missing",
        wrong: Wrong::Class("thing.conf", "missing.conf"),
        run: CHECK,
        code: 1,
        printed: [
            "a container that requests devices would be refused",
            "/etc/missing.conf does not exist",
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
            "run ldconfig",
        ],
    },
    Mistake {
        name: "two classes have one variable",
        wrong: Wrong::Class("env = \"THINGS\"", "env = \"DUMMY_VISIBLE_DEVICES\""),
        run: CHECK,
        code: 1,
        printed: ["both use DUMMY_VISIBLE_DEVICES", "disable one"],
    },
    Mistake {
        name: "two classes have one resource",
        wrong: Wrong::Class("example.com/thing", "dummy.com/npu"),
        run: CHECK,
        code: 1,
        printed: ["both use dummy.com/npu", "disable one"],
    },
    Mistake {
        name: "a class file has another ending",
        wrong: Wrong::File("mychip.tml", THING),
        run: CHECK,
        code: 0,
        printed: ["mychip.tml is not read", "name a class file CLASS.toml"],
    },
    Mistake {
        name: "config.toml configures a class that does not exist",
        wrong: Wrong::Config("[class.dumy-npu]\nenabled = true"),
        run: CHECK,
        code: 0,
        printed: ["[class.dumy-npu]", "did you mean [class.dummy-npu]?"],
    },
    Mistake {
        name: "a key of config.toml is misspelled",
        wrong: Wrong::Config("clases = []"),
        run: CHECK,
        code: 3,
        printed: ["unknown key `clases`", "did you mean `classes`?"],
    },
    Mistake {
        name: "a key of a class file is misspelled",
        wrong: Wrong::Class("replicas", "replica"),
        run: CLASS_CHECK,
        code: 3,
        printed: [
            "thing.toml:10: unknown key `replica`",
            "did you mean `replicas`?",
        ],
    },
    Mistake {
        name: "one bracket instead of two",
        wrong: Wrong::Class("[[discover]]", "[discover]"),
        run: CLASS_CHECK,
        code: 3,
        printed: ["thing.toml:5: [discover]: ", "expected a sequence"],
    },
    Mistake {
        name: "a number in quotes",
        wrong: Wrong::Class("replicas = 2", "replicas = \"2\""),
        run: CLASS_CHECK,
        code: 3,
        printed: ["replicas: ", "invalid type: string \"2\""],
    },
    Mistake {
        name: "a mode without quotes",
        wrong: Wrong::Class(
            "[sharing]",
            "nodes = [{ path = \"/dev/x\", mode = 0660 }]\n[sharing]",
        ),
        run: CLASS_CHECK,
        code: 3,
        printed: ["mode: ", "unexpected leading zero"],
    },
    Mistake {
        name: "a resource without a domain",
        wrong: Wrong::Class("example.com/thing", "thing"),
        run: CLASS_CHECK,
        code: 3,
        printed: [
            "thing.toml:2: resource `thing`",
            "write it as vendor.example/chip",
        ],
    },
    Mistake {
        name: "a variable that every container has",
        wrong: Wrong::Class("\"THINGS\"", "\"PATH\""),
        run: CLASS_CHECK,
        code: 3,
        printed: [
            "`PATH` is a variable that containers have",
            "choose a name such as",
        ],
    },
    Mistake {
        name: "a device's attribute in `[[edits]]`",
        wrong: Wrong::Class("/etc/thing.conf", "/etc/thing{index}.conf"),
        run: CLASS_CHECK,
        code: 3,
        printed: [
            "thing.toml:12: ",
            "put what belongs to one device into [device]",
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
        ],
    },
    Mistake {
        name: "others can change a class file",
        wrong: Wrong::Mode(0o666),
        run: CHECK,
        code: 1,
        printed: [
            "so others could change what runs as root",
            "run: chmod go-w",
        ],
    },
    Mistake {
        name: "a class is misspelled on the command line",
        wrong: Wrong::Command,
        run: &["list", "dumy-npu"],
        code: 2,
        printed: ["no class file dumy-npu.toml", "did you mean dummy-npu?"],
    },
];

fn container(env: &str) -> Value {
    json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"env": [env]}})
}

fn pod() -> Value {
    let mut config = of_pod(&[]);
    config["process"] = json!({ "env": ["DUMMY_VISIBLE_DEVICES=all"] });
    config["annotations"]["io.kubernetes.cri.sandbox-namespace"] = "training".into();
    config["annotations"]["io.kubernetes.cri.sandbox-name"] = "job".into();
    config
}

impl Mistake {
    fn make(&self) -> Captured {
        let host = HostDirectory::new().unwrap();
        host.add_file("/sys/thing0/x", "").unwrap();
        host.add_file("/etc/thing.conf", "").unwrap();
        host.add_class("thing", THING).unwrap();
        let absent = THING.replace("/sys/thing", "/sys/absent");
        let absent = absent
            .replace("THINGS", "ABSENT")
            .replace("com/thing", "com/absent");
        host.add_class("absent", &absent).unwrap();
        let mut config = container("PATH=/bin");
        match self.wrong {
            Wrong::Container(env) => config = container(env),
            Wrong::Pod(trust) => {
                config = pod();
                host.write_config(&format!("[trust]\n{trust}\n")).unwrap();
            }
            Wrong::Class(right, wrong) => {
                assert!(THING.contains(right), "{right}");
                host.add_class("thing", &THING.replace(right, wrong))
                    .unwrap();
            }
            Wrong::File(name, text) => fs::write(host.classes().join(name), text).unwrap(),
            Wrong::Config(line) => host.write_config(&format!("{line}\n")).unwrap(),
            Wrong::Mode(mode) => {
                let file = host.classes().join("thing.toml");
                fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
            }
            Wrong::Command => {}
        }
        let bundle = bundle_of(&config);
        let class = host.classes().join("thing.toml");
        let arguments = self.run.iter().map(|argument| match *argument {
            "BUNDLE" => bundle.path().to_str().unwrap(),
            "CLASS" => class.to_str().unwrap(),
            other => other,
        });
        boathook(&host, &arguments.collect::<Vec<_>>(), b"")
    }
}

#[test]
fn every_common_mistake_gets_a_message_that_names_the_fix() {
    let path = binaries::source_tree().join("docs/troubleshooting.md");
    let documentation = fs::read_to_string(path).unwrap();
    for mistake in &MISTAKES {
        let ran = mistake.make();
        let name = mistake.name;
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        assert_eq!(ran.status.code(), Some(mistake.code), "{name}: {printed}");
        for words in mistake.printed {
            assert!(printed.contains(words), "{name}: no `{words}` in {printed}");
        }
        let documented = documentation.contains(&format!("| {name} |"));
        assert!(documented, "docs/troubleshooting.md has no row for: {name}");
    }
}
