//! A node for one test: a host tree, class files, and the plugin as a process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use harness::kubelet::{Config, DeviceReport, Event, FakeKubelet, RegisterFault};
pub(crate) use harness::patience::PATIENCE;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

pub(crate) const PLUGIN: &str = env!("CARGO_BIN_EXE_boathook-plugin");

/// The resource of [`NPUS`].
pub(crate) const NPU: &str = "dummy.com/npu";

/// 64 devices that are always there.
pub(crate) const NPUS: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ count = 64 }]
device = { id = "npu-{index}", index = "{index}" }
"#;

/// Cards of several models, each a resource, with health and NUMA nodes.
pub(crate) const CARDS: &str = r#"
version = 1
resource = "cards.example/{model}"
request = { env = "CARD_VISIBLE_DEVICES" }

[[discover]]
path = "/dev/card{index:number}"
attributes = [{ name = "model", file = "/sys/card{index}/model" }]

[device]
id = "card-{index}"
index = "{index}"
numa = "/sys/card{index}"
health = [{ file = "/sys/card{index}/health", equals = "ok" }]
env = { CARD_PORT = "/ports/{index}" }
"#;

/// The resource of cards of one model.
pub(crate) const MARK_1: &str = "cards.example/mark-1";

pub(crate) struct Node {
    root: TempDir,
    plugin: Option<Child>,
    rescan: &'static str,
    arguments: Vec<String>,
    /// The command that becomes the plugin, with its arguments.
    within: Vec<String>,
}

impl Node {
    /// A node with these class files; nothing runs on it yet.
    pub(crate) fn new(classes: &[(&str, &str)]) -> Self {
        let root = tempfile::Builder::new().prefix("bh").tempdir().unwrap();
        for directory in ["classes", "host/dev", "host/sys", "kubelet"] {
            fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        let node = Node {
            root,
            plugin: None,
            rescan: "0.1",
            arguments: Vec::new(),
            within: Vec::new(),
        };
        for (name, text) in classes {
            node.write(&format!("classes/{name}.toml"), text);
        }
        node.configure("");
        node
    }

    /// Writes config.toml with these further lines.
    pub(crate) fn configure(&self, further: &str) {
        let [classes, host] = ["classes", "host"].map(|name| self.path(name));
        let text = format!("classes = [{classes:?}]\nhost_root = {host:?}\n{further}");
        self.write("config.toml", &text);
    }

    /// Without rescans in the time of a test: what is seen is told by events.
    pub(crate) fn without_rescans(mut self) -> Self {
        self.rescan = "3600";
        self
    }

    /// Further arguments for the plugin.
    pub(crate) fn with_arguments(mut self, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        self.arguments.extend(arguments);
        self
    }

    /// Starts the plugin by a command that ends in `exec`.
    pub(crate) fn within(mut self, command: &[&str]) -> Self {
        self.within = command.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    pub(crate) fn write(&self, relative: &str, text: &str) {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn remove(&self, relative: &str) {
        fs::remove_file(self.path(relative)).unwrap();
    }

    /// A card for the class [`CARDS`].
    pub(crate) fn add_card(&self, index: u32, model: &str, numa: i32) {
        let numa = format!("{numa}\n");
        for (file, text) in [("model", model), ("health", "ok\n"), ("numa_node", &numa)] {
            self.write(&format!("host/sys/card{index}/{file}"), text);
        }
        self.write(&format!("host/dev/card{index}"), "");
    }

    pub(crate) fn kubelet(&self) -> FakeKubelet {
        FakeKubelet::start(Config::new(&self.path("kubelet"))).unwrap()
    }

    /// A kubelet that registers plugins badly.
    pub(crate) fn faulty_kubelet(&self, register: RegisterFault) -> FakeKubelet {
        let config = Config::new(&self.path("kubelet"));
        FakeKubelet::start(Config { register, ..config }).unwrap()
    }

    pub(crate) fn sockets(&self) -> Vec<String> {
        // The directory may not be there yet.
        let entries = fs::read_dir(self.path("kubelet/device-plugins"));
        let names = entries
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("boathook-")).collect();
        names.sort();
        names
    }

    /// The plugin's socket for a resource whose name is short.
    pub(crate) fn socket(&self, resource: &str) -> PathBuf {
        let name = format!("boathook-{}.sock", resource.replace('/', "_"));
        self.path("kubelet/device-plugins").join(name)
    }

    /// A further plugin for the same kubelet.
    pub(crate) fn second_plugin(&self) -> SecondPlugin {
        SecondPlugin(self.command().spawn().unwrap())
    }

    /// The command of the plugin, with its messages in the node's `log`.
    fn command(&self) -> Command {
        let plugin = PLUGIN.to_owned();
        let mut words = self.within.iter().chain([&plugin]);
        let mut command = Command::new(words.next().unwrap_or(&plugin));
        command.args(words).arg("run").args(self.directories());
        command.args(["--rescan", self.rescan, "--forget=0.3"]);
        command.arg("--cdi").arg(self.path("cdi"));
        command.args(&self.arguments);
        let mut log = File::options();
        let log = log.create(true).append(true).open(self.path("log"));
        command.env_clear().stdout(Stdio::null());
        command.stderr(log.unwrap());
        // For the command that it is started by.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// What `boathook-plugin list` says.
    pub(crate) fn list(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(PLUGIN);
        command.arg("list").args(self.directories());
        command.args(arguments).output().unwrap()
    }

    fn directories(&self) -> [OsString; 4] {
        let [config, kubelet] = ["config.toml", "kubelet"].map(|name| self.path(name).into());
        ["--config".into(), config, "--kubelet-dir".into(), kubelet]
    }

    pub(crate) fn start_plugin(&mut self) {
        self.plugin = Some(self.command().spawn().unwrap());
    }

    /// Starts a kubelet and the plugin, and waits until the kubelet has the devices
    /// of a resource.
    pub(crate) fn serve(&mut self, resource: &str) -> FakeKubelet {
        let kubelet = self.kubelet();
        self.start_plugin();
        kubelet.wait_devices(PATIENCE, resource).unwrap();
        kubelet
    }

    pub(crate) fn pid(&self) -> u32 {
        self.plugin.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().try_into().unwrap()), signal).unwrap();
    }

    /// Sends a signal and waits for the end: its status, and how long it took.
    pub(crate) fn end_plugin(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        self.signal(signal);
        let since = Instant::now();
        let status = self.plugin.take().unwrap().wait().unwrap();
        (status, since.elapsed())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the log has a text.
    pub(crate) fn wait_log(&self, wanted: &str) {
        wait_until(wanted, || self.log().contains(wanted));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the plugin's log:\n{}", self.log());
        }
        if self.plugin.is_some() {
            let (status, _) = self.end_plugin(Signal::SIGTERM);
            let has_ended = status.signal().is_none();
            assert!(has_ended || std::thread::panicking(), "{status}");
        }
    }
}

/// A plugin beside a node's own, killed at its end.
pub(crate) struct SecondPlugin(Child);

impl SecondPlugin {
    pub(crate) fn kill(&mut self) {
        // One that has ended already is none the worse for it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for SecondPlugin {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for a list of devices, of any resource, of which this is true.
pub(crate) fn wait_list(kubelet: &FakeKubelet, is_it: impl Fn(&[DeviceReport]) -> bool) {
    let wanted = |event: &Event| match event {
        Event::Devices { devices, .. } => is_it(devices),
        _ => false,
    };
    kubelet.wait(PATIENCE, wanted).unwrap();
}

pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    let held = harness::patience::wait_until(holds);
    assert!(held, "not in {PATIENCE:?}: {what}");
}
