//! Reads the extender's configuration file, which lists the resources by which nodes are scored.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, ensure};
use device_class::name::ResourceName;
use device_class::strict_toml;
use host_files::rooted_path::read_regular_text;
use serde::Deserialize;

/// The maximum number of `[[resource]]` tables. The number is limited, because each request and
/// each node is compared with all of them.
const MAX_RESOURCES: usize = 64;

/// The maximum size of the extender's configuration file, in bytes. A larger file is refused.
const MAX_CONFIG_FILE_BYTES: u64 = 1 << 20;

/// The labels of a cluster node: the value of each label by its name.
pub type Labels = BTreeMap<String, String>;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The resources that count in the score of a node, as the tables `[[resource]]` of the file
    /// define them.
    #[serde(rename = "resource")]
    pub resources: Vec<Resource>,
}

/// An extended resource that counts in the score of a node, such as `example.com/npu`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    pub name: ResourceName,
    /// The weight of this resource in the score of a node, at least 1. It matters only if a pod
    /// requests several of the configured resources.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// The layouts, which say how many units a device has on each kind of node. They are needed if
    /// all units of a container must be on one device (`[sharing] one_device` in the class file).
    /// For a node, the first layout that matches its labels is used.
    #[serde(default, rename = "layout")]
    pub layouts: Vec<Layout>,
}

/// The number of units that each device has, on nodes with certain labels.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The labels that a node must have so that the layout applies. A layout without labels
    /// applies to all nodes.
    #[serde(default)]
    pub labels: Labels,
    pub units_per_device: u64,
}

fn default_weight() -> u32 {
    1
}

impl Config {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let path_text = path.display();
        let text = read_regular_text(path, MAX_CONFIG_FILE_BYTES)
            .with_context(|| format!("{path_text}: cannot read"))?;
        let config: Self = strict_toml::parse(path, &text)?;
        config.validate().with_context(|| path_text.to_string())?;
        Ok(config)
    }

    fn validate(&self) -> anyhow::Result<()> {
        let resources = &self.resources;
        ensure!(
            (1..=MAX_RESOURCES).contains(&resources.len()),
            "the number of [[resource]] tables must be 1 to {MAX_RESOURCES}"
        );
        for (index, resource) in resources.iter().enumerate() {
            let name = &resource.name;
            // A name in the domain kubernetes.io is refused, because kube-scheduler does not accept
            // it in the `managedResources` of an extender.
            let (domain, _) = name.as_str().split_once('/').unwrap_or_default();
            ensure!(
                domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"),
                "name `{name}`: not an extended resource such as vendor.com/gpu"
            );
            let mut earlier_resources = resources[..index].iter();
            ensure!(
                !earlier_resources.any(|other| other.name == *name),
                "name `{name}`: in two [[resource]] tables"
            );
            ensure!(resource.weight > 0, "weight of {name}: must be at least 1");
            let mut layouts = resource.layouts.iter();
            ensure!(
                layouts.all(|layout| layout.units_per_device > 0),
                "layout of {name}: units_per_device must not be 0"
            );
        }
        Ok(())
    }
}

impl Resource {
    /// Returns how many units each device has on a node with these labels, or `None` if no layout
    /// applies to the node.
    pub fn find_units_per_device(&self, labels: Option<&Labels>) -> Option<u64> {
        let matches_labels = |layout: &&Layout| {
            let mut required_labels = layout.labels.iter();
            required_labels
                .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        };
        self.layouts
            .iter()
            .find(matches_labels)
            .map(|layout| layout.units_per_device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::read(file.path()).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_resource_needs_only_a_name() {
        let config = read("[[resource]]\nname = 'nvidia.com/gpu'").unwrap();
        assert_eq!(config.resources[0].weight, 1);
    }

    #[test]
    fn a_wrong_configuration_is_refused_with_the_key_and_the_reason() {
        const AB: &str = "[[resource]]\nname = 'a.b/c'\n";
        let of_form = "resource `gpu` is not of the form domain/name";
        let weight = "weight of a.b/c: must be at least 1";
        let unknown = ":3: unknown key `weigth`, did you mean `weight`?";
        let layout = format!("{AB}[[resource.layout]]\nunits_per_device = 0");
        let native = "[[resource]]\nname = 'kubernetes.io/gpu'";
        for (text, reason) in [
            ("", "the key `resource` is missing"),
            ("resource = []", "must be 1 to 64"),
            ("[[resource]]\nname = 'gpu'", of_form),
            (native, "not an extended resource"),
            (&AB.repeat(2), "in two"),
            (&format!("{AB}weight = 0"), weight),
            (&format!("{AB}weigth = 1"), unknown),
            (&layout, "units_per_device must not be 0"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        let missing = Config::read(Path::new("/nonexistent/scheduler.toml")).unwrap_err();
        let said = "/nonexistent/scheduler.toml: cannot read";
        assert!(missing.to_string().contains(said), "{missing}");
    }
}
