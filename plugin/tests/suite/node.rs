//! A node for one test: a host tree, class files, and the plugin as a process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
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

/// A class of 64 devices that exist on every host.
pub(crate) const NPUS: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ count = 64 }]
device = { id = "npu-{index}", index = "{index}" }
"#;

/// A class of cards with health and NUMA nodes. Each model is a separate resource.
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

/// The same class, with faults that the kernel logs, and no other check.
pub(crate) fn cards_with_logged_faults() -> String {
    let file = r#"health = [{ file = "/sys/card{index}/health", equals = "ok" }]"#;
    let log = r#"health = [{ kernel_log = "card{index}: fault ", codes = [7] }]"#;
    assert!(CARDS.contains(file));
    CARDS.replace(file, log)
}

/// The resource of the cards of the model `mark-1`.
pub(crate) const MARK_1: &str = "cards.example/mark-1";

pub(crate) struct Node {
    root: TempDir,
    plugin: Option<Child>,
    rescan: &'static str,
    arguments: Vec<String>,
    /// The command with arguments that starts the plugin with `exec`. An empty list starts the
    /// plugin directly.
    within: Vec<String>,
}

impl Node {
    /// Makes a node with the given class files, by name and text. Neither kubelet nor plugin
    /// runs yet.
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

    /// Writes config.toml with the directories of this node and the lines of `further`.
    pub(crate) fn configure(&self, further: &str) {
        let [classes, host] = ["classes", "host"].map(|name| self.path(name));
        let text = format!("classes = [{classes:?}]\nhost_root = {host:?}\n{further}");
        self.write("config.toml", &text);
    }

    /// Sets the time between rescans to an hour, so that the plugin notices changes by events
    /// only.
    pub(crate) fn without_rescans(mut self) -> Self {
        self.rescan = "3600";
        self
    }

    /// Adds arguments to the plugin's command line.
    pub(crate) fn with_arguments(mut self, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        self.arguments.extend(arguments);
        self
    }

    /// Lets the plugin be started by a command that ends with `exec`.
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

    /// Adds a card of the class [`CARDS`] to the host.
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

    /// Starts a kubelet that registers plugins with the given fault.
    pub(crate) fn faulty_kubelet(&self, register: RegisterFault) -> FakeKubelet {
        let config = Config::new(&self.path("kubelet"));
        FakeKubelet::start(Config { register, ..config }).unwrap()
    }

    pub(crate) fn sockets(&self) -> Vec<String> {
        // The directory does not exist before the first kubelet has started.
        let entries = fs::read_dir(self.path("kubelet/device-plugins"));
        let names = entries
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("boathook-")).collect();
        names.sort();
        names
    }

    /// Returns the path of the plugin's socket for a resource. The name must be so short that
    /// the plugin does not abbreviate it.
    pub(crate) fn socket(&self, resource: &str) -> PathBuf {
        let name = format!("boathook-{}.sock", resource.replace('/', "_"));
        self.path("kubelet/device-plugins").join(name)
    }

    /// Starts a second plugin for the same kubelet.
    pub(crate) fn second_plugin(&self) -> SecondPlugin {
        SecondPlugin(self.command().spawn().unwrap())
    }

    /// Starts the replacement of the plugin by a new instance, as `systemctl reload` does. Messages to
    /// the service manager are sent to the socket at `notify_socket`.
    pub(crate) fn replace_plugin(&self, notify_socket: &Path, arguments: &[&str]) -> SecondPlugin {
        let mut command = Command::new(PLUGIN);
        command.arg("replace").arg(self.pid().to_string());
        command.args(arguments).env("NOTIFY_SOCKET", notify_socket);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let log = File::options().append(true).open(self.path("log"));
        SecondPlugin(command.stderr(log.unwrap()).spawn().unwrap())
    }

    /// Returns the processes of the plugin that serve this node.
    pub(crate) fn list_instances(&self) -> Vec<u32> {
        let config = self.path("config.toml");
        let config = config.as_os_str().as_encoded_bytes();
        let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let command_line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let mut words = command_line.split(|byte| *byte == 0);
            words.any(|word| word == config).then_some(pid)
        });
        processes.collect()
    }

    /// Returns the command of the plugin. Its messages are appended to the node's file `log`.
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
        // The command that starts the plugin needs PATH. The plugin does not.
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    }

    /// Runs `boathook-plugin list` with the given arguments.
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

    /// Gives the plugin away, which the node then neither ends nor signals.
    pub(crate) fn take_plugin(&mut self) -> SecondPlugin {
        SecondPlugin(self.plugin.take().unwrap())
    }

    /// Starts a kubelet and the plugin, and waits until the kubelet has the devices of a
    /// resource.
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

    /// Sends a signal and waits for the end of the plugin. Returns its exit status and the
    /// time that it took.
    pub(crate) fn end_plugin(&mut self, signal: Signal) -> (ExitStatus, Duration) {
        self.signal(signal);
        let since = Instant::now();
        let status = self.plugin.take().unwrap().wait().unwrap();
        (status, since.elapsed())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Waits until the plugin's log contains a text.
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

/// A second plugin on a node. Dropping this value kills the plugin.
pub(crate) struct SecondPlugin(Child);

impl SecondPlugin {
    pub(crate) fn kill(&mut self) {
        // The process may have ended already, so errors are ignored.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    /// Sends a signal and waits for the end of the plugin.
    pub(crate) fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.0.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for SecondPlugin {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for a list of devices, of any resource, for which the predicate is true.
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
