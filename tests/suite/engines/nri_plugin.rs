//! `boathook-plugin` beside an engine, as a plugin of it.

use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use harness::binaries;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::machine::Machine;

/// Where containerd listens for plugins, without any configuration.
const SOCKET: &str = "/var/run/nri/nri.sock";

/// How long the plugin may take to connect again.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running plugin. It ends with the machine.
pub(super) struct NriPlugin<'a> {
    machine: &'a Machine,
    name: String,
    /// The process that entered the machine's namespaces.
    outside: Child,
}

impl<'a> NriPlugin<'a> {
    /// Starts one that logs to `NAME.log`, and waits until the engine has accepted
    /// it.
    pub(super) fn start(machine: &'a Machine, name: &str) -> Result<Self> {
        let mut command = machine
            .private
            .command(binaries::program("boathook-plugin")?);
        command
            .args(["run", "--nri", SOCKET, "--hook"])
            .arg(binaries::program("boathook")?)
            .arg("--kubelet-dir")
            .arg(format!("/run/{name}"));
        let log = machine.path(&format!("{name}.log"));
        let connected = || fs::read_to_string(&log).is_ok_and(|text| text.contains(CONNECTED));
        Ok(Self {
            machine,
            name: name.to_owned(),
            outside: machine.start(name, &mut command, connected)?,
        })
    }

    pub(super) fn log(&self) -> Result<String> {
        let log = self.machine.path(&format!("{}.log", self.name));
        Ok(fs::read_to_string(log)?)
    }

    /// How often an engine has accepted it.
    pub(super) fn connections(&self) -> Result<usize> {
        Ok(self.log()?.matches(CONNECTED).count())
    }

    /// Waits until an engine has accepted it this often.
    pub(super) fn wait_connections(&self, count: usize) -> Result<()> {
        let start = Instant::now();
        while self.connections()? < count {
            if start.elapsed() > PATIENCE {
                bail!("not connected {count} times: {}", self.log()?);
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Sends a signal to the plugin itself.
    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        signal_child(&self.outside, signal)
    }
}

impl Drop for NriPlugin<'_> {
    fn drop(&mut self) {
        proceed(&self.outside);
    }
}

/// The plugin's log line when the engine sends requests for containers.
const CONNECTED: &str = "NRI: connected";

/// Sends a signal to the process that a child of this test started in other
/// namespaces.
pub(super) fn signal_child(outside: &Child, signal: Signal) -> Result<()> {
    let id = outside.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))?;
    let inside: i32 = children.trim().parse().context("it has no process")?;
    kill(Pid::from_raw(inside), signal)?;
    if signal != Signal::SIGSTOP {
        proceed(outside);
    }
    Ok(())
}

/// Lets nsenter run, which stops with its child. A stopped one would not take the end
/// of its child, nor would the namespaces end then.
fn proceed(outside: &Child) {
    if let Ok(id) = outside.id().try_into() {
        // It may have ended already.
        let _ = kill(Pid::from_raw(id), Signal::SIGCONT);
    }
}
