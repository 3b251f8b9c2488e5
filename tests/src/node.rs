//! A node of a cluster: a fake kubelet and the plugin, and the containers to which they give
//! devices.

use std::path::PathBuf;

use anyhow::{Error, Result};
use tempfile::TempDir;

use crate::bundle::{Bundle, BundleBuilder};
use crate::cgroup_parent::CgroupParent;
use crate::demo_host::HostDirectory;
use crate::kubelet::{Allocated, Allocation, Config, FakeKubelet};
use crate::patience::PATIENCE;
use crate::plugin_process::PluginProcess;
use crate::rootfs::Rootfs;

/// A fake kubelet, and a plugin that has registered its devices.
pub struct Node {
    // The plugin is dropped before the kubelet, because it creates its socket again when the socket
    // is removed.
    plugin: PluginProcess,
    kubelet: FakeKubelet,
    directory: TempDir,
    config: PathBuf,
    devices: usize,
}

impl Node {
    /// Starts the kubelet and the plugin on a host, and waits for the devices of a resource. The
    /// lines `more` are added to the host's configuration.
    pub fn start(host: &HostDirectory, more: &str, resource: &str) -> Result<Self> {
        // The directory is in /tmp, because the path of a socket may have at most 107 bytes.
        let directory = tempfile::tempdir_in("/tmp")?;
        host.trust_kubelet(directory.path(), more)?;
        let config = host.config_file();
        let kubelet = FakeKubelet::start(Config::new(directory.path()))?;
        let plugin = PluginProcess::start(directory.path(), &config)?;
        let devices = kubelet.wait_devices(PATIENCE, resource);
        let devices = devices.map_err(|error| plugin.explain(error.into()))?;
        Ok(Self {
            plugin,
            kubelet,
            directory,
            config,
            devices: devices.len(),
        })
    }

    /// Returns the number of devices that the plugin offers.
    pub fn devices(&self) -> usize {
        self.devices
    }

    /// Allocates devices to a container, as the kubelet does when it admits a pod.
    pub fn allocate(&self, allocation: Allocation) -> Result<Allocated> {
        let given = self.kubelet.allocate(allocation);
        given.map_err(|error| self.plugin.explain(Error::msg(error)))
    }

    /// Returns a bundle as an engine creates it for the pod: with the plugin's variables and
    /// annotations, the hook, and the cgroup that the kubelet names with the cgroupfs driver.
    pub fn container(
        &self,
        rootfs: Rootfs,
        given: &Allocated,
        parent: &CgroupParent,
    ) -> Result<BundleBuilder> {
        let uid = &given.annotations["io.kubernetes.cri.sandbox-uid"];
        let mut builder = Bundle::with_hook(rootfs, &self.config)?
            .cgroups_path(parent.child(&format!("pod{uid}/container")));
        for (key, value) in &given.envs {
            builder = builder.env(key, value);
        }
        for (key, value) in &given.annotations {
            builder = builder.annotation(key, value);
        }
        Ok(builder)
    }

    /// Stops the plugin as the kubelet does, and checks that it leaves nothing behind.
    pub fn stop(self) -> Result<()> {
        self.plugin.stop(self.directory.path())
    }
}
