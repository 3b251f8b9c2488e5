//! The mistakes that people make, by subject. Each gets a message with what is wrong,
//! where, and what to do about it. docs/troubleshooting.md has those at which nothing is
//! printed by itself.

mod classes;
mod commands;
mod configuration;
mod containers;
mod installer;

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

/// What is done wrong.
enum Wrong {
    /// The container's variables, separated by semicolons.
    Container(&'static str),
    /// A pod's container with this in config.toml.
    Pod(&'static str),
    /// A part of a correct class file, and its replacement.
    Class(&'static str, &'static str),
    /// A file of the host: its path and text.
    Host(&'static str, &'static str),
    /// A file among the class files.
    File(&'static str, &'static str),
    /// A line of config.toml.
    Config(&'static str),
    /// The mode of the class file or of config.toml.
    Mode(&'static str, u32),
    /// What was run before.
    After(&'static [&'static str]),
    /// The user is not root.
    User,
    /// None: the command line is wrong.
    Command,
}

struct Mistake {
    name: &'static str,
    wrong: Wrong,
    /// What is run: `boathook`, unless the first word is `boathook-init`. `BUNDLE`, `CLASS`,
    /// `CLASSES` and `HOST` are the container's, the class file, its directory and the
    /// host's root.
    run: &'static [&'static str],
    code: i32,
    /// What is wrong, where, and what to do.
    printed: [&'static str; 3],
}

const DOCTOR: &[&str] = &["doctor", "--bundle", "BUNDLE"];
const CHECK: &[&str] = &["check"];
const CLASS_CHECK: &[&str] = &["class", "check", "CLASS"];

fn container(env: &str) -> Value {
    let env: Vec<&str> = env.split(';').collect();
    json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"env": env}})
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
    /// What comes of it; nothing without the right to be another user.
    fn make(&self) -> Option<Captured> {
        let host = host();
        let mut config = container("PATH=/bin");
        let mut before = None;
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
            Wrong::Host(path, text) => host.add_file(path, text).unwrap(),
            Wrong::File(name, text) => fs::write(host.classes().join(name), text).unwrap(),
            Wrong::Config(line) => host.write_config(&format!("{line}\n")).unwrap(),
            Wrong::Mode(name, mode) => {
                let file = host.path().join(name);
                fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
            }
            Wrong::After(command) => before = Some(command),
            Wrong::User if !nix::unistd::geteuid().is_root() => return None,
            Wrong::User | Wrong::Command => {}
        }
        let bundle = bundle_of(&config);
        if let Some(command) = before {
            let mut command = self.command(command, &host, bundle.path());
            Captured::run(&mut command).unwrap().success().unwrap();
        }
        let mut command = self.command(self.run, &host, bundle.path());
        Some(Captured::run(&mut command).unwrap())
    }

    fn command(&self, words: &[&str], host: &HostDirectory, bundle: &Path) -> Command {
        let class = host.classes().join("thing.toml");
        let (classes, root) = (host.classes(), host.root());
        let is_init = words[0] == "boathook-init";
        let (name, words) = match is_init {
            true => (words[0], &words[1..]),
            false => ("boathook", words),
        };
        let mut program = binaries::program(name).unwrap();
        let mut command = match self.wrong {
            Wrong::User => {
                // The user may not be able to enter the build's own directory.
                let copy = host.path().join(name);
                binaries::copy(&program, &copy).unwrap();
                program = copy;
                let mut command = Command::new(&program);
                command.uid(4242).gid(4242);
                command
            }
            _ => {
                let mut command = with_private_run();
                command.arg(&program);
                command
            }
        };
        match is_init {
            true => command.arg("--host-root").arg(&root),
            false => command.arg("--config").arg(host.config_file()),
        };
        for word in words {
            match *word {
                "BUNDLE" => command.arg(bundle),
                "CLASS" => command.arg(&class),
                "CLASSES" => command.arg(&classes),
                "HOST" => command.arg(&root),
                "PROGRAMS" => command.arg(binaries::program(name).unwrap().parent().unwrap()),
                word => command.arg(word.replace("CLASSES/", &format!("{}/", classes.display()))),
            };
        }
        command
    }
}

fn all() -> impl Iterator<Item = &'static Mistake> {
    let subjects: [&[Mistake]; 5] = [
        &containers::MISTAKES,
        &classes::MISTAKES,
        &configuration::MISTAKES,
        &commands::MISTAKES,
        &installer::MISTAKES,
    ];
    subjects.into_iter().flatten()
}

#[test]
fn every_common_mistake_gets_a_message_that_names_the_fix() {
    let mut wrong = Vec::new();
    for mistake in all() {
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

/// The table of the documentation, but for what `runc::doctor` tries.
#[test]
fn every_documented_mistake_is_tried() {
    let path = binaries::source_tree().join("docs/troubleshooting.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once("## Common mistakes").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let rows = rows.skip(1).filter_map(|row| row.split(" | ").next());
    let mut documented: Vec<&str> = rows.collect();
    assert!(documented.len() > 8);
    documented.truncate(documented.len() - 2);
    for row in documented {
        assert!(all().any(|mistake| mistake.name == row), "{row}");
    }
}
