//! Runs containerd as a service of a host with systemd.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Driver, Program, SystemdHost};
use crate::cri::CriClient;
use crate::image::{Image, name_of};
use crate::patience::PATIENCE;
use crate::probe;
use crate::rootfs::Rootfs;

/// The name of the unit. It is not that of the package, which raises limits and would need
/// CAP_SYS_RESOURCE.
const SERVICE: &str = "engine.service";

/// A running containerd. Dropping the value stops it, but not its containers.
#[derive(Debug)]
pub struct Containerd<'a> {
    host: &'a SystemdHost,
}

impl<'a> Containerd<'a> {
    /// Returns the configuration file of containerd. The cgroups of containers are managed by
    /// `driver`, and all files are at paths that are the same on the machine.
    pub fn settings(host: &SystemdHost, driver: Driver) -> Result<String> {
        let directory = host.directory.path();
        let settings = format!(
            "version = 2\n\
             root = {:?}\n\
             [grpc]\n\
             address = {:?}\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\n\
             path = {:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\n\
             restrict_oom_score_adj = true\n\
             sandbox_image = {:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n\
             conf_dir = {:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
             runtime_type = \"io.containerd.runc.v2\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n\
             SystemdCgroup = {}\n\
             BinaryName = {:?}\n",
            directory.join("containerd"),
            socket(host),
            directory.join("opt"),
            name_of(Rootfs::Busybox),
            directory.join("cni"),
            driver != Driver::Cgroupfs,
            Self::runtime(host)?,
        );
        Ok(settings)
    }

    /// Returns the path of a runtime that works on the host.
    pub fn runtime(host: &SystemdHost) -> Result<PathBuf> {
        Ok(if host.has_cpu_controller()? {
            Program::Runc.path().into()
        } else {
            SystemdHost::program("without-cpu-controller")
        })
    }

    /// Starts containerd with the host's configuration, and imports an image. As with the unit of
    /// its package, its containers continue when it is stopped, and it has a part of the cgroups to
    /// itself.
    pub fn start(host: &'a SystemdHost) -> Result<Self> {
        let unit = format!("--unit={SERVICE}");
        let settings = [
            "--service-type=notify",
            "--property=KillMode=process",
            "--property=Delegate=yes",
        ];
        let command = [&[unit.as_str()], &settings[..], &["containerd"]].concat();
        host.run("systemd-run", &command)?;
        let containerd = Self { host };
        containerd.wait_until_ready()?;
        containerd.import(Rootfs::Busybox)?;
        Ok(containerd)
    }

    /// Restarts containerd.
    pub fn restart(&self) -> Result<()> {
        self.host.run("systemctl", &["restart", SERVICE])?;
        self.wait_until_ready()
    }

    /// Connects to containerd as the kubelet does. The connection ends when containerd is
    /// restarted.
    pub fn client(&self) -> Result<CriClient> {
        CriClient::connect(&socket(self.host))
    }

    fn wait_until_ready(&self) -> Result<()> {
        let start = Instant::now();
        while let Err(error) = self.client() {
            if start.elapsed() > PATIENCE {
                let log = self
                    .host
                    .run("journalctl", &["--unit", SERVICE, "--lines=5"])?;
                return Err(error).with_context(|| format!("containerd does not run: {log}"));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn import(&self, rootfs: Rootfs) -> Result<()> {
        let image = Image::new(rootfs)?;
        let archive = image.oci_archive(&name_of(rootfs), &[probe::PATH, probe::PAUSE])?;
        let (socket, archive) = (text(&socket(self.host)), text(&archive));
        let address = ["--address", &socket, "--namespace", "k8s.io"];
        let command = [&address[..], &["images", "import", &archive]].concat();
        self.host.run("ctr", &command).map(drop)
    }
}

impl Drop for Containerd<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.host.run("systemctl", &["stop", SERVICE]) {
            // The error can only be printed. The service ends with the host.
            eprintln!("{error:#}");
        }
    }
}

/// Returns the path of the socket. Its directory has the same path on the machine and in the host.
fn socket(host: &SystemdHost) -> PathBuf {
    host.directory.path().join("containerd.sock")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
