//! A node of a cluster: a kubelet, the plugin, and what both make of a container.

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

/// A kubelet with a plugin that has registered its devices.
pub struct Node {
    // Dropped in this order: a plugin makes its socket again where it is removed.
    plugin: PluginProcess,
    kubelet: FakeKubelet,
    directory: TempDir,
    config: PathBuf,
    devices: usize,
}

impl Node {
    /// Starts both on a host, whose configuration gets `more` lines, and waits for the
    /// devices of a resource.
    pub fn start(host: &HostDirectory, more: &str, resource: &str) -> Result<Self> {
        // In /tmp, because the path of a socket has 107 bytes at most.
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

    /// Gives devices to a container, as at a pod's admission.
    pub fn allocate(&self, allocation: Allocation) -> Result<Allocated> {
        let given = self.kubelet.allocate(allocation);
        given.map_err(|error| self.plugin.explain(Error::msg(error)))
    }

    /// What an engine would make of the pod: the plugin's variables and annotations, the
    /// hook, and a cgroup that is named as the kubelet does with the cgroupfs driver.
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

    /// Stops the plugin as the kubelet does; it must leave nothing.
    pub fn stop(self) -> Result<()> {
        self.plugin.stop(self.directory.path())
    }
}
