//! Our own commands are run as they are written, on a host that the test makes of this
//! machine's files: nothing is written to the machine, and no daemon of it is reached.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use harness::captured::Captured;
use harness::private_host::PrivateHost;
use harness::{binaries, class_files, privilege};
use serde_json::json;

use super::{OURS, commands, mentioned, pages};

/// A command that runs until it is stopped: for a second here.
const SERVING: [&str; 3] = [
    "boathook-plugin run",
    "boathook follow",
    "boathook list --watch",
];

/// A placeholder in the documentation for a name of the reader's host.
const PLACEHOLDERS: [(&str, &str, &str); 9] = [
    ("boathook", "NAME", "4f1c2a"),
    (
        "boathook",
        "/etc/boathook/classes.d/acme.toml",
        "/etc/boathook/classes.d/mychip.toml",
    ),
    ("boathook", "/dev/ttyUSB0", "/dev/mychip0"),
    ("boathook", "CLASS", "dummy-npu"),
    ("boathook", "FILE", "/etc/boathook/classes.d/mychip.toml"),
    ("boathook", "DIR", "/run/bundle"),
    ("boathook", "DIRECTORY", "/tmp/another"),
    ("boathook-init", "DIR", "/etc/boathook/classes.d"),
    ("boathook-init", "NAME", "nvidia"),
];

/// The process of docs/troubleshooting.md.
const PID: &str = "4242";

/// The directory in which an engine keeps the bundle of the container of docs/troubleshooting.md.
const BUNDLES: [&str; 2] = [
    "/run/bundle",
    "/run/containerd/io.containerd.runtime.v2.task/k8s.io/4f1c2a9e0b7d",
];

/// The pod's uid.
const UID: &str = "7c7dd54d-787e-4d2a-16bb-d8e6ec744689";

/// Whether a command of ours runs until it is stopped.
fn serves(command: &str) -> bool {
    let mut serving = SERVING.iter();
    serving.any(|it| command.starts_with(it)) && !command.ends_with("--help")
}

#[test]
fn our_commands_succeed_as_they_are_written() {
    let mut ours = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let of_blocks = commands(&text).into_iter().map(|command| (command, false));
        let of_text = mentioned(&text).into_iter().map(|command| (command, true));
        for (command, in_text) in of_blocks.chain(of_text) {
            let command = command.trim_start_matches("sudo ").to_owned();
            if OURS.contains(&command.split(' ').next().unwrap()) {
                ours.push((command, in_text));
            }
        }
    }
    assert!(ours.len() > 50, "{}", ours.len());

    let test = "documentation: commands are run";
    if let Some(reason) = privilege::missing_for_engines() {
        return skip::report(test, &reason);
    }
    let host = Host::new();
    let failed: Vec<String> = ours
        .into_iter()
        .filter_map(|(command, in_text)| host.problem(&command, in_text))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The steps of docs/class-ci.md, in the directory of the class file. The first one installs a
/// release, which the host has.
#[test]
fn the_steps_for_the_ci_of_a_class_work() {
    if let Some(reason) = privilege::missing_for_engines() {
        return skip::report("documentation: the CI of a class", &reason);
    }
    let page = binaries::source_tree().join("docs/class-ci.md");
    let text = fs::read_to_string(page).unwrap();
    let (_, block) = text.split_once("```yaml\n").unwrap();
    let lines: Vec<&str> = block.split("```").next().unwrap().lines().collect();
    assert_eq!(lines.len(), 10);
    let steps = lines
        .iter()
        .filter_map(|line| line.trim().strip_prefix("- run: "));
    let steps = steps.filter(|step| !step.starts_with("curl "));
    let steps: Vec<String> = steps.map(|step| step.replace("sudo ", "")).collect();
    assert_eq!(steps.len(), 4);

    let host = Host::new();
    host.succeeds(&super::block("docs/class-ci.md", "## Record a host"));
    // The checkout belongs to the user of the CI.
    host.succeeds("chown 1001 mychip.toml; rm /dev/mychip0 /etc/boathook/classes.d/mychip.toml");
    for step in &steps {
        host.succeeds(step);
    }
    // A class that finds something else fails at the first step.
    host.succeeds("sed -i s/mychip-{index}/other-{index}/ mychip.toml");
    let ran = host.run(&steps[0]);
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert!(ran.stdout.contains("\n- mychip-0 "), "{}", ran.stdout);
}

/// The machine of somebody who has installed the package and reads the documentation.
struct Host {
    private: PrivateHost,
    /// A process with a request.
    pid: String,
}

