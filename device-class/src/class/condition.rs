//! What has to hold for a candidate to be a device.

use serde::Deserialize;

use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::Template;

/// One entry of `require`: what has to hold for a candidate to be a device.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawCondition")]
pub enum Condition {
    /// A value is as expected.
    Value {
        /// The value, by template.
        value: Template,
        /// What is expected of it.
        expected: Expectation,
    },
    /// Some path matches the pattern, with what is known already.
    Exists(PathPattern),
    /// No path matches the pattern.
    Absent(PathPattern),
    /// Some file that matches the pattern has a line `key value` with this value.
    Listed {
        /// The files.
        files: PathPattern,
        /// The key of the line.
        key: String,
        /// The wanted value, by template.
        value: Template,
    },
}

/// What is expected of a value.
#[derive(Debug, Clone)]
pub enum Expectation {
    /// It is one of these.
    OneOf(Vec<String>),
    /// It is none of these.
    NoneOf(Vec<String>),
}

impl Condition {
    /// The attributes on which the answer depends.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = &AttributeName> {
        let (template, pattern) = match self {
            Condition::Value { value, .. } => (Some(value), None),
            Condition::Exists(pattern) | Condition::Absent(pattern) => (None, Some(pattern)),
            Condition::Listed { files, value, .. } => (Some(value), Some(files)),
        };
        let filled = template.into_iter().flat_map(Template::attributes);
        filled.chain(pattern.into_iter().flat_map(PathPattern::captures))
    }
}

impl Expectation {
    /// Whether the value is as expected.
    pub fn holds(&self, value: &str) -> bool {
        match self {
            Expectation::OneOf(values) => values.iter().any(|wanted| wanted == value),
            Expectation::NoneOf(values) => values.iter().all(|refused| refused != value),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCondition {
    value: Option<Template>,
    equals: Option<String>,
    differs: Option<String>,
    one_of: Option<Vec<String>>,
    none_of: Option<Vec<String>>,
    exists: Option<PathPattern>,
    absent: Option<PathPattern>,
    listed_in: Option<PathPattern>,
    key: Option<String>,
}

impl TryFrom<RawCondition> for Condition {
    type Error = String;

    fn try_from(raw: RawCondition) -> Result<Self, String> {
        let RawCondition {
            value,
            equals,
            differs,
            one_of,
            none_of,
            exists,
            absent,
            listed_in,
            key,
        } = raw;
        let expectations = [
            equals.map(|one| Expectation::OneOf(vec![one])),
            differs.map(|one| Expectation::NoneOf(vec![one])),
            one_of.map(Expectation::OneOf),
            none_of.map(Expectation::NoneOf),
        ];
        let mut expectations = expectations.into_iter().flatten();
        let expected = expectations.next();
        match (
            value,
            expected,
            expectations.next(),
            exists,
            absent,
            listed_in,
            key,
        ) {
            (Some(value), Some(expected), None, None, None, None, None) => {
                Ok(Condition::Value { value, expected })
            }
            (None, None, None, Some(pattern), None, None, None) => Ok(Condition::Exists(pattern)),
            (None, None, None, None, Some(pattern), None, None) => Ok(Condition::Absent(pattern)),
            (Some(value), None, None, None, None, Some(files), Some(key)) => {
                Ok(Condition::Listed { files, key, value })
            }
            _ => Err(
                "a condition is `value` with one of `equals`, `differs`, `one_of`, \
                      `none_of`; or `exists`; or `absent`; or `value` with `listed_in` and `key`"
                    .into(),
            ),
        }
    }
}
