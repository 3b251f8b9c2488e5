//! The mistakes that people make, by subject: each gets a message with what is wrong,
//! where, and what to do about it. What a class file's parts may be is tried by
//! device-class, and docs/troubleshooting.md has those at which nothing is printed by
//! itself.
//!
//! `mistakes/*.txt`: `! NAME`, what is done wrong, `$ CODE COMMAND`, and in lines with `+`
//! what is printed. Done wrong are: the container's variables (`container A=B;C=D`), a
//! pod's container with a line below `[trust]` (`pod`), a part of [`THING`] (`class A =>
//! B`), a file of the host or among the class files (`host`, `file PATH => TEXT`), a line of
//! config.toml (`config`), a mode (`mode FILE => MODE`), what was run `after`, the `user`,
//! who is not root, or the command itself. The command is `boathook`'s unless its first word
//! is `boathook-init`; `BUNDLE`, `CLASS`, `CLASSES` and `PROGRAMS` are the container's, the
//! class file, its directory and that of the programs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use serde_json::{Value, json};

use super::{bundle_of, of_pod, with_private_run};

const THING: &str = r#"version = 1
resource = "example.com/thing"
[request]
env = "THINGS"
capabilities_env = "THINGS_CAPABILITIES"
[[discover]]
path = "/sys/thing{index:number}"
[device]
id = "thing-{index}"
health = [{ file = "/sys/thing{index}/state", equals = "ok" }]
[sharing]
replicas = 2
[[edits]]
files = ["/etc/thing.conf"]
[[edits]]
capability = "more"
"#;

const PORT: &str = r#"version = 1
follow = true
resource = "example.com/port"
request = { env = "PORTS" }
discover = [{ path = "/sys/thing{index:number}" }]
device = { id = "port-{index}", nodes = ["/dev/port{index}"] }
"#;

const SUBJECTS: [&str; 5] = [
    include_str!("mistakes/containers.txt"),
    include_str!("mistakes/classes.txt"),
    include_str!("mistakes/configuration.txt"),
    include_str!("mistakes/commands.txt"),
    include_str!("mistakes/installer.txt"),
];

/// As its lines have it.
struct Mistake {
    name: &'static str,
    /// How, and with what.
    wrong: (&'static str, String),
    run: &'static str,
    code: i32,
    printed: Vec<&'static str>,
}

fn pod() -> Value {
    let mut config = of_pod(&[]);
    config["process"] = json!({ "env": ["DUMMY_VISIBLE_DEVICES=all"] });
    config["annotations"]["io.kubernetes.cri.sandbox-namespace"] = "training".into();
    config["annotations"]["io.kubernetes.cri.sandbox-name"] = "job".into();
    config
}

/// A host with a thing that is well and one that is not, and with Docker.
fn host() -> HostDirectory {
    let host = HostDirectory::new().unwrap();
    for (path, text) in [
        ("/sys/thing0/state", "ok"),
        ("/sys/thing1/state", "hot"),
        ("/etc/thing.conf", ""),
        ("/etc/docker/daemon.json", "{}"),
        ("/usr/bin/dockerd", ""),
    ] {
        host.add_file(path, text).unwrap();
    }
    host.add_class("thing", THING).unwrap();
    let absent = THING.replace("/sys/thing", "/sys/absent");
    let absent = absent.replace("THINGS", "ABSENT");
    host.add_class("absent", &absent.replace("com/thing", "com/absent"))
        .unwrap();
    host
}

impl Mistake {
    fn parse(text: &'static str) -> Self {
        let mut lines = text.lines();
        let mut mistake = Mistake {
            name: lines.next().unwrap(),
            wrong: ("", String::new()),
            run: "",
            code: 0,
            printed: Vec::new(),
        };
        for line in lines.filter(|line| !line.is_empty()) {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("+", printed) => mistake.printed.push(printed),
                ("$", run) => {
                    let (code, run) = run.split_once(' ').unwrap();
                    (mistake.code, mistake.run) = (code.parse().unwrap(), run);
                }
                (how, with) => mistake.wrong = (how, with.replace("\\n", "\n")),
            }
        }
        mistake
    }

