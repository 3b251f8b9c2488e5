//! Where an attribute comes from.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::formula::{self, FormulaError};
use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::Template;

/// One entry of `attributes`: a value that is read from the host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawAttributeSource")]
pub struct AttributeSource {
    /// Where the value is.
    pub origin: Origin,
    /// Values and what stands for them.
    pub map: BTreeMap<String, String>,
    /// What stands in for a value that is not there, by template. Without it
    /// a candidate that lacks the value is no device.
    pub default: Option<Template>,
    /// What an administrator does about a value that is not there.
    pub advice: Option<String>,
}

/// The ways to read an attribute.
#[derive(Debug, Clone)]
pub enum Origin {
    /// A text: what a file says, or other attributes together.
    Text {
        /// The attribute that is set.
        name: AttributeName,
        /// Where the text is.
        text: Text,
        /// Take the first group, or the whole match; without it the trimmed
        /// first line.
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
        /// What the file at the path has to say.
        says: Option<Says>,
    },
}

/// Where a text is.
#[derive(Debug, Clone)]
pub enum Text {
    /// In a file.
    File {
        /// Absolute, or relative to what the source's path matched.
        file: Template,
        /// Take the value of the line `key: value` or `key value`.
        key: Option<Template>,
    },
    /// Made of attributes that are known already.
    Value(Template),
    /// A whole number, computed from attributes that are known already.
    Formula(Template),
    /// A path, with every symbolic link in it followed.
    RealPath(Template),
}

/// What a file has to say for its path to be the one.
#[derive(Debug, Clone)]
pub struct Says {
    /// Some line `key: value` or `key value`; without it the file as a whole.
    pub key: Option<Template>,
    /// The wanted values, by template: one of them.
    pub values: Vec<Template>,
}

impl AttributeSource {
    /// The attributes that this sets.
    pub fn names(&self) -> impl Iterator<Item = &AttributeName> {
        let (one, many) = match &self.origin {
            Origin::Text { name, .. } | Origin::Link { name, .. } => (Some(name), None),
            Origin::Path { path, .. } => (None, Some(path.captures())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Whether it gives an attribute its value. A capture of what is known
    /// already only tests it.
    pub(crate) fn sets(&self, attribute: &AttributeName, known: bool) -> bool {
        let captures = matches!(self.origin, Origin::Path { .. });
        !(captures && known) && self.names().any(|name| name == attribute)
    }

    /// The templates that are filled in to read it.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let (main, key): (&[Template], _) = match &self.origin {
            Origin::Text { text, .. } => match text {
                Text::File { file, key } => (std::slice::from_ref(file), key.as_ref()),
                Text::Value(template) | Text::Formula(template) | Text::RealPath(template) => {
                    (std::slice::from_ref(template), None)
                }
            },
            Origin::Link { link, .. } => (std::slice::from_ref(link), None),
            Origin::Path { says, .. } => match says {
                Some(says) => (&says.values, says.key.as_ref()),
                None => (&[], None),
            },
        };
        main.iter().chain(key).chain(&self.default)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawAttributeSource {
    name: Option<AttributeName>,
    file: Option<Template>,
    key: Option<Template>,
    regex: Option<String>,
    value: Option<Template>,
    formula: Option<Template>,
    real_path: Option<Template>,
    link: Option<Template>,
    path: Option<PathPattern>,
    equals: Option<Template>,
    one_of: Option<Vec<Template>>,
    #[serde(default)]
    map: BTreeMap<String, String>,
    default: Option<Template>,
    advice: Option<String>,
}

impl TryFrom<RawAttributeSource> for AttributeSource {
    type Error = String;

    fn try_from(raw: RawAttributeSource) -> Result<Self, String> {
        let regex = match &raw.regex {
            None => None,
            Some(text) => Some(
                regex_lite::Regex::new(text)
                    .map_err(|error| format!("bad regex `{text}`: {error}"))?,
            ),
        };
        let formula = raw.formula.map(checked_formula).transpose()?;
        let (map, default, advice) = (raw.map, raw.default, raw.advice);
        let origin = match (
            (raw.name, raw.path),
            (raw.file, raw.value, formula, raw.real_path, raw.link),
            (
                raw.key,
                regex,
                raw.equals.map(|one| vec![one]).or(raw.one_of),
            ),
        ) {
            ((Some(name), None), (Some(file), None, None, None, None), (key, regex, None)) => {
                Origin::Text {
                    name,
                    text: Text::File { file, key },
                    regex,
                }
            }
            ((Some(name), None), (None, Some(value), None, None, None), (None, regex, None)) => {
                Origin::Text {
                    name,
                    text: Text::Value(value),
                    regex,
                }
            }
            ((Some(name), None), (None, None, Some(formula), None, None), (None, None, None)) => {
                Origin::Text {
                    name,
                    text: Text::Formula(formula),
                    regex: None,
                }
            }
            ((Some(name), None), (None, None, None, Some(path), None), (None, regex, None)) => {
                let text = Text::RealPath(path);
                Origin::Text { name, text, regex }
            }
            ((Some(name), None), (None, None, None, None, Some(link)), (None, None, None)) => {
                Origin::Link { name, link }
            }
            ((None, Some(path)), (None, None, None, None, None), (None, None, None))
                if map.is_empty() =>
            {
                Origin::Path { path, says: None }
            }
            ((None, Some(path)), (None, None, None, None, None), (key, None, Some(values)))
                if map.is_empty() =>
            {
                let says = Some(Says { key, values });
                Origin::Path { path, says }
            }
            _ => {
                return Err(
                    "an attribute is `name` with one of `file` (and `key`, `regex`), `value` or \
                     `real_path` (and `regex`), `formula` or `link`; or `path` with captures (and `equals` or `one_of`, `key`)"
                        .into(),
                );
            }
        };
        Ok(AttributeSource {
            origin,
            map,
            default,
            advice,
        })
    }
}

/// A formula whose syntax is right, whatever numbers the attributes are.
fn checked_formula(template: Template) -> Result<Template, String> {
    let one = |name: &AttributeName| (name.clone(), "1".to_owned());
    let ones = template.attributes().map(one).collect();
    let filled = template.fill(&ones).map_err(|error| error.to_string())?;
    match formula::evaluate(&filled) {
        Err(error @ FormulaError::Syntax) => Err(format!("`{template}` {error}")),
        Ok(_) | Err(FormulaError::Range) => Ok(template),
    }
}
