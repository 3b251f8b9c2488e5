//! What config.toml decides of a class beside what its file says.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::file::Directory;
use super::sharing::ReplicaCount;
use crate::name::{AttributeName, CapabilityName, excerpt};

/// Decisions on a class that its file cannot express.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether the class's programs are run for facts, and these used.
    pub facts: bool,
    /// Which program offers the class's devices.
    pub serve: Server,
    /// Whether that program runs those of the class's health checks.
    pub health_programs: bool,
    /// Directories of the host, and not of the driver's root, for every container with the
    /// class.
    pub directories: Vec<Directory>,
    /// Only these devices exist.
    pub only: Option<Vec<DeviceFilter>>,
    /// How many containers may have a device of a resource at once.
    pub replicas: BTreeMap<String, ReplicaCount>,
    /// The maximum number of shares of one container.
    pub max_per_container: Option<u16>,
    /// These devices do not exist.
    pub except: Vec<DeviceFilter>,
    /// Capabilities that no container gets. The class as such does not have them any more.
    pub forbidden: BTreeSet<CapabilityName>,
    /// Pods that get what they request of the class.
    pub trusted_pods: Vec<PodPattern>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            facts: true,
            serve: Server::Plugin,
            health_programs: false,
            directories: Vec::new(),
            only: None,
            replicas: BTreeMap::new(),
            max_per_container: None,
            except: Vec::new(),
            forbidden: BTreeSet::new(),
            trusted_pods: Vec::new(),
        }
    }
}

/// What offers a class's devices to Kubernetes: one of two, since neither knows what the
/// other allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// `boathook-plugin`, as an extended resource.
    #[default]
    Plugin,
    /// `boathook-dra`, for resource claims.
    Dra,
}

/// Some devices: by a name that a request may use, or by attributes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a device's id, or a table of attributes")]
pub enum DeviceFilter {
    /// An id, an index or an alias.
    Name(String),
    /// All of these attributes have these values.
    Attributes(BTreeMap<AttributeName, String>),
}

/// Some pods: a namespace, or those of one workload in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PodPattern {
    namespace: String,
    name: Option<String>,
}

impl PodPattern {
    /// Whether the pattern means this pod.
    pub fn fits(&self, namespace: &str, pod: &str) -> bool {
        self.namespace == namespace
            && self.name.as_deref().is_none_or(|name| {
                let rest = pod.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            })
    }
}

impl TryFrom<String> for PodPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (namespace, name) = match text.split_once('/') {
            None => (text.as_str(), None),
            Some((namespace, name)) => (namespace, Some(name)),
        };
        // RFC 1123 labels and, for a pod's name, subdomains.
        let fits = |part: &str| {
            let fit = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
            !part.is_empty() && part.chars().all(fit)
        };
        if fits(namespace) && name.is_none_or(fits) {
            Ok(PodPattern {
                namespace: namespace.to_owned(),
                name: name.map(str::to_owned),
            })
        } else {
            let text = excerpt(&text);
            Err(format!(
                "`{text}` is neither a namespace nor namespace/name"
            ))
        }
    }
}
