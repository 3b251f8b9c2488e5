//! The entries of `attributes`: where the attributes of devices and of the host are read from.

use crate::collect_by_insertion;
use std::collections::BTreeMap;

use serde::Deserialize;

use crate::formula::{self, FormulaError};
use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::{Template, TemplateError};

/// One entry of `attributes` in a class file: which attributes it sets, and where on the host their
/// values are read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawAttributeSource")]
pub struct AttributeSource {
    pub origin: AttributeOrigin,
    /// Maps a value that was read to the value of the attribute, such as `0x1d` to `x1`. A value
    /// that is not a key of this map is kept.
    pub replacements: BTreeMap<String, String>,
    /// The template for the value if it cannot be read. If there is no default and the value cannot
    /// be read, the candidate is not a device.
    pub default: Option<Template>,
    /// Advice for the administrator, shown if the value is missing.
    pub advice: Option<String>,
}

/// The source of an attribute's value: a text, a symbolic link, or the path that a pattern matches.
#[derive(Debug, Clone)]
pub enum AttributeOrigin {
    /// A text: the content of a file, or a text that is composed of other attributes.
    Text {
        name: AttributeName,
        text: TextSource,
        /// The regular expression that selects the value: its first group, or the whole match if it
        /// has no group. Without an expression, the value is the trimmed first line of the text.
        regex: Option<RegexPattern>,
    },
    /// A symbolic link. The value is the last component of the link's target, such as the name of a
    /// driver.
    Link {
        name: AttributeName,
        /// The path of the link: absolute, or relative to the path that the entry of `[[discover]]`
        /// matched.
        link: Template,
    },
    /// A path pattern. The attributes are its captures in the first matching path, or one attribute
    /// is the number of matching paths.
    Path {
        /// The attribute that gets the number of matching paths. If it is set, the captures are not
        /// stored.
        count_name: Option<AttributeName>,
        /// The path pattern. Each capture, such as `{index}`, sets the attribute of the same name.
        pattern: PathPattern,
        /// The content that the file at a matching path must have.
        expected_content: Option<ExpectedContent>,
        /// The template for the required target of the matching path, which then must be a symbolic
        /// link.
        link_target: Option<Template>,
    },
}

#[derive(Debug, Clone)]
pub enum TextSource {
    File {
        /// The path of the file: absolute, or relative to the path that the entry of `[[discover]]`
        /// matched.
        file: Template,
        /// The key of the line whose value is used, in a file of lines such as `key: value` or `key
        /// value`. `None` means that the whole file is used.
        key: Option<Template>,
    },
    /// A text that is composed of attributes that were read before this one, such as
    /// `{vendor}:{model}`.
    Value(Template),
    /// An integer that is computed from attributes that were read before this one, such as `{minor}
    /// / 16`.
    Formula(Template),
    /// A path. The value is this path with all symbolic links resolved.
    RealPath(Template),
    /// The first value of the driver property with this key.
    DriverProperty(Template),
}

/// A regular expression. It is compiled when the class file is parsed, so that an invalid
/// expression is reported for its line.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct RegexPattern(pub(crate) regex_lite::Regex);

impl TryFrom<String> for RegexPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let regex = regex_lite::Regex::new(&text);
        regex
            .map(RegexPattern)
            .map_err(|error| format!("bad regex `{text}`: {error}"))
    }
}

/// Compares the texts of the two expressions, because `regex_lite::Regex` has no `PartialEq`.
impl PartialEq for RegexPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for RegexPattern {}

impl RegexPattern {
    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

/// The content that the file at a matching path must have. A path with another content does not
/// match.
#[derive(Debug, Clone)]
pub struct ExpectedContent {
    /// The key of the line, `key: value` or `key value`, whose value is compared. Without a key,
    /// the content of the whole file is compared.
    pub key: Option<Template>,
    /// The accepted values, as templates. The content must equal one of them.
    pub values: Vec<Template>,
}

impl AttributeSource {
    pub fn names(&self) -> impl Iterator<Item = &AttributeName> {
        let (name, captures) = match &self.origin {
            AttributeOrigin::Text { name, .. } | AttributeOrigin::Link { name, .. } => {
                (Some(name), None)
            }
            AttributeOrigin::Path {
                count_name: Some(name),
                ..
            } => (Some(name), None),
            AttributeOrigin::Path { pattern, .. } => (None, Some(pattern.captures())),
        };
        name.into_iter().chain(captures.into_iter().flatten())
    }

