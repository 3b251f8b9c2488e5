//! Where an attribute comes from, and what is expected of one.

use serde::Deserialize;

use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::Template;

/// One entry of `attributes`: a value that is read from the host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawAttributeSource")]
pub struct AttributeSource {
    /// Where the value is.
    pub origin: Origin,
    /// What stands in for a value that is not there. Without it a candidate
    /// that lacks the value is no device.
    pub default: Option<String>,
}

/// The ways to read an attribute.
#[derive(Debug, Clone)]
pub enum Origin {
    /// The trimmed first line of a file, or what a regular expression finds.
    File {
        /// The attribute that is set.
        name: AttributeName,
        /// Absolute, or relative to what the source's path matched.
        file: Template,
        /// Take the value of the line `key: value` or `key value`.
        key: Option<String>,
        /// Take the first group, or the whole match.
        regex: Option<regex_lite::Regex>,
    },
    /// The last component of where a symbolic link leads.
    Link {
        /// The attribute that is set.
        name: AttributeName,
        /// Absolute, or relative to what the source's path matched.
        link: Template,
    },
    /// The captures of the first path that matches.
    Path {
        /// Its captures are the attributes that are set.
        path: PathPattern,
    },
}

impl AttributeSource {
    /// The attributes that this sets.
    pub fn names(&self) -> impl Iterator<Item = &AttributeName> {
        let (one, many) = match &self.origin {
            Origin::File { name, .. } | Origin::Link { name, .. } => (Some(name), None),
            Origin::Path { path } => (None, Some(path.captures())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAttributeSource {
    name: Option<AttributeName>,
    file: Option<Template>,
    key: Option<String>,
    regex: Option<String>,
    link: Option<Template>,
    path: Option<PathPattern>,
    default: Option<String>,
}

impl TryFrom<RawAttributeSource> for AttributeSource {
    type Error = String;

    fn try_from(raw: RawAttributeSource) -> Result<Self, String> {
        let RawAttributeSource {
            name,
            file,
            key,
            regex,
            link,
            path,
            default,
        } = raw;
        let origin = match (name, file, link, path) {
            (Some(name), Some(file), None, None) => {
                let regex = match regex {
                    None => None,
                    Some(text) => Some(
                        regex_lite::Regex::new(&text)
                            .map_err(|error| format!("bad regex `{text}`: {error}"))?,
                    ),
                };
                Origin::File {
                    name,
                    file,
                    key,
                    regex,
                }
            }
            (Some(name), None, Some(link), None) if key.is_none() && regex.is_none() => {
                Origin::Link { name, link }
            }
            (None, None, None, Some(path)) if key.is_none() && regex.is_none() => {
                Origin::Path { path }
            }
            _ => {
                return Err(
                    "an attribute is `name` with `file` (and `key` or `regex`), `name` \
                            with `link`, or `path` alone with captures"
                        .into(),
                );
            }
        };
        Ok(AttributeSource { origin, default })
    }
}

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
