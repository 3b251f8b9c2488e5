//! A plugin that runs with a fake kubelet, and measurements of the two.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::binaries;
use harness::kubelet::{Config, Event, FakeKubelet};
use harness::patience::PATIENCE;
use harness::recorded_host::RecordedHost;
use tempfile::TempDir;

/// The clock ticks per second in /proc/PID/stat (`USER_HZ`, 100 on all common architectures).
const TICKS: f64 = 100.0;

/// The default interval in seconds between scans of a plugin.
pub(crate) const USUAL: &str = "10";

/// A shorter interval in seconds between scans.
pub(crate) const OFTEN: &str = "1";

/// A class whose devices are the files of a directory.
pub(crate) const WATCHED: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ path = "/dev/npu{index:number}" }]
device = { id = "npu-{index}", index = "{index}" }
"#;

/// Returns a class of `count` devices that always exist.
pub(crate) fn virtual_devices(count: usize) -> String {
    WATCHED.replace(
        r#"path = "/dev/npu{index:number}""#,
        &format!("count = {count}"),
    )
}

/// Returns a class of `devices` devices that always exist, each shared by `replicas` containers.
pub(crate) fn shares(devices: usize, replicas: usize) -> String {
    let class = virtual_devices(devices);
    format!("{class}sharing = {{ replicas = {replicas} }}\n")
}

/// The resource of [`WATCHED`].
const DUMMY: &str = "dummy.com/npu";

pub(crate) struct Node {
    root: TempDir,
    /// The devices of [`Node::start_gpus`].
    _recorded: Option<RecordedHost>,
    resource: &'static str,
    /// Returns the milliseconds from the start of the plugin to its first list of devices.
    started: f64,
    kubelet: FakeKubelet,
    plugin: Child,
    ids: Vec<String>,
}

impl Node {
    /// Starts plugin and kubelet; the plugin scans its devices every `rescan` seconds.
    pub(crate) fn start(class: &str, rescan: &str) -> Result<Self> {
        let root = tempfile::Builder::new().prefix("bh").tempdir()?;
        let at = |name: &str| root.path().join(name);
        for directory in ["classes", "host/dev"] {
            fs::create_dir_all(at(directory))?;
        }
        for index in 0..2 {
            fs::write(at("host/dev").join(format!("npu{index}")), "")?;
        }
        fs::write(at("classes/npu.toml"), class)?;
        let config = format!(
            "classes = [{:?}]\nhost_root = {:?}\n",
            at("classes"),
            at("host")
        );
        let config_file = at("config.toml");
        fs::write(&config_file, config)?;
        Self::start_plugin(root, None, &config_file, DUMMY, rescan)
    }

    /// Starts both on a recorded host with four GPUs, with all classes that are shipped.
    pub(crate) fn start_gpus() -> Result<Self> {
        let record = binaries::source_tree().join("device-class/testdata/amd-gpu/xgmi/host.txt");
        let host = RecordedHost::bare(&fs::read_to_string(record)?)?;
        host.install_all_shipped_classes()?;
        host.write_config("")?;
        let root = tempfile::Builder::new().prefix("bh").tempdir()?;
        let config = host.config_file();
        Self::start_plugin(root, Some(host), &config, "amd.com/gpu", USUAL)
    }

    fn start_plugin(
        root: TempDir,
        recorded: Option<RecordedHost>,
        config: &Path,
        resource: &'static str,
        rescan: &str,
    ) -> Result<Self> {
        let at = |name: &str| root.path().join(name);
        let kubelet = FakeKubelet::start(Config::new(&at("kubelet")))?;
        let since = Instant::now();
        let plugin = Command::new(binaries::program("boathook-plugin")?)
            .arg("--kubelet-dir")
            .arg(at("kubelet"))
            .arg("--config")
            .arg(config)
            .args(["--rescan", rescan])
            .arg("--cdi")
            .arg(at("cdi"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start boathook-plugin")?;
        let mut node = Node {
            root,
            _recorded: recorded,
            resource,
            started: 0.0,
            kubelet,
            plugin,
            ids: Vec::new(),
        };
        node.ids = node.wait_for_devices()?;
        node.started = since.elapsed().as_secs_f64() * 1e3;
        Ok(node)
    }

    /// Returns the milliseconds from the start of the plugin to its first list of devices.
    pub(crate) fn started(&self) -> f64 {
        self.started
    }

    /// Returns the ids of the devices in the first list that the kubelet received.
    pub(crate) fn ids(&self) -> &[String] {
        &self.ids
    }

    pub(crate) fn plugin_socket(&self) -> PathBuf {
        self.root
            .path()
            .join("kubelet/device-plugins/boathook-dummy.com_npu.sock")
    }

    fn wait_for_devices(&self) -> Result<Vec<String>> {
        let devices = self.kubelet.wait_devices(PATIENCE, self.resource)?;
        Ok(devices.into_iter().map(|device| device.id).collect())
    }

    /// Restarts the kubelet and returns the milliseconds from the creation of its socket to the
    /// registration of the plugin.
    pub(crate) fn restart_kubelet(&mut self) -> Result<f64> {
        self.kubelet.stop();
        let since = Instant::now();
        self.kubelet.resume()?;
        let registered = |event: &Event| matches!(event, Event::Registered { .. });
        self.kubelet.wait(PATIENCE, registered)?;
        let took = since.elapsed().as_secs_f64() * 1e3;
        self.wait_for_devices()?;
        Ok(took)
    }

    /// Removes a device node and returns the milliseconds until the kubelet is notified.
    pub(crate) fn unplug(&mut self) -> Result<f64> {
        let path = self.root.path().join("host/dev/npu1");
        std::thread::sleep(Duration::from_millis(200));
        let since = Instant::now();
        fs::remove_file(&path)?;
        self.wait_for_devices()?;
        let took = since.elapsed().as_secs_f64() * 1e3;
        fs::write(&path, "")?;
        self.wait_for_devices()?;
        Ok(took)
    }

    /// Returns the resident memory of the plugin (`VmRSS`) in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.plugin.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line
            .and_then(|line| line.split_whitespace().next())
            .context("no VmRSS")?;
        Ok(kib.parse::<f64>()? / 1024.0)
    }

    /// CPU time since the start (fields 14 and 15 of proc_pid_stat(5)).
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.plugin.id()))?;
        let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = fields.get(11..13).context("too few fields in stat")?;
        Ok((ticks[0].parse::<f64>()? + ticks[1].parse::<f64>()?) / TICKS)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.plugin.kill();
        let _ = self.plugin.wait();
    }
}
