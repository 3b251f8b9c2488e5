//! Parses the opaque parameters that a claim or its DeviceClass sets for the devices of a request.

use std::collections::BTreeSet;

use device_class::DeviceClass;
use device_class::name::{CapabilityName, ClassName, ListName};
use serde::{Deserialize, Serialize};

/// The opaque parameters of a request for devices, as a claim or its DeviceClass sets them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The requested capabilities, which replace the default capabilities of the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<CapabilityName>,
    /// The names of the requested file lists, which replace the default lists of the class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lists: Vec<ListName>,
}

/// The reason why a class does not accept the parameters of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("`{kind}` in `config`: class {class} has none to choose from; remove it")]
    NoChoices {
        kind: &'static str,
        class: ClassName,
    },
    #[error("class {class} has no capability {name}; use {capabilities}")]
    Unknown {
        name: CapabilityName,
        class: ClassName,
        /// The names of the class's capabilities, separated by commas.
        capabilities: String,
    },
    #[error(
        "capability {0} is not for claims: only containers outside pods and `trusted_pods` may have it"
    )]
    TrustedCapability(CapabilityName),
}

impl Parameters {
    /// Returns the environment variables that request the same capabilities and lists for a
    /// container. Fails if the class does not have one of them, or does not offer it to claims.
    pub(super) fn to_variables(
        &self,
        class: &DeviceClass,
    ) -> Result<Vec<(String, String)>, ParameterError> {
        let request = &class.spec.request;
        let join = |names: Vec<&str>| names.join(",");
        let capabilities = self.capabilities.iter().map(CapabilityName::as_str);
        let lists = self.lists.iter().map(ListName::as_str);
        let mut variables = Vec::new();
        for (kind, env, value) in [
            (
                "capabilities",
                &request.capabilities_env,
                join(capabilities.collect()),
            ),
            ("lists", &request.file_lists_env, join(lists.collect())),
        ] {
            match env {
                _ if value.is_empty() => {}
                Some(env) => variables.push((env.to_string(), value)),
                None => {
                    let class = class.name.clone();
                    return Err(ParameterError::NoChoices { kind, class });
                }
            }
        }
        let switchable = request.switchable_capabilities();
        let mut allowed: BTreeSet<CapabilityName> = class.spec.capabilities();
        allowed.retain(|name| !switchable.contains(name));
        allowed.extend(class.spec.list_excluding_capabilities());
        for name in &self.capabilities {
            let implied = request.add_implied_capabilities(&BTreeSet::from([name.clone()]));
            let is_trusted = |name| request.trusted_capabilities.contains(name);
            if implied.iter().any(is_trusted) {
                return Err(ParameterError::TrustedCapability(name.clone()));
            }
            if !allowed.contains(name) && name.as_str() != "all" {
                let allowed_names: Vec<&str> = allowed.iter().map(CapabilityName::as_str).collect();
                return Err(ParameterError::Unknown {
                    name: name.clone(),
                    class: class.name.clone(),
                    capabilities: format!("all, {}", allowed_names.join(", ")),
                });
            }
        }
        Ok(variables)
    }
}