    /// Returns whether this entry sets the attribute. A capture of a path pattern does not set an
    /// attribute whose value is already known (`is_known`); it restricts the matches to paths with
    /// the known value.
    pub(crate) fn sets_attribute(&self, attribute: &AttributeName, is_known: bool) -> bool {
        let has_captures = matches!(
            self.origin,
            AttributeOrigin::Path {
                count_name: None,
                ..
            }
        );
        !(has_captures && is_known) && self.names().any(|name| name == attribute)
    }

    /// Returns the templates that are filled in when the attribute is read. The attributes in them
    /// must have been read before.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let (templates, key): (&[Template], _) = match &self.origin {
            AttributeOrigin::Text { text, .. } => match text {
                TextSource::File { file, key } => (std::slice::from_ref(file), key.as_ref()),
                TextSource::Value(template)
                | TextSource::Formula(template)
                | TextSource::RealPath(template)
                | TextSource::DriverProperty(template) => (std::slice::from_ref(template), None),
            },
            AttributeOrigin::Link { link, .. } => (std::slice::from_ref(link), None),
            AttributeOrigin::Path {
                expected_content,
                link_target,
                ..
            } => match expected_content {
                Some(content) => (&content.values, content.key.as_ref()),
                None => (&[], link_target.as_ref()),
            },
        };
        templates.iter().chain(key).chain(&self.default)
    }
}

/// # `[[attributes]]`
///
/// An attribute whose value is read from the host. At the top of the file it is read once for the
/// host; in `[[discover]]` it is read for each candidate. An entry has either `name` and one of
/// `file`, `value`, `fact`, `formula`, `real_path`, `link` and `path`, or `path` alone.
#[derive(Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "attribute"))]
pub(super) struct RawAttributeSource {
    /// The attribute that is set. Templates refer to it as `{name}`.
    name: Option<AttributeName>,
    /// The path of the file that is read: absolute, or relative to the path that the entry of
    /// `[[discover]]` matched.
    file: Option<Template>,
    /// A template for the key of the line whose value is used. The line has the form `key: value`,
    /// `key value` or `key = value`. With `path`, the value of this line is compared with `equals`
    /// or `one_of`.
    key: Option<Template>,
    /// A regular expression that selects the value: its first group, or the whole match if it has
    /// no group. Default: the trimmed first line.
    regex: Option<RegexPattern>,
    /// A template for the value. It may use attributes that were read before this one.
    value: Option<Template>,
    /// A template for the key of a fact that a program of `[[facts]]` reports. The value is the
    /// first fact with this key. The entry needs a `default`, for hosts without these programs.
    #[serde(rename = "fact")]
    property_key: Option<Template>,
    /// A template for a computation with integers, from attributes that were read before this one.
    /// It has numbers (hexadecimal with `0x`), + - * / and parentheses. Division rounds down.
    formula: Option<Template>,
    /// A template for a path. The value is this path with all symbolic links resolved.
    real_path: Option<Template>,
    /// A template for the path of a symbolic link. The value is the last component of the link's
    /// target, such as the name of a driver.
    link: Option<Template>,
    /// A path pattern. The captures of the first matching path become attributes; so an entry can
    /// join two directory trees. With `name`, the value is the number of matching paths.
    path: Option<PathPattern>,
    /// With `path`: a template for the value that the file at the path must have. With `key`, only
    /// the value of the line with this key is compared.
    #[serde(rename = "equals")]
    expected_value: Option<Template>,
    /// With `path`: a template for the required target of the matching path, which then must be a
    /// symbolic link.
    #[serde(rename = "leads_to")]
    link_target: Option<Template>,
    /// With `path`: templates for the accepted values of the file. With `key`, only the value of
    /// the line with this key is compared.
    #[serde(rename = "one_of")]
    accepted_values: Option<Vec<Template>>,
    /// Replacements of values: a value that equals a key is replaced. A value that is not listed is
    /// kept.
    #[serde(default, rename = "map")]
    replacements: BTreeMap<String, String>,
    /// A template for the value if it cannot be read. If there is no default and the value cannot
    /// be read, the candidate is not a device.
    default: Option<Template>,
    /// The instruction for the administrator if the value is missing. The warning ends with this
    /// text.
    advice: Option<String>,
}

