//! Facts from programs that fail in every way that an administrator could meet: what the
//! programs of a release make of them.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use harness::in_root;
use harness::node::Node;
use harness::privilege::missing_for_root;
use harness::rootfs::BUSYBOX;
use serde_json::Value;

use crate::said::assert_says;

const FILE: &str = "run/boathook/facts/chips";

const CLASS: &str = r#"
version = 1
resource = "facts.com/{model}"
request = { env = "CHIPS" }
device = { id = "chip-{index}", index = "{index}" }

[[facts]]
program = ["/bin/busybox", "sh", "/script"]
timeout = 1
[[facts.lines]]
line = '^smi (?<version>.+)$'
facts = { version = "{version}" }
[[facts.lines]]
line = '^chip (?<chip>[0-9]+): (?<model>.+)$'
facts = { "{chip}" = "{model}" }

[[discover]]
count = 2
attributes = [{ name = "model", fact = "{index}", default = "chip" }]
"#;

/// A host whose driver has this program: a shell that runs a script.
struct Host(HostDirectory);

impl Host {
    /// `None`: not on this machine.
    fn new(test: &str) -> Option<Self> {
        let busybox = Path::new(BUSYBOX).exists();
        let missing = missing_for_root().or((!busybox).then(|| format!("needs {BUSYBOX}")));
        if let Some(reason) = missing {
            skip::report(test, &reason);
            return None;
        }
        let host = HostDirectory::new().unwrap();
        fs::remove_file(host.classes().join("dummy-npu.toml")).unwrap();
        host.add_class("chips", CLASS).unwrap();
        let class = host.classes().join("chips.toml");
        in_root::install(&host.root(), &["boathook", "boathook-plugin"], &class).unwrap();
        fs::create_dir_all(host.root().join("bin")).unwrap();
        binaries::copy(Path::new(BUSYBOX), &host.root().join("bin/busybox")).unwrap();
        Some(Self(host))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.root().join(name)
    }

    /// The shell has no other programs than its own.
    fn script(&self, script: &str) {
        fs::write(self.path("script"), script).unwrap();
    }

    fn run(&self, command: &[&str]) -> Captured {
        in_root::run(&self.0.root(), command).unwrap()
    }

    /// Returns the facts that `boathook facts` reports of the class.
    fn facts(&self) -> Value {
        let ran = self.run(&["/boathook", "facts", "chips", "--json"]);
        let told: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
        let told = &told["classes"];
        let faults = told[0]["faults"].as_array().unwrap().len();
        assert_eq!(ran.status.success(), faults == 0, "{ran:?}");
        told[0].clone()
    }

    /// The resources, sorted, as the hook and the plugin see them, and what the first one noted.
    fn resources(&self) -> (Vec<String>, String) {
        let of = |devices: &Value| -> Vec<String> {
            let devices = devices.as_array().unwrap().iter();
            let resources = devices.map(|one| one["resource"].as_str().unwrap().to_owned());
            let mut resources: Vec<_> = resources.collect();
            resources.sort();
            resources
        };
        let listed = self.run(&["/boathook", "list", "--json"]);
        let offered = self.run(&["/boathook-plugin", "list", "--json"]);
        let json = |ran: &Captured| -> Value {
            serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"))
        };
        let resources = of(&json(&listed)["devices"]);
        assert_eq!(resources, of(&json(&offered)["devices"]));
        (resources, listed.stderr)
    }
}

const WITHOUT: [&str; 2] = ["facts.com/chip", "facts.com/chip"];

#[test]
fn a_program_that_cannot_be_used_is_reported() {
    let Some(host) = Host::new("a_program_that_cannot_be_used_is_reported") else {
        return;
    };
    let good = "echo smi 1.2; echo chip 0: fast; echo chip 1: slow";
    let killed = "took longer than 1 seconds and was killed";
    let nothing = "printed nothing that the class knows";
    for (script, reason) in [
        ("sleep 30 & sleep 30", killed),
        ("while :; do echo chip 0: fast; done", killed),
        ("echo chip 0: fast; exit 9", "failed (exit status: 9)"),
        ("kill -SEGV $$", "failed (signal: 11"),
        ("echo '<chip id=0 model=fast/>'", nothing),
        ("head -c 4000 /bin/busybox", nothing),
    ] {
        host.script(good);
        let told = host.facts();
        assert_eq!(told["version"], "1.2", "{told}");
        assert_eq!(host.resources().0, ["facts.com/fast", "facts.com/slow"]);
        host.script(script);
        let told = host.facts();
        let fault = told["faults"][0].as_str().unwrap();
        assert!(fault.contains(reason), "{script}: {fault}");
        // The facts that the program reported before are still true.
        assert!(told["file"].is_string(), "{told}");
        let (resources, noted) = host.resources();
        let before = ["facts.com/fast", "facts.com/slow"];
        assert_eq!(resources, before, "{script}");
        assert!(!noted.contains("boathook facts"), "{noted}");
        fs::remove_file(host.path(FILE)).unwrap();
        host.facts();
        let (resources, noted) = host.resources();
        if !script.starts_with("echo chip 0: fast") {
            assert_eq!(resources, WITHOUT, "{script}");
            assert!(noted.contains("run `boathook facts chips`"), "{noted}");
        }
    }
}

