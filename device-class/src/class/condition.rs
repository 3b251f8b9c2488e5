//! Conditions that a candidate must meet to be a device.

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
        expected: Expectation,
    },
    /// At least one path of the host matches the pattern, with known attributes filled in.
    Exists(PathPattern),
    Absent(PathPattern),
}

/// The values of an attribute with which a condition is true or false.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expectation {
    OneOf(Vec<String>),
    NoneOf(Vec<String>),
}

impl Condition {
    /// Returns the attributes that the condition uses.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &AttributeName> {
        let (template, pattern) = match self {
            Condition::Value { value, .. } => (Some(value), None),
            Condition::Exists(pattern) | Condition::Absent(pattern) => (None, Some(pattern)),
        };
        let filled = template.into_iter().flat_map(Template::attributes);
        filled.chain(pattern.into_iter().flat_map(PathPattern::captures))
    }
}

impl Expectation {
    /// Returns whether the value is accepted.
    pub fn holds(&self, value: &str) -> bool {
        match self {
            Expectation::OneOf(values) => values.iter().any(|wanted| wanted == value),
            Expectation::NoneOf(values) => values.iter().all(|refused| refused != value),
        }
    }
}

/// # `require`
///
/// A condition that a candidate must meet to be a device. One of: `value` with
/// `equals`, `one_of` or `none_of`; `exists`; `absent`. A condition is tested as
/// soon as the attributes that it uses are known.
#[derive(Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "condition"))]
pub(super) struct RawCondition {
    /// A value, by template.
    value: Option<Template>,
    /// The value must be this text.
    equals: Option<String>,
    /// The value must be one of these texts.
    one_of: Option<Vec<String>>,
    /// The value must not be one of these texts.
    none_of: Option<Vec<String>>,
    /// A path matches this pattern; known attributes are substituted for its
    /// captures.
    exists: Option<PathPattern>,
    /// No path matches this pattern.
    absent: Option<PathPattern>,
}

const FORMS: &str = "a condition is `value` with one of `equals`, `one_of`, `none_of`; or \
                     `exists`; or `absent`";

impl TryFrom<RawCondition> for Condition {
    type Error = &'static str;

    fn try_from(mut raw: RawCondition) -> Result<Self, &'static str> {
        let condition = if let Some(pattern) = raw.exists.take() {
            Condition::Exists(pattern)
        } else if let Some(pattern) = raw.absent.take() {
            Condition::Absent(pattern)
        } else {
            let equals = raw.equals.take().map(|wanted| vec![wanted]);
            let wanted = equals.or_else(|| raw.one_of.take());
            let refused = || raw.none_of.take().map(Expectation::NoneOf);
            Condition::Value {
                value: raw.value.take().ok_or(FORMS)?,
                expected: wanted
                    .map(Expectation::OneOf)
                    .or_else(refused)
                    .ok_or(FORMS)?,
            }
        };
        // Each form takes its keys out of `raw`. A key that is left belongs to another form.
        if raw == RawCondition::default() {
            Ok(condition)
        } else {
            Err(FORMS)
        }
    }
}
