//! The kinds of Boathook's CDI specifications, and those of specifications that another program may
//! have written, in JSON or YAML.

use std::collections::BTreeSet;

use device_class::name::ResourceName;
use serde::Deserialize;

/// The domain below which the device plugin has kinds of its own. It is not `boathook.dev`, because
/// shipped classes have resources such as `devices.boathook.dev/serial`.
const PLUGIN_DOMAIN: &str = "pods.boathook.dev";

/// The owner of a specification: the program that writes it and the users that request devices by
/// its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecificationOwner {
    /// People, with an engine's option `--device`. The kind is the resource.
    People,
    /// The device plugin, in its answers to the kubelet. The kind has a vendor of its own for each
    /// domain of resources, so that a vendor's file of the same devices is no conflict: engines
    /// refuse a device that two files describe.
    Plugin,
}

impl SpecificationOwner {
    /// Returns the kind of a resource's devices: for `vendor.com/npu` the same, or
    /// `vendor.com.pods.boathook.dev/npu`.
    pub fn kind(self, resource: &ResourceName) -> String {
        match (self, resource.as_str().split_once('/')) {
            (SpecificationOwner::Plugin, Some((domain, name))) => {
                format!("{domain}.{PLUGIN_DOMAIN}/{name}")
            }
            _ => resource.to_string(),
        }
    }

    /// Returns whether a specification file with this name was written for this owner.
    pub fn owns_file(self, name: &str) -> bool {
        let is_plugin_file = name.contains(&format!(".{PLUGIN_DOMAIN}-"));
        is_plugin_file == (self == SpecificationOwner::Plugin)
    }
}

/// The kind of a specification that another program has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignKind {
    Known(String),
    /// The kind of this text is not known, because only a YAML parser could find it.
    Unclear(String),
}

impl ForeignKind {
    /// Returns whether an engine may find devices of `kind` in the specification. For an unclear kind
    /// the result is true if the text contains `kind` literally, or an escape that could stand for one
    /// of its characters.
    pub fn may_be(&self, kind: &str) -> bool {
        match self {
            ForeignKind::Known(known) => known == kind,
            ForeignKind::Unclear(text) => {
                text.contains(kind) || LETTER_ESCAPES.iter().any(|escape| text.contains(escape))
            }
        }
    }
}

/// The escapes by which YAML can write letters, digits and slashes, or break a line within a
/// word (YAML 1.2.2, section 5.7).
const LETTER_ESCAPES: [&str; 6] = ["\\x", "\\u", "\\U", "\\/", "\\\n", "\\\r"];

/// The only field of a JSON specification that is read. The rest of the file may be large,
/// and is skipped.
#[derive(Deserialize)]
struct Json {
    // Engines read the keys of JSON without regard to case.
    #[serde(alias = "Kind", alias = "KIND")]
    kind: String,
}

/// Returns the value of the key `kind` of a JSON specification, or `None` if the text is not
/// such a specification.
pub(super) fn json_kind(text: &str) -> Option<String> {
    let Json { kind } = serde_json::from_str(text).ok()?;
    Some(kind)
}

/// The hooks of a specification. The rest of the file is skipped.
#[derive(Deserialize)]
struct HookArguments {
    #[serde(default)]
    devices: Vec<DeviceHooks>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceHooks {
    container_edits: Hooks,
}

#[derive(Deserialize)]
struct Hooks {
    #[serde(default)]
    hooks: Vec<Arguments>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default)]
    args: Vec<String>,
}

/// Returns the names of the classes that the hooks of a thin specification name, as
/// `--cdi CLASS=DEVICES`. Returns `None` if a device has no such hook, as in the plain form.
pub(super) fn find_classes(text: &str) -> Option<BTreeSet<String>> {
    let HookArguments { devices } = serde_json::from_str(text).ok()?;
    let classes = devices.iter().map(|device| {
        let arguments = device.container_edits.hooks.iter();
        let mut arguments = arguments.flat_map(|hook| hook.args.windows(2));
        let grant = arguments.find(|pair| pair[0] == "--cdi")?;
        Some(grant[1].split_once('=')?.0.to_owned())
    });
    classes.collect()
}

/// Finds the kind of a YAML specification without a YAML parser, which would make up a tenth of the
/// program `boathook`. The kind is found if exactly one line begins with the key and the value is a
/// plain scalar.
pub fn kind_without_parser(text: String) -> ForeignKind {
    let lines = text.lines().map(|line| line.trim_start_matches('\u{feff}'));
    let mut values = lines
        .filter_map(|line| line.strip_prefix("kind:"))
        .map(str::trim);
    let is_plain = |value: &str| {
        let mut characters = value.chars();
        characters.all(|one| one.is_ascii_alphanumeric() || "._-/".contains(one))
    };
    match (values.next(), values.next()) {
        (Some(value), None) if is_plain(value) && value.contains('/') => {
            ForeignKind::Known(value.to_owned())
        }
        _ => ForeignKind::Unclear(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_has_kinds_of_its_own() {
        for (resource, plugin) in [
            ("vendor.com/npu", "vendor.com.pods.boathook.dev/npu"),
            ("boathook.dev/a.b", "boathook.dev.pods.boathook.dev/a.b"),
            (
                "devices.boathook.dev/serial",
                "devices.boathook.dev.pods.boathook.dev/serial",
            ),
            (
                "usb.boathook.dev/felica",
                "usb.boathook.dev.pods.boathook.dev/felica",
            ),
        ] {
            let name = ResourceName::try_from(resource.to_owned()).unwrap();
            assert_eq!(SpecificationOwner::People.kind(&name), resource);
            assert_eq!(SpecificationOwner::Plugin.kind(&name), plugin);
            for (kind, user) in [
                (resource, SpecificationOwner::People),
                (plugin, SpecificationOwner::Plugin),
            ] {
                let file = crate::cdi::file_name(kind);
                for one in [SpecificationOwner::People, SpecificationOwner::Plugin] {
                    assert_eq!(one.owns_file(&file), one == user, "{file} {one:?}");
                }
            }
        }
        assert!(SpecificationOwner::People.owns_file("boathook-myboathook.dev-npu.json"));
    }

    #[test]
    fn a_kind_in_json_is_known() {
        let text = r#"{"cdiVersion": "0.5.0", "kind": "a.com/b", "devices": [{"kind": "c"}]}"#;
        assert_eq!(json_kind(text).as_deref(), Some("a.com/b"));
        for other in [
            "{}",
            "",
            "[]",
            "kind: a.com/b",
            r#"{"devices": [{"kind": "a.com/b"}]}"#,
        ] {
            assert_eq!(json_kind(other), None, "{other}");
        }
    }
}
