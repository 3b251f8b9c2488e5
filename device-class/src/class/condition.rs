//! Conditions that a candidate must meet to be a device (`require`).

use serde::Deserialize;

use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::Template;

/// One entry of `require`: a condition that a candidate must meet to be a device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawCondition")]
pub enum Condition {
    Value {
        value: Template,
        expected: ValueConstraint,
    },
    /// At least one path of the host matches the pattern. A capture whose attribute is already
    /// known matches only the known value.
    PathExists(PathPattern),
    PathAbsent(PathPattern),
}

/// The values of which a text must have one, or the values of which it must not have any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueConstraint {
    OneOf(Vec<String>),
    NoneOf(Vec<String>),
}

impl Condition {
    /// Returns the attributes whose values the condition needs. It is tested as soon as they are
    /// known.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &AttributeName> {
        let (template, pattern) = match self {
            Condition::Value { value, .. } => (Some(value), None),
            Condition::PathExists(pattern) | Condition::PathAbsent(pattern) => {
                (None, Some(pattern))
            }
        };
        let attributes = template.into_iter().flat_map(Template::attributes);
        attributes.chain(pattern.into_iter().flat_map(PathPattern::captures))
    }
}

impl ValueConstraint {
    /// Returns whether this value meets the expectation. Values are compared exactly, with upper
    /// and lower case.
    pub fn accepts(&self, value: &str) -> bool {
        match self {
            ValueConstraint::OneOf(values) => {
                values.iter().any(|accepted_value| accepted_value == value)
            }
            ValueConstraint::NoneOf(values) => {
                values.iter().all(|excluded_value| excluded_value != value)
            }
        }
    }
}

/// # `require`
///
/// A condition that a candidate must meet to be a device: `value` with `equals`, `one_of` or
/// `none_of`; or `exists`; or `absent`. A condition is tested as soon as the attributes that it
/// uses are known.
#[derive(Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "condition"))]
pub(super) struct RawCondition {
    /// A template for the value that is tested.
    value: Option<Template>,
    /// The only value that `value` may have.
    #[serde(rename = "equals")]
    expected_value: Option<String>,
    /// The values that `value` may have.
    #[serde(rename = "one_of")]
    accepted_values: Option<Vec<String>>,
    /// The values that `value` must not have.
    #[serde(rename = "none_of")]
    excluded_values: Option<Vec<String>>,
    /// A path pattern that at least one path of the host must match. A capture whose attribute is
    /// known matches only the known value.
    #[serde(rename = "exists")]
    required_path: Option<PathPattern>,
    /// A path pattern that no path of the host may match.
    #[serde(rename = "absent")]
    forbidden_path: Option<PathPattern>,
}

const VALID_FORMS: &str = "a condition is `value` with one of `equals`, `one_of`, `none_of`; or \
                     `exists`; or `absent`";

impl TryFrom<RawCondition> for Condition {
    type Error = &'static str;

    fn try_from(mut raw: RawCondition) -> Result<Self, &'static str> {
        let condition = if let Some(pattern) = raw.required_path.take() {
            Condition::PathExists(pattern)
        } else if let Some(pattern) = raw.forbidden_path.take() {
            Condition::PathAbsent(pattern)
        } else {
            let expected_value = raw.expected_value.take().map(|value| vec![value]);
            let accepted_values = expected_value.or_else(|| raw.accepted_values.take());
            let excluded_values = || raw.excluded_values.take().map(ValueConstraint::NoneOf);
            Condition::Value {
                value: raw.value.take().ok_or(VALID_FORMS)?,
                expected: accepted_values
                    .map(ValueConstraint::OneOf)
                    .or_else(excluded_values)
                    .ok_or(VALID_FORMS)?,
            }
        };
        // The keys of the selected form were taken out of `raw`. A key that is still there belongs
        // to another form, so it is an error.
        if raw == RawCondition::default() {
            Ok(condition)
        } else {
            Err(VALID_FORMS)
        }
    }
}
