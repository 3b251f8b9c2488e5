//! The CDI kinds of specifications: those that Boathook writes, and those in JSON or YAML files
//! that another program may have written.

use std::collections::BTreeSet;

use device_class::name::ResourceName;
use serde::Deserialize;

/// The suffix of the domain in the CDI kinds of the device plugin's specifications. It is not
/// `boathook.dev`, because shipped classes have resources such as `devices.boathook.dev/serial`.
const PLUGIN_DOMAIN: &str = "pods.boathook.dev";

/// The user of a specification file, who requests devices by the names in this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecificationOwner {
    /// People who use the option `--device` of an engine. The CDI kind is the name of the resource.
    User,
    /// The device plugin, which names CDI devices in its responses to the kubelet. Its CDI kinds
    /// have a separate domain. So they do not conflict with a vendor's file for the same resource:
    /// engines refuse a device that two files describe.
    Plugin,
}

impl SpecificationOwner {
    /// Returns the CDI kind of a resource's devices. For the resource `vendor.com/npu`, the kind is
    /// `vendor.com/npu` for people, and `vendor.com.pods.boathook.dev/npu` for the plugin.
    pub fn kind(self, resource: &ResourceName) -> String {
        match (self, resource.as_str().split_once('/')) {
            (SpecificationOwner::Plugin, Some((domain, name))) => {
                format!("{domain}.{PLUGIN_DOMAIN}/{name}")
            }
            _ => resource.to_string(),
        }
    }

    /// Returns whether a file with the name `name` is a specification for this owner. The names of
    /// the plugin's files contain `.pods.boathook.dev-`.
    pub fn owns_file(self, name: &str) -> bool {
        let is_plugin_file = name.contains(&format!(".{PLUGIN_DOMAIN}-"));
        is_plugin_file == (self == SpecificationOwner::Plugin)
    }
}

/// The CDI kind of a specification file, or the text of the file if the kind could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecFileKind {
    Known(String),
    /// The text of a YAML file. Only a YAML parser could find its CDI kind.
    Unparsed(String),
}

impl SpecFileKind {
    /// Returns whether the specification may describe devices of `kind`. If the kind of the file
    /// could not be parsed, returns true if its text contains `kind`, or an escape sequence that
    /// could stand for a character of `kind`.
    pub fn may_match(&self, kind: &str) -> bool {
        match self {
            SpecFileKind::Known(known_kind) => known_kind == kind,
            SpecFileKind::Unparsed(text) => {
                text.contains(kind)
                    || YAML_ESCAPE_PREFIXES
                        .iter()
                        .any(|escape| text.contains(escape))
            }
        }
    }
}

/// The escape sequences with which YAML can write letters, digits and slashes, or break a line
/// within a word (YAML 1.2.2, section 5.7).
const YAML_ESCAPE_PREFIXES: [&str; 6] = ["\\x", "\\u", "\\U", "\\/", "\\\n", "\\\r"];

/// The field `kind` of a JSON specification. serde skips the other fields, which may be large.
#[derive(Deserialize)]
struct KindField {
    // Engines accept this key in upper and lower case, because Go's JSON decoder does.
    #[serde(alias = "Kind", alias = "KIND")]
    kind: String,
}

/// Returns the kind of a JSON specification, or `None` if the text is not JSON or has no kind.
pub(super) fn parse_json_kind(text: &str) -> Option<String> {
    let KindField { kind } = serde_json::from_str(text).ok()?;
    Some(kind)
}

/// The field `devices` of a JSON specification. serde reads only the hooks of the devices.
#[derive(Deserialize)]
struct DeviceHookList {
    #[serde(default)]
    devices: Vec<DeviceHooks>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceHooks {
    container_edits: HookEdits,
}

#[derive(Deserialize)]
struct HookEdits {
    #[serde(default)]
    hooks: Vec<HookCommand>,
}

#[derive(Deserialize)]
struct HookCommand {
    #[serde(default)]
    args: Vec<String>,
}

/// Returns the class names in the hook arguments `--cdi CLASS=DEVICES` of a thin specification.
/// Returns `None` if a device has no such hook, as in a plain specification.
pub(super) fn find_hook_classes(text: &str) -> Option<BTreeSet<String>> {
    let DeviceHookList { devices } = serde_json::from_str(text).ok()?;
    let classes = devices.iter().map(|device| {
        let hooks = device.container_edits.hooks.iter();
        let mut argument_pairs = hooks.flat_map(|hook| hook.args.windows(2));
        let cdi_option = argument_pairs.find(|pair| pair[0] == "--cdi")?;
        Some(cdi_option[1].split_once('=')?.0.to_owned())
    });
    classes.collect()
}

/// Finds the CDI kind of a YAML specification without a YAML parser. Such a parser would be a tenth
/// of the size of the program `boathook`. The kind is found if exactly one line begins with the key
/// `kind` and the value is a plain scalar.
pub fn scan_yaml_kind(text: String) -> SpecFileKind {
    let lines = text.lines().map(|line| line.trim_start_matches('\u{feff}'));
    let mut values = lines
        .filter_map(|line| line.strip_prefix("kind:"))
        .map(str::trim);
    let is_plain_scalar = |value: &str| {
        let mut characters = value.chars();
        characters.all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c))
    };
    match (values.next(), values.next()) {
        (Some(value), None) if is_plain_scalar(value) && value.contains('/') => {
            SpecFileKind::Known(value.to_owned())
        }
        _ => SpecFileKind::Unparsed(text),
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
            assert_eq!(SpecificationOwner::User.kind(&name), resource);
            assert_eq!(SpecificationOwner::Plugin.kind(&name), plugin);
            for (kind, user) in [
                (resource, SpecificationOwner::User),
                (plugin, SpecificationOwner::Plugin),
            ] {
                let file = crate::cdi::file_name(kind);
                for one in [SpecificationOwner::User, SpecificationOwner::Plugin] {
                    assert_eq!(one.owns_file(&file), one == user, "{file} {one:?}");
                }
            }
        }
        assert!(SpecificationOwner::User.owns_file("boathook-myboathook.dev-npu.json"));
    }

    #[test]
    fn a_kind_in_json_is_known() {
        let text = r#"{"cdiVersion": "0.5.0", "kind": "a.com/b", "devices": [{"kind": "c"}]}"#;
        assert_eq!(parse_json_kind(text).as_deref(), Some("a.com/b"));
        for other in [
            "{}",
            "",
            "[]",
            "kind: a.com/b",
            r#"{"devices": [{"kind": "a.com/b"}]}"#,
        ] {
            assert_eq!(parse_json_kind(other), None, "{other}");
        }
    }
}
