//! Node labels in Kubernetes that describe the devices of a node (`[labels]`).

use std::collections::BTreeMap;

use serde::Deserialize;

use super::report_pattern::ReportPattern;
use crate::name::{NameError, ResourceName};
use crate::template::{Attributes, Template};

/// The name of the attribute with the number of containers that may have the device at once. Each
/// device has it in the templates of `[labels]`.
pub const REPLICAS_ATTRIBUTE: &str = "replicas";

/// The name of the attribute with the suffix for the product name of a shared device: `-SHARED`, or
/// an empty text. Each device has it in the templates of `[labels]`.
pub const SHARED_SUFFIX_ATTRIBUTE: &str = "shared_suffix";

/// The name of the attribute that is `true` if more than one container may have the device at once,
/// and `false` otherwise. Each device has it in the templates of `[labels]`.
pub const SHARED_ATTRIBUTE: &str = "shared";

/// The name of the attribute with the device's resource, such as `vendor.example/npu`. Each device
/// has it in the templates of `[labels]`.
pub const RESOURCE_ATTRIBUTE: &str = "resource";

/// The maximum length of a label's value in characters (Kubernetes, "Labels and Selectors"). A
/// longer value is cut off.
const MAX_VALUE_LENGTH: usize = 63;

/// The domain of Kubernetes' own labels, which no class may use.
const RESERVED_DOMAIN: &str = "kubernetes.io";

/// The only subdomain of [`RESERVED_DOMAIN`] in which Kubernetes lets programs describe the
/// hardware of a node.
const FEATURE_DOMAIN: &str = "feature.node.kubernetes.io";

/// The name of a node label. It is either `DOMAIN/NAME`, with the syntax of resource names, or a
/// suffix that begins with a dot, such as `.slices`, and is appended to the name of the device's
/// resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct LabelName(String);

/// # `[labels]`
///
/// The value of a node label, such as `"vendor.example/chip.model" = "{model}"`. Short form:
/// `value`. With `--node-labels` the plugin writes the labels of all devices for Node Feature
/// Discovery. If devices have different values for a label, the node does not get the label,
/// because a pod that selects the node might get the wrong device. Characters that are not allowed
/// in a label's value become `-`. A name that begins with a dot is appended to the resource name of
/// the device: `".slices"` becomes `vendor.example/chip.slices`. Besides the attributes of a device
/// there are `{replicas}`, how many containers may have it at once; `{shared}`, whether several may
/// (`true` or `false`); `{resource}`, the name of its resource; and `{shared_suffix}`, which is
/// `-SHARED` if several may and the name of the resource does not say so, and nothing otherwise.
/// The devices that `combine` makes one have only the label with their number.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename = "text or table",
    expecting = "a text or a table"
)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "label"))]
pub struct Label {
    /// A template for the value. It may use the attributes of a device. A device that does not have
    /// one of these attributes does not have the label.
    pub value: Template,
    /// Replacements of values, made before `regex` is applied. A value that is not listed is kept.
    #[serde(default, rename = "map")]
    pub replacements: BTreeMap<String, String>,
    /// A regular expression that selects the used part of the value: its first group, or the whole
    /// match if it has no group. A device whose value does not match does not have the label.
    pub regex: Option<ReportPattern>,
    /// Values that are not used: a device with one of them does not have the label.
    #[serde(default, rename = "none_of")]
    pub excluded_values: Vec<String>,
    /// Whether the label is the sum of the values of all devices of the node, such as their memory.
    /// The values are whole numbers; others are not added.
    #[serde(default, rename = "sum")]
    pub is_sum: bool,
}

impl LabelName {
    /// Returns the full name of the label for a device with this resource. The suffix `.slices` and
    /// the resource `vendor.example/chip` become `vendor.example/chip.slices`.
    pub fn for_resource(&self, resource: &ResourceName) -> String {
        if self.0.starts_with('.') {
            format!("{resource}{}", self.0)
        } else {
            self.0.clone()
        }
    }
}

/// The reason why a text cannot be the name of a label.
#[derive(Debug, thiserror::Error)]
pub enum LabelNameError {
    #[error("label: {0}")]
    Name(#[from] NameError),
    #[error("label `{0}` has a domain that Kubernetes reserves; use your own, or {FEATURE_DOMAIN}")]
    Reserved(String),
    #[error(
        "the ending `{0}` of a label has to be a dot and then letters, digits, `-`, `_` and `.`, the \
         last of them a letter or a digit"
    )]
    InvalidSuffix(String),
    #[error("each part of the label `{0}` has to begin and end with a letter or a digit")]
    InvalidEnds(String),
}

