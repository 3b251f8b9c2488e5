//! Describes a pod to an engine as the kubelet does.

use std::collections::HashMap;

use super::api::{
    CdiDevice, ContainerConfig, ContainerMetadata, ImageSpec, Int64Value, KeyValue,
    LinuxContainerConfig, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, NamespaceMode, NamespaceOption, PodSandboxConfig,
    PodSandboxMetadata,
};
use crate::demo_host::DemoHost;
use crate::image;
use crate::probe;
use crate::rootfs::Rootfs;

/// A pod with one container, which sleeps.
#[derive(Clone, Debug)]
#[must_use]
pub struct Pod {
    pub number: u32,
    pub image: Rootfs,
    /// The value of the demo host's request variable. The kubelet has allocated the devices that it
    /// names.
    pub devices: Option<String>,
    /// Whether the container's root file system is read-only.
    pub readonly: bool,
    /// The user of the container, or `None` for root.
    pub user: Option<u32>,
    /// Whether the devices are requested by CDI names instead of the variable.
    pub by_cdi: bool,
}

impl Pod {
    /// The name of the container in each pod.
    pub const CONTAINER: &'static str = "main";

    /// Returns the pod with this number, which requests no devices.
    pub fn new(number: u32, image: Rootfs) -> Self {
        Self {
            number,
            image,
            devices: None,
            readonly: false,
            user: None,
            by_cdi: false,
        }
    }

    pub fn devices(mut self, devices: Option<&str>) -> Self {
        self.devices = devices.map(str::to_string);
        self
    }

    pub fn uid(&self) -> String {
        format!("00000000-0000-4000-8000-{:012}", self.number)
    }

    /// Returns the ids of the devices that the kubelet allocated to the pod.
    pub fn allocated(&self) -> Vec<String> {
        match self.devices.as_deref() {
            None | Some("none") => Vec::new(),
            Some("all") => (0..64).map(|index| format!("npu-{index}")).collect(),
            Some(list) => list.split(',').map(str::to_string).collect(),
        }
    }

    /// Returns the configuration of the pod's sandbox, which uses the machine's network and has its
    /// cgroup below `cgroup_parent`.
    pub fn sandbox(&self, cgroup_parent: &str) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: format!("test-{}", self.number),
                uid: self.uid(),
                namespace: "default".to_string(),
                attempt: 0,
            }),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: cgroup_parent.to_string(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces()),
                }),
            }),
            ..Default::default()
        }
    }

    /// Returns the configuration of the pod's container, with the plugin's answer: the variable
    /// and, if devices are allocated, the annotation.
    pub fn container(&self, attempt: u32) -> ContainerConfig {
        let ids = self.allocated().join(",");
        let mut envs = Vec::new();
        let mut annotations = HashMap::new();
        if let Some(devices) = self.devices.as_ref().filter(|_| !self.by_cdi) {
            let value = if ids.is_empty() { devices } else { &ids };
            envs.push(KeyValue {
                key: DemoHost::VARIABLE.to_string(),
                value: value.clone(),
            });
        }
        if !ids.is_empty() && !self.by_cdi {
            annotations.insert("devices.boathook.dev/dummy-npu".to_string(), ids);
        }
        let named = self.devices.iter().filter(|_| self.by_cdi);
        let named = named.flat_map(|devices| devices.split(','));
        let cdi_devices = named.map(|name| CdiDevice {
            name: format!("{}={name}", DemoHost::RESOURCE),
        });
        let user = self.user.map(|value| Int64Value {
            value: value.into(),
        });
        ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: Self::CONTAINER.to_string(),
                attempt,
            }),
            image: Some(ImageSpec {
                image: image::name_of(self.image),
            }),
            command: vec![probe::PATH.to_string(), probe::PAUSE.to_string()],
            envs,
            annotations,
            cdi_devices: cdi_devices.collect(),
            linux: Some(LinuxContainerConfig {
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces()),
                    readonly_rootfs: self.readonly,
                    run_as_user: user,
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

fn namespaces() -> NamespaceOption {
    NamespaceOption {
        network: NamespaceMode::Node.into(),
        pid: NamespaceMode::Container.into(),
        ..Default::default()
    }
}
