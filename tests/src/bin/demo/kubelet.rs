//! The program `fake-kubelet`: it prints events and takes commands, a line of
//! JSON each.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use harness::binaries;
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long an event may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// A running fake kubelet with a directory of its own. Stopped when dropped.
pub(crate) struct DemoKubelet {
    directory: TempDir,
    process: Child,
    commands: ChildStdin,
    events: Receiver<Value>,
}

/// What the kubelet passes on from the plugin to the engine.
#[derive(Debug, Deserialize)]
pub(crate) struct Allocation {
    /// Environment variables for the container.
    pub(crate) envs: BTreeMap<String, String>,
    /// Annotations for the container.
    pub(crate) annotations: BTreeMap<String, String>,
}

impl DemoKubelet {
    pub(crate) fn start() -> Result<Self> {
        // In /tmp, because the path of a socket has 107 bytes at most.
        let directory = tempfile::Builder::new()
            .prefix("boathook-kubelet-")
            .tempdir_in("/tmp")?;
        let mut process = Command::new(binaries::program("fake-kubelet")?)
            .arg("--dir")
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start fake-kubelet")?;
        let commands = process
            .stdin
            .take()
            .context("fake-kubelet has no standard input")?;
        let printed = process
            .stdout
            .take()
            .context("fake-kubelet has no standard output")?;
        Ok(Self {
            directory,
            process,
            commands,
            events: forward(printed),
        })
    }

    /// The directory in which plugins register.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Waits until a plugin offers devices of `resource`: how many.
    pub(crate) fn wait_for_devices(&mut self, resource: &str) -> Result<usize> {
        let event = self.wait_for("devices", |event| event["resource"] == resource)?;
        let devices = event["devices"]
            .as_array()
            .context("the event has no devices")?;
        Ok(devices.len())
    }

    /// Allocates devices as for a container.
    pub(crate) fn allocate(&mut self, resource: &str, ids: &[String]) -> Result<Allocation> {
        let command = json!({"allocate": {"resource": resource, "ids": ids}});
        writeln!(self.commands, "{command}").context("fake-kubelet takes no commands")?;
        let event = self.wait_for("allocated", |_| true)?;
        serde_json::from_value(event).context("the plugin's answer has no envs or annotations")
    }

    fn wait_for(&mut self, name: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
        let start = Instant::now();
        while let Ok(event) = self
            .events
            .recv_timeout(PATIENCE.saturating_sub(start.elapsed()))
        {
            if event["event"] == name && fits(&event) {
                return Ok(event);
            }
            if event["event"] == "error" {
                bail!("the kubelet met an error: {event}");
            }
        }
        bail!("the kubelet saw no event `{name}` within {PATIENCE:?}")
    }
}

impl Drop for DemoKubelet {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to stop.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl fmt::Display for Allocation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self
            .envs
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        formatter.write_str(&pairs.collect::<Vec<_>>().join(" "))
    }
}

/// Reads events in a thread, so that waiting for one can end.
fn forward(printed: ChildStdout) -> Receiver<Value> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let lines = BufReader::new(printed).lines().map_while(Result::ok);
        for event in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
            if sender.send(event).is_err() {
                return;
            }
        }
    });
    receiver
}