impl TryFrom<String> for LabelName {
    type Error = LabelNameError;

    fn try_from(text: String) -> Result<Self, LabelNameError> {
        if text.starts_with('.') {
            let is_valid = Self::try_from(format!("x.example/x{text}")).is_ok();
            return if is_valid {
                Ok(LabelName(text))
            } else {
                Err(LabelNameError::InvalidSuffix(text))
            };
        }
        ResourceName::try_from(text.clone())?;
        let parts: Vec<&str> = text.splitn(2, '/').collect();
        let is_reserved =
            parts[0] == RESERVED_DOMAIN || parts[0].ends_with(&format!(".{RESERVED_DOMAIN}"));
        if is_reserved && parts[0] != FEATURE_DOMAIN {
            return Err(LabelNameError::Reserved(text));
        }
        let has_valid_ends = |part: &str| {
            let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
            part.starts_with(is_alphanumeric) && part.ends_with(is_alphanumeric)
        };
        if parts.into_iter().all(has_valid_ends) {
            Ok(LabelName(text))
        } else {
            Err(LabelNameError::InvalidEnds(text))
        }
    }
}

impl Label {
    /// Returns the value of the label for a device with these attributes. Returns `None` if such a
    /// device does not have the label.
    pub fn fill(&self, attributes: &Attributes) -> Option<String> {
        let text = self.value.fill(attributes).ok()?;
        let text = self.replacements.get(&text).unwrap_or(&text);
        let used_part = match &self.regex {
            None => text.as_str(),
            Some(regex) => {
                let groups = regex.captures(text)?;
                groups.get(1).or(groups.get(0))?.as_str()
            }
        };
        if self
            .excluded_values
            .iter()
            .any(|excluded_value| excluded_value == used_part)
        {
            return None;
        }
        let value = to_label_value(used_part);
        (!value.is_empty()).then_some(value)
    }
}

/// Converts a text to a valid label value by replacing invalid characters. `X1 80GB` becomes
/// `X1-80GB`, as in the labels that the vendors' own programs write.
fn to_label_value(text: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let valid_chars = text.trim().chars();
    let valid_chars = valid_chars
        .map(|c| if is_valid(c) { c } else { '-' })
        .take(MAX_VALUE_LENGTH);
    let value: String = valid_chars.collect();
    let is_invalid_end = |c: char| !c.is_ascii_alphanumeric();
    value.trim_matches(is_invalid_end).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_characters_of_labels() {
        for (text, value) in [
            ("Vendor X1-SXM4-40GB", "Vendor-X1-SXM4-40GB"),
            (" X1 (NVL) ", "X1--NVL"),
            ("1.5", "1.5"),
            ("--", ""),
            ("é 910B", "910B"),
        ] {
            assert_eq!(to_label_value(text), value, "{text}");
        }
        assert_eq!(to_label_value(&"a".repeat(100)).len(), MAX_VALUE_LENGTH);
    }

    #[test]
    fn a_label_has_a_domain_of_its_own() {
        let parse = |text: &str| LabelName::try_from(text.to_owned());
        for valid in [
            "vendor.example/chip.model",
            "feature.node.kubernetes.io/chip",
        ] {
            let resource = ResourceName::try_from("x.example/y".to_owned()).unwrap();
            assert_eq!(parse(valid).unwrap().for_resource(&resource), valid);
            let ending = parse(".model.b").unwrap();
            assert_eq!(ending.for_resource(&resource), "x.example/y.model.b");
        }
        for (invalid, reason) in [
            ("model", "domain"),
            ("node.kubernetes.io/model", "Kubernetes reserves"),
            ("kubernetes.io/arch", "Kubernetes reserves"),
            ("vendor.example/model.", "begin and end"),
            ("vendor.example/mo del", "name of the resource"),
            (".", "a dot and then letters"),
            (".model.", "a dot and then letters"),
            (".mo/del", "a dot and then letters"),
        ] {
            let error = parse(invalid).unwrap_err().to_string();
            assert!(error.contains(reason), "{invalid}: {error}");
        }
    }
}
