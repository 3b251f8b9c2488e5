//! Starts and stops the program `boathook-plugin`.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Error, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::binaries;

/// The directory of the plugins' sockets, below the kubelet's directory.
const SOCKETS: &str = "device-plugins";
/// The name of the kubelet's own socket, which exists before plugins start and after they end.
const KUBELET_SOCKET_NAME: &str = "kubelet.sock";

/// A running plugin. Dropping the value kills it, and [`PluginProcess::stop`] ends it as the
/// kubelet does.
#[derive(Debug)]
pub struct PluginProcess {
    process: Child,
    said: File,
}

impl PluginProcess {
    /// Starts a plugin for the kubelet with this directory.
    pub fn start(kubelet: &Path, config: &Path) -> Result<Self> {
        let said = tempfile::tempfile()?;
        let process = Command::new(binaries::program("boathook-plugin")?)
            .arg("--kubelet-dir")
            .arg(kubelet)
            .arg("--config")
            .arg(config)
            .arg("--cdi")
            .arg(kubelet.join("cdi"))
            .stdin(Stdio::null())
            .stdout(said.try_clone()?)
            .stderr(said.try_clone()?)
            .spawn()
            .context("cannot start boathook-plugin")?;
        Ok(Self { process, said })
    }

    /// Adds the plugin's log to an error that it may have caused.
    pub fn explain(&self, error: Error) -> Error {
        let mut said = String::new();
        let read = self.said.try_clone().and_then(|mut file| {
            file.rewind()?;
            file.read_to_string(&mut said)
        });
        match read {
            Ok(_) => error.context(format!("the plugin said: {said}")),
            Err(_) => error,
        }
    }

    /// Ends the plugin as the kubelet does, and checks that it cleaned up.
    pub fn stop(mut self, kubelet: &Path) -> Result<()> {
        let id = i32::try_from(self.process.id()).context("not a process id")?;
        kill(Pid::from_raw(id), Signal::SIGTERM).context("cannot stop the plugin")?;
        let status = self.process.wait()?;
        if !status.success() {
            return Err(self.explain(Error::msg(format!("the plugin ended with {status}"))));
        }
        let left = sockets(&kubelet.join(SOCKETS))?;
        if !left.is_empty() {
            bail!("the plugin left its sockets behind: {}", left.join(" "));
        }
        Ok(())
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        // The plugin may have ended already. Then these calls fail, and there is nothing to stop.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the names of the plugins' sockets in the kubelet's directory.
fn sockets(directory: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type()?.is_socket() && name != KUBELET_SOCKET_NAME {
            names.push(name);
        }
    }
    Ok(names)
}