    /// What comes of it; nothing without the right to be another user.
    fn make(&self) -> Option<Captured> {
        let host = host();
        let mut config = super::config(&["PATH=/bin"]);
        let mut before = None;
        let (how, with) = (self.wrong.0, self.wrong.1.as_str());
        let (of, to) = with.split_once(" =>").unwrap_or((with, ""));
        let to = to.trim_start_matches(' ');
        match how {
            "container" => config = super::config(&Vec::from_iter(with.split(';'))),
            "pod" => {
                config = pod();
                host.write_config(&format!("[trust]\n{with}\n")).unwrap();
            }
            "class" => {
                assert!(THING.contains(of), "{of}");
                host.add_class("thing", &THING.replace(of, to)).unwrap();
            }
            "host" => host.add_file(of, to).unwrap(),
            "file" => {
                let text = if to == "PORT" { PORT } else { THING };
                fs::write(host.classes().join(of), text).unwrap();
            }
            "config" => host.write_config(&format!("{with}\n")).unwrap(),
            "mode" => {
                let mode = Permissions::from_mode(u32::from_str_radix(to, 8).unwrap());
                fs::set_permissions(host.path().join(of), mode).unwrap();
            }
            "after" => before = Some(with),
            "user" if !nix::unistd::geteuid().is_root() => return None,
            "user" | "" => {}
            other => panic!("{}: {other}", self.name),
        }
        let bundle = bundle_of(&config);
        if let Some(command) = before {
            let mut command = self.command(command, &host, bundle.path());
            Captured::run(&mut command).unwrap().success().unwrap();
        }
        let mut command = self.command(self.run, &host, bundle.path());
        Some(Captured::run(&mut command).unwrap())
    }

    fn command(&self, line: &str, host: &HostDirectory, bundle: &Path) -> Command {
        let class = host.classes().join("thing.toml");
        let words: Vec<&str> = line.split(' ').collect();
        let is_init = words[0] == "boathook-init";
        let (name, words) = if is_init {
            (words[0], &words[1..])
        } else {
            ("boathook", &words[..])
        };
        let mut program = binaries::program(name).unwrap();
        let mut command = if self.wrong.0 == "user" {
            // The user may not be able to enter the build's own directory.
            let copy = host.path().join(name);
            binaries::copy(&program, &copy).unwrap();
            if !is_init {
                let hook = binaries::program("boathook-hook").unwrap();
                binaries::copy(&hook, &host.path().join("boathook-hook")).unwrap();
            }
            program = copy;
            let mut command = Command::new(&program);
            command.uid(4242).gid(4242);
            command
        } else {
            let mut command = with_private_run();
            command.arg(&program);
            command
        };
        if is_init {
            command.arg("--host-root").arg(host.root())
        } else {
            command.arg("--config").arg(host.config_file())
        };
        for word in words {
            match *word {
                "BUNDLE" => command.arg(bundle),
                "CLASS" => command.arg(&class),
                "CLASSES" => command.arg(host.classes()),
                "PROGRAMS" => command.arg(binaries::program(name).unwrap().parent().unwrap()),
                word => {
                    let classes = format!("{}/", host.classes().display());
                    command.arg(word.replace("CLASSES/", &classes))
                }
            };
        }
        command
    }
}

fn parse_mistakes() -> impl Iterator<Item = Mistake> {
    let rows = SUBJECTS.iter().flat_map(|text| text.split("\n! ").skip(1));
    rows.map(Mistake::parse)
}

#[test]
fn every_common_mistake_gets_a_message_that_names_the_fix() {
    let mut wrong = Vec::new();
    for mistake in parse_mistakes() {
        let name = mistake.name;
        let Some(ran) = mistake.make() else {
            skip::report(name, "needs root, to be another user");
            continue;
        };
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        if ran.status.code() != Some(mistake.code) {
            wrong.push(format!("{name}: {:?}: {printed}", ran.status.code()));
        }
        for words in mistake.printed {
            if !printed.contains(words) {
                wrong.push(format!("{name}: no `{words}` in {printed}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table of the documentation, but for what `runc::doctor` and `cli::doctor` try.
#[test]
fn every_documented_mistake_is_tried() {
    let path = binaries::source_tree().join("docs/troubleshooting.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("## Common mistakes").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.skip(1).filter_map(|row| row.split(" | ").next());
    let mut documented: Vec<&str> = rows.collect();
    assert!(documented.len() > 8);
    documented.truncate(documented.len() - 3);
    for row in documented {
        assert!(parse_mistakes().any(|mistake| mistake.name == row), "{row}");
    }
}
