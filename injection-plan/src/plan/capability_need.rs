//! The Linux capabilities that programs need to use a container's devices. No plan grants them: the
//! user who starts the container decides about its capabilities.

use std::fmt;

use device_class::DeviceClass;
use device_class::discover::Device;
use device_class::name::{ClassName, LinuxCapability};
use serde::Serialize;

use super::InjectionPlan;

/// A Linux capability that programs need to use the devices of a class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CapabilityNeed {
    pub class: ClassName,
    pub capability: LinuxCapability,
    /// The operation that fails without the capability, as text for messages. `None` means that
    /// every use of the device fails.
    #[serde(rename = "needed_for", skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
    /// Whether programs in the container have the capability. `None` means that the plan was not
    /// made for a certain container.
    #[serde(rename = "in_container", skip_serializing_if = "Option::is_none")]
    pub state_in_container: Option<CapabilityState>,
}

/// Whether the programs in a container can have a Linux capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum CapabilityState {
    Available,
    /// The bounding set lacks the capability, so no program of the container can have it.
    #[serde(rename = "lacking")]
    Unavailable,
    /// The container's user is not root and the ambient set lacks the capability. So only programs
    /// with file capabilities or the set-user-ID bit have it.
    #[serde(rename = "not-for-user")]
    FileCapabilitiesOnly {
        uid: u32,
    },
}

/// The Linux capabilities of a container's first process in config.json (OCI runtime specification,
/// config, "Linux Process").
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpecCapabilities {
    /// The bounding set, which limits the capabilities of every program.
    pub bounding_set: Vec<String>,
    /// The ambient set. The programs of users other than root keep it across execve(2).
    pub ambient_set: Vec<String>,
    pub uid: u32,
}

impl SpecCapabilities {
    fn determine_state(&self, capability: LinuxCapability) -> CapabilityState {
        let name = capability.to_string();
        if !self.bounding_set.contains(&name) {
            CapabilityState::Unavailable
        } else if self.uid == 0 || self.ambient_set.contains(&name) {
            CapabilityState::Available
        } else {
            CapabilityState::FileCapabilitiesOnly { uid: self.uid }
        }
    }
}

impl CapabilityNeed {
    /// Returns the Linux capabilities that a container with these devices of a class needs.
    /// `state_in_container` is `None` until [`InjectionPlan::set_capability_states`] sets it.
    pub(super) fn list_needed_capabilities(
        class: &DeviceClass,
        devices: &[&Device],
    ) -> impl Iterator<Item = Self> {
        let list_paths = || {
            let nodes = devices.iter().flat_map(|device| &device.nodes);
            nodes.map(|node| node.host_path.as_path())
        };
        let needs = class.spec.needs.iter();
        let needs = needs.filter(move |need| need.is_needed_for(list_paths()));
        needs.map(|need| CapabilityNeed {
            class: class.name.clone(),
            capability: need.capability,
            purpose: need.needed_for.clone(),
            state_in_container: None,
        })
    }
}

impl InjectionPlan {
    /// Sets `state_in_container` of each capability that the plan needs. `capabilities` are those
    /// that config.json gives the container's first process.
    pub fn set_capability_states(&mut self, capabilities: &SpecCapabilities) {
        for need in &mut self.needs {
            need.state_in_container = Some(capabilities.determine_state(need.capability));
        }
    }
}

/// Formats the capability as a message, with its purpose, and says whether the container has it.
impl fmt::Display for CapabilityNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let purpose = self.purpose.as_deref().unwrap_or("using the device");
        write!(f, "{} for {purpose}", self.capability)?;
        match self.state_in_container {
            None => Ok(()),
            Some(CapabilityState::Available) => f.write_str(", which the container has"),
            Some(CapabilityState::Unavailable) => f.write_str(", which the container lacks"),
            Some(CapabilityState::FileCapabilitiesOnly { uid }) => write!(
                f,
                ", which uid {uid} of the container has only in programs with file capabilities or \
                 setuid"
            ),
        }
    }
}
