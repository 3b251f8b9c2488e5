//! The sources of attributes.

use crate::inserted;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::formula::{self, FormulaError};
use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::{Template, TemplateError};

/// One entry of `attributes`: a value that is read from the host.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawAttributeSource")]
pub struct AttributeSource {
    pub origin: Origin,
    /// The replacements of values, by the value that was read.
    pub map: BTreeMap<String, String>,
    /// The template of the value if none can be read. Without a default, a candidate that lacks the
    /// value is not a device.
    pub default: Option<Template>,
    /// The advice for an administrator if the value is missing.
    pub advice: Option<String>,
}

/// The ways to read an attribute.
#[derive(Debug, Clone)]
pub enum Origin {
    /// A text: the content of a file, or other attributes together.
    Text {
        name: AttributeName,
        text: Text,
        /// The value is the first group of the expression, or the whole match. Without an
        /// expression the value is the trimmed first line.
        regex: Option<Pattern>,
    },
    /// The last component of the target of a symbolic link.
    Link {
        name: AttributeName,
        /// A path that is absolute, or relative to the path that the source matched.
        link: Template,
    },
    /// The captures of the first path that matches, or the number of matching paths.
    Path {
        /// The attribute for the number of matching paths. If it is set, the captures are not
        /// stored.
        count: Option<AttributeName>,
        /// The pattern, whose captures are the attributes that are set.
        path: PathPattern,
        /// The content that the file at the path must have.
        expected: Option<ExpectedContent>,
        /// The path to which the match must lead, as a template.
        leads_to: Option<Template>,
    },
}

#[derive(Debug, Clone)]
pub enum Text {
    File {
        /// A path that is absolute, or relative to the path that the source matched.
        file: Template,
        /// The key of the line `key: value` or `key value` that has the value.
        key: Option<Template>,
    },
    /// A text that is composed of attributes that were read before.
    Value(Template),
    /// A whole number that is computed from attributes that were read before.
    Formula(Template),
    /// A path with all symbolic links resolved.
    RealPath(Template),
    /// The first fact with this key.
    Fact(Template),
}

/// A regular expression.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(pub(crate) regex_lite::Regex);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let regex = regex_lite::Regex::new(&text);
        regex
            .map(Pattern)
            .map_err(|error| format!("bad regex `{text}`: {error}"))
    }
}

/// Two patterns are equal if their texts are equal.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

impl Pattern {
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// The content that the file at a matching path must have.
#[derive(Debug, Clone)]
pub struct ExpectedContent {
    /// The key of the line `key: value` or `key value` that is compared. Without a key the whole
    /// file is compared.
    pub key: Option<Template>,
    /// The accepted values, as templates.
    pub values: Vec<Template>,
}

impl AttributeSource {
    pub fn names(&self) -> impl Iterator<Item = &AttributeName> {
        let (one, many) = match &self.origin {
            Origin::Text { name, .. } | Origin::Link { name, .. } => (Some(name), None),
            Origin::Path {
                count: Some(name), ..
            } => (Some(name), None),
            Origin::Path { path, .. } => (None, Some(path.captures())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Whether the source sets the attribute. If the attribute is known already, a capture only
    /// compares its value.
    pub(crate) fn sets(&self, attribute: &AttributeName, known: bool) -> bool {
        let captures = matches!(self.origin, Origin::Path { count: None, .. });
        !(captures && known) && self.names().any(|name| name == attribute)
    }

    /// The templates that are filled in to read the attribute.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let (main, key): (&[Template], _) = match &self.origin {
            Origin::Text { text, .. } => match text {
                Text::File { file, key } => (std::slice::from_ref(file), key.as_ref()),
                Text::Value(template)
                | Text::Formula(template)
                | Text::RealPath(template)
                | Text::Fact(template) => (std::slice::from_ref(template), None),
            },
            Origin::Link { link, .. } => (std::slice::from_ref(link), None),
            Origin::Path {
                expected, leads_to, ..
            } => match expected {
                Some(expected) => (&expected.values, expected.key.as_ref()),
                None => (&[], leads_to.as_ref()),
            },
        };
        main.iter().chain(key).chain(&self.default)
    }
}

/// # `[[attributes]]`
///
/// A value that is read from the host: at the top of the file once for the
/// host, in a source for each candidate. Either `name` with one of `file`,
/// `value`, `fact`, `formula`, `real_path`, `link` and `path`; or `path` alone.
#[derive(Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "attribute"))]
pub(super) struct RawAttributeSource {
    /// The attribute that is set. Templates refer to it as `{name}`.
    name: Option<AttributeName>,
    /// Read this file: absolute, or relative to the path that the source
    /// matched.
    file: Option<Template>,
    /// The value is that of the file's line `key: value`, `key value` or `key =
    /// value`. With `path`: the line that must be equal. By template.
    key: Option<Template>,
    /// The value is the first group of this regular expression, or the whole
    /// match if there is no group. Default: the trimmed first line.
    regex: Option<Pattern>,
    /// A text composed of attributes that were read before, by template.
    value: Option<Template>,
    /// The first fact with this key, by template, of those that the programs of
    /// `[[facts]]` report. It needs a `default`, for hosts without these programs.
    fact: Option<Template>,
    /// An integer, computed from attributes that were read before: a template
    /// with numbers (hexadecimal with `0x`), + - * / and parentheses. Division
    /// rounds down.
    formula: Option<Template>,
    /// The value is this path with all symbolic links resolved.
    real_path: Option<Template>,
    /// The last component of the target of this symbolic link, such as the
    /// driver's name.
    link: Option<Template>,
    /// A pattern: the captures of the first matching path become attributes. This joins two
    /// directory trees. With `name`: the value is the number of matching paths.
    path: Option<PathPattern>,
    /// With `path`: the value that the file at the path, or its line `key`, must have, by template.
    equals: Option<Template>,
    /// With `path`: the path to which the match, a symbolic link, must lead, by template.
    leads_to: Option<Template>,
    /// With `path`: the values of which the file, or its line `key`, must have one, by template.
    one_of: Option<Vec<Template>>,
    /// Replacements of values. A value that is not listed is kept.
    #[serde(default)]
    map: BTreeMap<String, String>,
    /// The value if it cannot be read, by template. Without a default, a
    /// candidate that lacks the value is not a device.
    default: Option<Template>,
    /// The action that the administrator should take if the value is missing; appended to the
    /// warning.
    advice: Option<String>,
}

const FORMS: &str = "an attribute is `name` with one of `file` (and `key`, `regex`), `value`, `fact` or \
                     `real_path` (and `regex`), `formula`, `link` or `path`; or `path` with captures (and \
                     `equals` or `one_of`, `key`; or `leads_to`)";

impl TryFrom<RawAttributeSource> for AttributeSource {
    type Error = String;

