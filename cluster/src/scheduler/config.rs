//! The extender's configuration file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The largest number of resources: each request and each node is compared with all.
const MAX_RESOURCES: usize = 64;

/// The labels of a node.
pub type Labels = BTreeMap<String, String>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The resources that are scored: the tables `[[resource]]` of the file.
    #[serde(rename = "resource")]
    pub resources: Vec<Resource>,
}

/// A resource that nodes are scored by.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// Its name, such as `vendor.com/gpu`.
    pub name: String,
    /// Its weight in the score of a pod that requests several resources.
    #[serde(default = "one")]
    pub weight: u32,
    /// Nodes' devices, if a container's units must be of one device (`[sharing]
    /// one_device` in the class). The first layout whose labels a node has applies to it.
    #[serde(default, rename = "layout")]
    pub layouts: Vec<Layout>,
}

/// How a node's units are divided among devices.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The labels of the nodes to which it applies; none: all nodes.
    #[serde(default)]
    pub labels: Labels,
    pub units_per_device: u64,
}

fn one() -> u32 {
    1
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    /// It does not match the types.
    #[error("{}", path.display())]
    Syntax {
        path: PathBuf,
        /// The parser's error, with its place.
        #[source]
        error: toml::de::Error,
    },
    /// A value is out of range.
    #[error("{}: {problem}", path.display())]
    Invalid {
        path: PathBuf,
        /// The value, and what it must be.
        problem: String,
    },
}

impl Config {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|error| ConfigError::Read {
            path: path.to_owned(),
            error,
        })?;
        let config: Self = toml::from_str(&text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            error,
        })?;
        let problem = config.problem();
        problem.map_or(Ok(config), |problem| {
            let path = path.to_owned();
            Err(ConfigError::Invalid { path, problem })
        })
    }

    fn problem(&self) -> Option<String> {
        if self.resources.is_empty() || self.resources.len() > MAX_RESOURCES {
            return Some(format!(
                "the number of [[resource]] tables must be 1 to {MAX_RESOURCES}"
            ));
        }
        self.resources
            .iter()
            .enumerate()
            .find_map(|(at, resource)| {
                let name = &resource.name;
                let before = &self.resources[..at];
                if !is_extended(name) {
                    Some(format!(
                        "name `{name}`: not an extended resource such as vendor.com/gpu"
                    ))
                } else if before.iter().any(|other| other.name == *name) {
                    Some(format!("name `{name}`: in two [[resource]] tables"))
                } else if resource.weight == 0 {
                    Some(format!("weight of {name}: must be at least 1"))
                } else {
                    let mut layouts = resource.layouts.iter();
                    let zero = layouts.any(|layout| layout.units_per_device == 0);
                    zero.then(|| format!("layout of {name}: units_per_device must not be 0"))
                }
            })
    }
}

impl Resource {
    /// The units of each device of a node with these labels, if they are configured.
    pub fn units_per_device(&self, labels: Option<&Labels>) -> Option<u64> {
        let is_of = |layout: &&Layout| {
            let mut wanted = layout.labels.iter();
            wanted.all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        };
        self.layouts
            .iter()
            .find(is_of)
            .map(|layout| layout.units_per_device)
    }
}

/// Whether kube-scheduler accepts it as an extender's managed resource.
fn is_extended(name: &str) -> bool {
    let Some((domain, kind)) = name.split_once('/') else {
        return false;
    };
    let part = |text: &str, length| {
        let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        text.len() <= length
            && text.chars().all(inner)
            && ends(text.chars().next())
            && ends(text.chars().last())
    };
    let reserved = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    part(domain, 253) && part(kind, 63) && !reserved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::read(file.path()).map_err(|error| {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            format!("{error} {}", source.unwrap_or_default())
        })
    }

    #[test]
    fn a_resource_needs_only_a_name() {
        let config = read("[[resource]]\nname = 'nvidia.com/gpu'").unwrap();
        assert_eq!(config.resources[0].weight, 1);
    }

    #[test]
    fn mistakes_are_errors_with_their_place() {
        for (text, reason) in [
            ("", "missing field `resource`"),
            ("resource = []", "must be 1 to 64"),
            (
                "[[resource]]\nname = 'gpu'",
                "name `gpu`: not an extended resource",
            ),
            (
                "[[resource]]\nname = 'kubernetes.io/gpu'",
                "not an extended resource",
            ),
            (
                "[[resource]]\nname = 'a.b/c'\n[[resource]]\nname = 'a.b/c'",
                "in two",
            ),
            (
                "[[resource]]\nname = 'a.b/c'\nweight = 0",
                "weight of a.b/c: must be at least 1",
            ),
            ("[[resource]]\nname = 'a.b/c'\nweigth = 1", "line 3"),
            (
                "[[resource]]\nname = 'a.b/c'\n[[resource.layout]]\nunits_per_device = 0",
                "units_per_device must not be 0",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let missing = Config::read(Path::new("/nonexistent/scheduler.toml")).unwrap_err();
        assert!(
            missing
                .to_string()
                .contains("/nonexistent/scheduler.toml: cannot read")
        );
    }
}