impl Host {
    fn new() -> Self {
        let mut host = Host {
            private: PrivateHost::with_root(Some(Path::new("/")), &[]).unwrap(),
            pid: String::new(),
        };
        host.succeeds(
            "mount -t tmpfs -o mode=755 dev /dev
            mknod -m 666 /dev/null c 1 3; mknod -m 600 /dev/mychip0 c 10 183
            mkdir -p /var/lib/kubelet/device-plugins",
        );
        host.package();
        host.write("/etc/boathook/classes.d/mychip.toml", &class_of_readme());
        host.write("/root/mychip.toml", &class_of_readme());
        let trusted = "[trust]\ntrusted_pods = ['default/training']\n";
        host.write("/etc/boathook/config.toml", trusted);
        for bundle in BUNDLES {
            let config = format!("{bundle}/config.json");
            host.write(&config, &of_a_pod().to_string());
        }
        host.succeeds("boathook-init install");
        host.succeeds("boathook class record --class mychip /tmp/recorded");
        let started = host
            .succeeds("DUMMY_VISIBLE_DEVICES=0 sleep 1000 </dev/null >/dev/null 2>&1 & echo $!");
        host.pid = started.trim().to_owned();
        host
    }

    /// Adds the files of the package: the programs, and links in /usr/bin.
    fn package(&self) {
        let home = "/usr/lib/boathook";
        let bin = self.private.file(home).join("bin");
        fs::create_dir_all(&bin).unwrap();
        for name in [
            "boathook",
            "boathook-hook",
            "boathook-runtime",
            "boathook-init",
            "boathook-plugin",
            // Of the image beside the nodes.
            "boathook-dra",
        ] {
            binaries::copy(&binaries::program(name).unwrap(), &bin.join(name)).unwrap();
            let link = self.private.file("/usr/bin").join(name);
            symlink(format!("{home}/bin/{name}"), link).unwrap();
        }
        let classes = self.private.file(home).join("classes.d");
        fs::create_dir(&classes).unwrap();
        class_files::copy_all(&classes).unwrap();
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.private.file(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn run(&self, line: &str) -> Captured {
        let mut shell = self.private.command("/bin/sh");
        let line = format!("cd /root\n{line}");
        shell.args(["-c", line.as_str()]).env("HOME", "/root");
        shell.env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
        Captured::run(&mut shell).unwrap()
    }

    fn succeeds(&self, line: &str) -> String {
        self.run(line).success().unwrap().stdout
    }

    /// Returns the fault of a command.
    fn problem(&self, command: &str, in_text: bool) -> Option<String> {
        let line = self.filled_in(command);
        // There is no cluster.
        let line = line.split(" | kubectl").next().unwrap_or_default();
        let (line, expected) = if serves(command) {
            (format!("timeout 1 {line}"), 124)
        } else if command.starts_with("boathook doctor --pid") {
            // The process is in no container, and has no device.
            (line.to_owned(), 17)
        } else if command.starts_with("boathook doctor --device") {
            // The host has no such device.
            (line.to_owned(), 15)
        } else {
            (line.to_owned(), 0)
        };
        let ran = self.run(&line);
        if command.starts_with("boathook-init uninstall") {
            self.succeeds("boathook-init install");
        }
        let code = ran.status.code();
        // This host has no container that runs: `suite/live` has the rest.
        let in_container = ["attach", "detach", "refresh"].map(|it| format!("boathook {it} "));
        let is_without = in_container.iter().any(|it| command.starts_with(it))
            && code == Some(2)
            && ran.stderr.contains("no container ");
        // `boathook explain` in a sentence is a command's name.
        let is_name = in_text
            && code == Some(2)
            && ran.stderr.contains("required arguments were not provided");
        (code != Some(expected) && !is_name && !is_without).then(|| {
            format!(
                "`{command}` ended with {code:?}: {}{}",
                ran.stderr, ran.stdout
            )
        })
    }

    /// The command with names of this host.
    fn filled_in(&self, command: &str) -> String {
        let program = command.split(' ').next().unwrap();
        let fill = |word: &str| {
            let mut known = PLACEHOLDERS.iter();
            let found = known.find(|(of, name, _)| *of == program && *name == word);
            match found {
                Some((_, _, actual)) => (*actual).to_owned(),
                None if word == PID => self.pid.clone(),
                None => word.to_owned(),
            }
        };
        let words: Vec<String> = command.split(' ').map(fill).collect();
        words.join(" ")
    }
}

/// The class file of README.md.
fn class_of_readme() -> String {
    let text = fs::read_to_string(binaries::source_tree().join("README.md")).unwrap();
    let (_, section) = text.split_once("## Write a class").unwrap();
    let (_, block) = section.split_once("```toml\n").unwrap();
    block.split("```").next().unwrap().to_owned()
}

/// The config.json of a pod's container with a request and Boathook's hook.
fn of_a_pod() -> serde_json::Value {
    json!({
        "ociVersion": "1.0.2",
        "root": {"path": "rootfs"},
        "process": {"env": ["DUMMY_VISIBLE_DEVICES=0"]},
        "annotations": {
            "io.kubernetes.cri.container-name": "c",
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.sandbox-uid": UID,
            "io.kubernetes.cri.sandbox-namespace": "default",
            "io.kubernetes.cri.sandbox-name": "training",
        },
        "hooks": {"createRuntime": [{"path": "/opt/boathook/current/bin/boathook-hook"}]},
        "linux": {"cgroupsPath": format!("/kubepods/pod{UID}/c")},
    })
}