    fn try_from(mut raw: RawAttributeSource) -> Result<Self, String> {
        let origin = match raw.path.take() {
            Some(path) => raw.path(path),
            None => raw.named()?,
        };
        let map = match &origin {
            Origin::Path { count: None, .. } => BTreeMap::new(),
            _ => std::mem::take(&mut raw.map),
        };
        let (default, advice) = (raw.default.take(), raw.advice.take());
        // All keys of the table were used.
        if raw != RawAttributeSource::default() {
            return Err(FORMS.into());
        }
        Ok(AttributeSource {
            origin,
            map,
            default,
            advice,
        })
    }
}

/// Each function takes the keys that belong to its form.
impl RawAttributeSource {
    fn path(&mut self, path: PathPattern) -> Origin {
        let one = self.equals.take().map(|one| vec![one]);
        let expected = one
            .or_else(|| self.one_of.take())
            .map(|values| ExpectedContent {
                key: self.key.take(),
                values,
            });
        let leads_to = self.leads_to.take();
        Origin::Path {
            count: self.name.take(),
            path,
            expected,
            leads_to,
        }
    }

    fn named(&mut self) -> Result<Origin, String> {
        let name = self.name.take().ok_or(FORMS)?;
        let text = if let Some(file) = self.file.take() {
            let key = self.key.take();
            Text::File { file, key }
        } else if let Some(value) = self.value.take() {
            Text::Value(value)
        } else if let Some(key) = self.fact.take() {
            if self.default.is_none() {
                return Err("an attribute with `fact` has a `default`".into());
            }
            Text::Fact(key)
        } else if let Some(formula) = self.formula.take() {
            let text = Text::Formula(check_formula(formula)?);
            let regex = None;
            return Ok(Origin::Text { name, text, regex });
        } else if let Some(path) = self.real_path.take() {
            Text::RealPath(path)
        } else {
            let link = self.link.take().ok_or(FORMS)?;
            return Ok(Origin::Link { name, link });
        };
        let regex = self.regex.take();
        Ok(Origin::Text { name, text, regex })
    }
}

/// Checks that the syntax of a formula is valid for any values of the attributes.
fn check_formula(template: Template) -> Result<Template, String> {
    let filled = fill_with_ones(&template).map_err(|error| error.to_string())?;
    match formula::evaluate(&filled) {
        Err(error @ FormulaError::Syntax) => Err(format!("`{template}` {error}")),
        Ok(_) | Err(FormulaError::Range) => Ok(template),
    }
}

/// Fills in a template with the number 1 for every attribute.
pub(super) fn fill_with_ones(template: &Template) -> Result<String, TemplateError> {
    let one = |name: &AttributeName| (name.clone(), "1".to_owned());
    template.fill(&inserted(template.attributes().map(one)))
}
