//! The plugin with a fake kubelet, and measurements of them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::binaries;
use harness::kubelet::{Config, Event, FakeKubelet};
use harness::patience::PATIENCE;
use tempfile::TempDir;

/// Clock ticks a second in /proc/PID/stat (`USER_HZ`, 100 on every common
/// architecture).
const TICKS: f64 = 100.0;

/// The plugin's default scan interval, in seconds.
pub(crate) const USUAL: &str = "10";

/// More often than by default.
pub(crate) const OFTEN: &str = "1";

/// A class whose devices are files in a directory.
pub(crate) const WATCHED: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ path = "/dev/npu{index:number}" }]
device = { id = "npu-{index}", index = "{index}" }
"#;

/// A class of so many devices that are always there.
pub(crate) fn virtual_devices(count: usize) -> String {
    WATCHED.replace(
        r#"path = "/dev/npu{index:number}""#,
        &format!("count = {count}"),
    )
}

/// A class of so many devices that are always there, each shared by so many.
pub(crate) fn shares(devices: usize, replicas: usize) -> String {
    let class = virtual_devices(devices);
    format!("{class}sharing = {{ replicas = {replicas} }}\n")
}

pub(crate) struct Node {
    root: TempDir,
    kubelet: FakeKubelet,
    plugin: Child,
    ids: Vec<String>,
}

impl Node {
    /// Starts both; the plugin scans its devices every `rescan` seconds.
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
        fs::write(at("config.toml"), config)?;
        let kubelet = FakeKubelet::start(Config::new(&at("kubelet")))?;
        let plugin = Command::new(binaries::program("boathook-plugin")?)
            .arg("--kubelet-dir")
            .arg(at("kubelet"))
            .arg("--config")
            .arg(at("config.toml"))
            .args(["--rescan", rescan])
            .arg("--cdi")
            .arg(at("cdi"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start boathook-plugin")?;
        let mut node = Node {
            root,
            kubelet,
            plugin,
            ids: Vec::new(),
        };
        node.ids = node.wait_for_devices()?;
        Ok(node)
    }

    /// The devices of the kubelet's first list.
    pub(crate) fn ids(&self) -> &[String] {
        &self.ids
    }

    pub(crate) fn plugin_socket(&self) -> PathBuf {
        self.root
            .path()
            .join("kubelet/device-plugins/boathook-dummy.com_npu.sock")
    }

    fn wait_for_devices(&self) -> Result<Vec<String>> {
        let devices = self.kubelet.wait_devices(PATIENCE, "dummy.com/npu")?;
        Ok(devices.into_iter().map(|device| device.id).collect())
    }

    /// Milliseconds from the kubelet's socket to the registration.
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

    /// Milliseconds from the removal of a device's node to the kubelet's
    /// notification.
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

    /// MiB in memory (`VmRSS`).
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