#[test]
fn hostile_output_does_no_harm() {
    let Some(host) = Host::new("hostile_output_does_no_harm") else {
        return;
    };
    let [chip, fast] = ["facts.com/chip", "facts.com/fast"];
    for (script, wanted) in [
        // 100 MB, of which the beginning is read, unless it takes too long.
        ("echo chip 0: fast; yes yyyyyyyy | head -c 100000000", None),
        (
            r"printf 'chip 0: \033[2J\nchip 1: fast\n'",
            Some(vec![chip, fast]),
        ),
        (
            r"printf 'chip 0: a\tb\nchip 1: \303\050\n'",
            Some(WITHOUT.to_vec()),
        ),
        (
            "echo chip 0: ../../etc; echo chip 1: fast",
            Some(vec![fast]),
        ),
        (
            "echo 'chip 0: $(touch /touched)'; echo chip 1: fast",
            Some(vec![fast]),
        ),
        (
            "echo chip 0: boathook uptime; echo chip 1: fast",
            Some(vec![fast]),
        ),
        (
            "echo chip 0: $(head -c 5000 /dev/zero | tr '\\0' x); echo chip 1: fast",
            Some(vec![chip, fast]),
        ),
    ] {
        // Facts of the earlier output would stay beside those of a new one that lacks them.
        let _ = fs::remove_file(host.path(FILE));
        host.script(script);
        host.facts();
        let text = fs::read_to_string(host.path(FILE)).unwrap_or_default();
        assert!(text.len() < 1000 && !text.contains('\u{1b}'), "{text:.300}");
        let (resources, _) = host.resources();
        if let Some(wanted) = wanted {
            assert_eq!(resources, wanted, "{script}");
        }
    }
    assert!(!host.path("touched").exists());
}

#[test]
fn a_program_and_facts_of_others_are_not_used() {
    let Some(host) = Host::new("a_program_and_facts_of_others_are_not_used") else {
        return;
    };
    host.script("echo chip 0: fast; : >/touched");
    chown(host.path("bin/busybox"), Some(1000), None).unwrap();
    let told = host.facts();
    let fault = told["faults"][0].as_str().unwrap();
    assert_says(fault, &["cannot be run", "chown"]);
    assert!(!host.path("touched").exists());

    chown(host.path("bin/busybox"), Some(0), None).unwrap();
    assert_eq!(host.facts()["faults"].as_array().unwrap().len(), 0);
    assert_eq!(host.resources().0, ["facts.com/chip", "facts.com/fast"]);
    chown(host.path(FILE), Some(1000), None).unwrap();
    let (resources, noted) = host.resources();
    assert_eq!(resources, WITHOUT);
    assert_says(&noted, &["/run/boathook/facts/chips is not used"]);
}

/// The plugin offers the devices nevertheless, after the deadline.
#[test]
fn a_program_that_hangs_does_not_stop_the_plugin() {
    let Some(host) = Host::new("a_program_that_hangs_does_not_stop_the_plugin") else {
        return;
    };
    host.script("sleep 30 & sleep 30");
    let node = Node::start(&host.0, "", "facts.com/chip").unwrap();
    assert_eq!(node.devices(), 2);
    node.stop().unwrap();
    assert!(!host.path(FILE).exists());
}

/// Resources and ids that depend on facts stay if the program fails when the plugin starts
/// again.
#[test]
fn a_restart_of_the_plugin_keeps_facts_that_a_program_cannot_report_now() {
    let name = "a_restart_of_the_plugin_keeps_facts_that_a_program_cannot_report_now";
    let Some(host) = Host::new(name) else {
        return;
    };
    for script in [
        "echo chip 0: fast; echo chip 1: slow",
        "echo chip 0: fast; exit 15",
        "exit 9",
    ] {
        host.script(script);
        for resource in ["facts.com/fast", "facts.com/slow"] {
            let node = Node::start(&host.0, "", resource).unwrap();
            assert_eq!(node.devices(), 1, "{script}");
            node.stop().unwrap();
        }
    }
}
