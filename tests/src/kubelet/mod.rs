//! A kubelet that is only a device manager, and behaves as the real one does
//! (kubernetes/kubernetes, pkg/kubelet/cm/devicemanager):
//!
//! - when it starts it deletes the sockets of its device plugins and keeps its
//!   checkpoint;
//! - it dials a plugin back while that waits for the answer to Register;
//! - it finds plugins by their sockets in `plugins_registry`, which it does not
//!   clear (pkg/kubelet/pluginmanager);
//! - it reads the ListAndWatch stream of each plugin that has registered. When one ends, it
//!   disconnects a plugin of the resource, whose devices are unhealthy from then on: see
//!   [`PluginTracking`];
//! - it lists the healthy devices that it has (pkg/kubelet/apis/podresources), and takes
//!   the plugin that registers last, without informing the previous one;
//! - it passes a plugin's environment and annotations on as the kubelet and
//!   containerd do, and records the allocation in its checkpoint.
//!
//! Its faults can be requested: see [`RegisterFault`], [`FakeKubelet::stop`] and
//! [`FakeKubelet::die_allocating`].

mod checkpoint;
mod container;
pub mod dra;
mod endpoint;
mod event;
mod life;
mod manager;
pub mod other_plugin;
mod plugin_info;
mod pod_resources;
mod registration;
mod watcher;

use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};

pub use event::{DeviceReport, Event, EventLog};
pub use manager::{Allocated, Allocation};
pub use registration::RegisterFault;

use life::Life;

/// The settings of a fake kubelet.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its root; `device-plugins` is made in it.
    pub dir: PathBuf,
    /// The fault of its Register call.
    pub register: RegisterFault,
    /// The way in which it finds the plugin of a stream that has ended.
    pub tracking: PluginTracking,
}

/// The way in which a kubelet finds the plugin that it disconnects when a ListAndWatch stream ends
/// (plugin/v1beta1/handler.go, `getClient`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PluginTracking {
    /// The last plugin that registered the resource, whichever stream has ended: Kubernetes 1.25
    /// to 1.36.
    ByResource,
    /// The first plugin with the same socket: kubernetes/kubernetes since pull request 135437.
    BySocket,
}

impl Config {
    /// A kubelet without faults, whose containerd passes Boathook's annotations on.
    pub fn new(dir: &Path) -> Self {
        Config {
            dir: dir.to_owned(),
            register: RegisterFault::None,
            tracking: PluginTracking::ByResource,
        }
    }
}

/// A fake kubelet, which runs in a thread of its own.
pub struct FakeKubelet {
    config: Config,
    log: EventLog,
    life: Option<Life>,
}

impl FakeKubelet {
    pub fn start(config: Config) -> io::Result<Self> {
        let log = EventLog::default();
        let life = Some(Life::begin(config.clone(), log.clone())?);
        Ok(FakeKubelet { config, log, life })
    }

    /// Gives devices to a container, as at a pod's admission, and starts it.
    ///
    /// # Errors
    /// There is no such resource, there are too few devices, the plugin
    /// refuses (the message begins with the gRPC code), or the kubelet is
    /// stopped.
    pub fn allocate(&self, allocation: Allocation) -> Result<Allocated, String> {
        let life = self.life.as_ref().ok_or("the kubelet is stopped")?;
        life.allocate(allocation)
    }

    /// Ends a pod. Its devices stay in the checkpoint until the next allocation.
    pub fn end_pod(&self, uid: &str) {
        if let Some(life) = &self.life {
            life.end_pod(uid);
        }
    }

    /// Disconnects the plugin of a resource, as when the stream of an earlier plugin ends.
    pub fn disconnect(&self, resource: &str) {
        if let Some(life) = &self.life {
            life.disconnect(resource);
        }
    }

    /// Changes the fault of Register, from the next start on or, if it
    /// runs, at once.
    pub fn set_register_fault(&mut self, fault: RegisterFault) {
        self.config.register = fault.clone();
        if let Some(life) = &self.life {
            life.set_register_fault(fault);
        }
    }

    /// Dies, as if killed: connections break, its socket's file stays.
    pub fn stop(&mut self) {
        if let Some(life) = self.life.take() {
            life.end();
        }
    }

    /// Dies while a plugin is requested devices, so many turns of the
    /// kubelet's runtime after it made the request: at 0 nothing is sent yet,
    /// and after a few the plugin has answered.
    pub fn die_allocating(&mut self, allocation: Allocation, turns: usize) {
        if let Some(life) = self.life.take() {
            life.die_allocating(allocation, turns);
        }
    }

    /// Starts again after [`FakeKubelet::stop`].
    pub fn resume(&mut self) -> io::Result<()> {
        self.stop();
        self.life = Some(Life::begin(self.config.clone(), self.log.clone())?);
        Ok(())
    }
}

impl Deref for FakeKubelet {
    type Target = EventLog;

    fn deref(&self) -> &EventLog {
        &self.log
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.stop();
    }
}
