//! A pod as the kubelet describes it to an engine.

use std::collections::HashMap;
use std::path::Path;

use harness::cri::api::{
    ContainerConfig, ContainerMetadata, ImageSpec, Int64Value, KeyValue, LinuxContainerConfig,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext,
    NamespaceMode, NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
};
use harness::demo_host::DemoHost;
use harness::probe;

use super::super::engine::Wanted;
use super::name_of;

/// The name of each pod's container.
pub(super) const CONTAINER: &str = "main";

/// A pod with one container.
pub(super) struct Pod {
    name: String,
    /// The uid that the API server would give it.
    pub(super) uid: String,
    wanted: Wanted,
}

impl Pod {
    /// The pod of this number.
    pub(super) fn new(number: u32, wanted: &Wanted) -> Self {
        Self {
            name: format!("test-{number}"),
            uid: format!("00000000-0000-4000-8000-{number:012}"),
            wanted: wanted.clone(),
        }
    }

    /// The devices that the kubelet gave it.
    pub(super) fn allocated(&self) -> Vec<String> {
        match self.wanted.devices.as_deref() {
            None | Some("none") => Vec::new(),
            Some("all") => (0..64).map(|index| format!("npu-{index}")).collect(),
            Some(list) => list.split(',').map(str::to_string).collect(),
        }
    }

    /// Its sandbox, in the machine's own network.
    pub(super) fn sandbox(&self, cgroup_parent: &Path) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: self.name.clone(),
                uid: self.uid.clone(),
                namespace: "default".to_string(),
                attempt: 0,
            }),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: cgroup_parent.display().to_string(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(namespaces()),
                }),
            }),
            ..Default::default()
        }
    }

    /// Its container, with what the plugin answered: the variable and, for
    /// devices, the annotation.
    pub(super) fn container(&self, attempt: u32) -> ContainerConfig {
        let ids = self.allocated().join(",");
        let mut envs = Vec::new();
        let mut annotations = HashMap::new();
        if let Some(devices) = &self.wanted.devices {
            let value = if ids.is_empty() { devices } else { &ids };
            envs.push(KeyValue {
                key: DemoHost::VARIABLE.to_string(),
                value: value.clone(),
            });
        }
        if !ids.is_empty() {
            annotations.insert("devices.boathook.dev/dummy-npu".to_string(), ids);
        }
        let user = self.wanted.user.map(|value| Int64Value {
            value: value.into(),
        });
        ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: CONTAINER.to_string(),
                attempt,
            }),
            image: Some(ImageSpec {
                image: name_of(self.wanted.image),
            }),
            command: vec![probe::PATH.to_string(), probe::PAUSE.to_string()],
            envs,
            annotations,
            linux: Some(LinuxContainerConfig {
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(namespaces()),
                    readonly_rootfs: self.wanted.readonly,
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
