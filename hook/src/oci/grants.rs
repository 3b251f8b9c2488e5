//! The hooks of config.json. The arguments of ours name what the container is granted:
//! each device of a thin CDI specification adds a hook of its own. Only root's software
//! writes specifications and hooks.

use std::collections::BTreeMap;
use std::path::Path;

use device_class::name::ClassName;
use serde::Deserialize;

/// The option that names a granted device.
pub(crate) const CDI_OPTION: &str = "--cdi";

/// The hook's file name, by which Boathook's entries, of any version, are recognized.
pub(crate) const FILE_NAME: &str = "boathook";

/// A device that a CDI specification grants: `CLASS=DEVICE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiGrant {
    pub class: ClassName,
    /// The device's id, index or alias, or `all`.
    pub device: String,
}

impl CdiGrant {
    /// Reads the value of the option.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (class, device) = text
            .split_once('=')
            .filter(|(_, device)| !device.is_empty())
            .ok_or("not CLASS=DEVICE")?;
        let class = ClassName::try_from(class.to_owned()).map_err(|error| error.to_string())?;
        let device = device.to_owned();
        Ok(CdiGrant { class, device })
    }
}

/// `hooks` of config.json (OCI runtime spec, "POSIX-platform Hooks").
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hooks {
    #[serde(default, deserialize_with = "super::bundle::those_that_fit")]
    prestart: Vec<Entry>,
    #[serde(default, deserialize_with = "super::bundle::those_that_fit")]
    create_runtime: Vec<Entry>,
}

/// A hook, with its name as the first argument.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Entry {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) args: Vec<String>,
}

impl Hooks {
    /// Our hooks, each with its stage, in the order in which the runtime calls them.
    pub(crate) fn ours(&self) -> impl Iterator<Item = (&'static str, &Entry)> {
        let prestart = self.prestart.iter().map(|entry| ("prestart", entry));
        let created = self.create_runtime.iter();
        let entries = prestart.chain(created.map(|entry| ("createRuntime", entry)));
        entries.filter(|(_, entry)| Path::new(&entry.path).ends_with(FILE_NAME))
    }

    /// What our hooks grant, in the order in which the runtime calls them.
    pub(super) fn grants(&self) -> Vec<CdiGrant> {
        let options = self.ours().filter_map(|(_, entry)| {
            let at = entry.args.iter().position(|arg| arg == CDI_OPTION)?;
            CdiGrant::parse(entry.args.get(at + 1)?).ok()
        });
        options.collect()
    }
}

/// The devices of each class, with commas between them.
pub(crate) fn by_class(grants: &[CdiGrant]) -> BTreeMap<ClassName, String> {
    let mut devices: BTreeMap<ClassName, String> = BTreeMap::new();
    for grant in grants {
        let named = devices.entry(grant.class.clone()).or_default();
        if !named.is_empty() {
            named.push(',');
        }
        named.push_str(&grant.device);
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_from_the_arguments_of_our_hooks_alone() {
        let text = r#"{
            "prestart": [{"path": "/opt/boathook/current/bin/boathook", "args": ["boathook", "prestart"]}],
            "createRuntime": [
                {"path": "/usr/bin/other", "args": ["other", "--cdi", "npu=7"]},
                {"path": "/opt/boathook/current/bin/boathook", "args": ["boathook", "create-runtime", "--cdi", "npu=1"]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi", "npu=0"]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi", "gpu=all"]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi", "gpu="]},
                {"path": "/usr/bin/boathook", "args": ["boathook", "create-runtime", "--cdi"]},
                {"path": 1}
            ]
        }"#;
        let hooks: Hooks = serde_json::from_str(text).unwrap();
        let grants = by_class(&hooks.grants());
        let grants: Vec<_> = grants
            .iter()
            .map(|(class, devices)| (class.as_str(), devices.as_str()))
            .collect();
        assert_eq!(grants, [("gpu", "all"), ("npu", "1,0")]);
    }
}
