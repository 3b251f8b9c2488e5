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

mod arrivals;
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

pub use arrivals::Arrivals;
pub use event::{DeviceReport, Event, EventLog};
pub use manager::{Allocated, Allocation};
pub use registration::RegisterFault;

use life::Life;

/// The settings of a [`FakeKubelet`].
#[derive(Debug, Clone)]
pub struct Config {
    /// The kubelet's root directory, in which it creates `device-plugins`.
    pub dir: PathBuf,
    /// The fault of the kubelet's Register call.
    pub register: RegisterFault,
    /// The way in which the kubelet finds the plugin of a stream that has ended.
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
    /// No plugin: the kubelet keeps the devices, as Kubernetes 1.36 did when two streams of a
    /// resource ended within 7 ms.
    Nothing,
}

impl Config {
    /// Returns the settings of a kubelet without faults at the root directory `dir`.
    pub fn new(dir: &Path) -> Self {
        Config {
            dir: dir.to_owned(),
            register: RegisterFault::None,
            tracking: PluginTracking::ByResource,
        }
    }
}

/// A fake kubelet, which runs in a thread of this process and ends with this value.
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

    /// Allocates devices to a container, as the kubelet does when it admits a pod.
    ///
    /// # Errors
    /// Fails if no plugin serves the resource, if it has too few devices, if the plugin refuses
    /// (the message begins with the gRPC code), or if the kubelet is stopped.
    pub fn allocate(&self, allocation: Allocation) -> Result<Allocated, String> {
        let life = self.life.as_ref().ok_or("the kubelet is stopped")?;
        life.allocate(allocation)
    }

    /// Ends the pod `uid`. The checkpoint has the pod's devices until the next allocation.
    pub fn end_pod(&self, uid: &str) {
        if let Some(life) = &self.life {
            life.end_pod(uid);
        }
    }

    /// Disconnects the plugin of a resource, as the kubelet does when the stream of an earlier
    /// plugin ends.
    pub fn disconnect(&self, resource: &str) {
        if let Some(life) = &self.life {
            life.disconnect(resource);
        }
    }

    /// Changes the fault of Register, at once if the kubelet runs, otherwise from its next start.
    pub fn set_register_fault(&mut self, fault: RegisterFault) {
        self.config.register = fault.clone();
        if let Some(life) = &self.life {
            life.set_register_fault(fault);
        }
    }

    /// Ends the kubelet as SIGKILL would: connections break, and the file of its socket remains.
    pub fn stop(&mut self) {
        if let Some(life) = self.life.take() {
            life.end();
        }
    }

    /// Ends the kubelet during an Allocate call, `turns` turns of its runtime after the call began:
    /// with 0 nothing has been sent, and after a few turns the plugin has answered.
    pub fn die_allocating(&mut self, allocation: Allocation, turns: usize) {
        if let Some(life) = self.life.take() {
            life.die_allocating(allocation, turns);
        }
    }

    /// Starts the kubelet again with the same directory and event log, ending the current run if
    /// there is one.
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
