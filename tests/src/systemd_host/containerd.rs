//! containerd as a service of the host.

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

/// Not the package's own unit: that one raises limits, which takes
/// CAP_SYS_RESOURCE.
const SERVICE: &str = "engine.service";

/// A containerd that runs. Stopped when dropped; its containers are not.
#[derive(Debug)]
pub struct Containerd<'a> {
    host: &'a SystemdHost,
}

impl<'a> Containerd<'a> {
    /// Settings for [`SystemdHost::configuration`]: containers' cgroups are made
    /// by this driver, and all files are where the machine finds them too.
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

    /// The runtime that is fit for the host.
    pub fn runtime(host: &SystemdHost) -> Result<PathBuf> {
        Ok(if host.has_cpu_controller()? {
            Program::Runc.path().into()
        } else {
            SystemdHost::program("without-cpu-controller")
        })
    }

    /// Starts it with the configuration that the host has, and gives it an
    /// image. As its package's unit does, it leaves containers alone when it is
    /// stopped, and has a part of the cgroups to itself.
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

    /// Stops it and starts it again.
    pub fn restart(&self) -> Result<()> {
        self.host.run("systemctl", &["restart", SERVICE])?;
        self.wait_until_ready()
    }

    /// A connection of the kubelet's. It ends when the engine does.
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
            // There is nobody to return it to. It ends with the host.
            eprintln!("{error:#}");
        }
    }
}

/// In a directory that the machine and the host share.
fn socket(host: &SystemdHost) -> PathBuf {
    host.directory.path().join("containerd.sock")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