const VALID_FORMS: &str = "an attribute is `name` with one of `file` (and `key`, `regex`), `value`, `fact` or \
                     `real_path` (and `regex`), `formula`, `link` or `path`; or `path` with captures (and \
                     `equals` or `one_of`, `key`; or `leads_to`)";

impl TryFrom<RawAttributeSource> for AttributeSource {
    type Error = String;

    fn try_from(mut raw: RawAttributeSource) -> Result<Self, String> {
        let origin = match raw.path.take() {
            Some(path) => raw.take_path_origin(path),
            None => raw.take_named_origin()?,
        };
        let replacements = match &origin {
            AttributeOrigin::Path {
                count_name: None, ..
            } => BTreeMap::new(),
            _ => std::mem::take(&mut raw.replacements),
        };
        let (default, advice) = (raw.default.take(), raw.advice.take());
        // The keys of the selected form were taken out of `raw`. A key that is still there belongs
        // to another form, so it is an error.
        if raw != RawAttributeSource::default() {
            return Err(VALID_FORMS.into());
        }
        Ok(AttributeSource {
            origin,
            replacements,
            default,
            advice,
        })
    }
}

/// Methods that take the keys of one form of attribute out of the table, so that `try_from` can
/// report each remaining key as an error.
impl RawAttributeSource {
    fn take_path_origin(&mut self, pattern: PathPattern) -> AttributeOrigin {
        let value = self.expected_value.take().map(|value| vec![value]);
        let expected_content =
            value
                .or_else(|| self.accepted_values.take())
                .map(|values| ExpectedContent {
                    key: self.key.take(),
                    values,
                });
        AttributeOrigin::Path {
            count_name: self.name.take(),
            pattern,
            expected_content,
            link_target: self.link_target.take(),
        }
    }

    fn take_named_origin(&mut self) -> Result<AttributeOrigin, String> {
        let name = self.name.take().ok_or(VALID_FORMS)?;
        let text = if let Some(file) = self.file.take() {
            let key = self.key.take();
            TextSource::File { file, key }
        } else if let Some(value) = self.value.take() {
            TextSource::Value(value)
        } else if let Some(key) = self.property_key.take() {
            if self.default.is_none() {
                return Err("an attribute with `fact` has a `default`".into());
            }
            TextSource::DriverProperty(key)
        } else if let Some(formula) = self.formula.take() {
            let text = TextSource::Formula(check_formula(formula)?);
            let regex = None;
            return Ok(AttributeOrigin::Text { name, text, regex });
        } else if let Some(path) = self.real_path.take() {
            TextSource::RealPath(path)
        } else {
            let link = self.link.take().ok_or(VALID_FORMS)?;
            return Ok(AttributeOrigin::Link { name, link });
        };
        let regex = self.regex.take();
        Ok(AttributeOrigin::Text { name, text, regex })
    }
}

/// Returns the formula if its syntax is valid. The number 1 stands for each attribute, because the
/// syntax does not depend on the values.
fn check_formula(template: Template) -> Result<Template, String> {
    let formula = fill_with_sample_values(&template).map_err(|error| error.to_string())?;
    match formula::evaluate(&formula) {
        Err(error @ FormulaError::Syntax) => Err(format!("`{template}` {error}")),
        Ok(_) | Err(FormulaError::Range) => Ok(template),
    }
}

/// Fills in a template with the number 1 for every attribute, so that the syntax of the result can
/// be checked before the values are known.
pub(super) fn fill_with_sample_values(template: &Template) -> Result<String, TemplateError> {
    let ones = template
        .attributes()
        .map(|name| (name.clone(), "1".to_owned()));
    template.fill(&collect_by_insertion(ones))
}
