//! Fills in templates, which are texts with attributes in braces: `/dev/npu{index}`,
//! `{busnum:03}`.

mod format;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use format::Format;
pub(crate) use format::hexadecimal;

use crate::name::{AttributeName, NameError};

/// The attributes of one device, by name.
pub type Attributes = BTreeMap<AttributeName, String>;

/// A text in which `{name}` is replaced by an attribute, optionally with a
/// format: `{name:03}` with zeros up to that width, `{name:.3}` only the first
/// characters, `{name:016x}` a number in hexadecimal, `{name:lower}` in lower
/// case, `{name:label}` as part of a resource's name, `{name:base64}`
/// hexadecimal bytes as base64 for URLs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Text(String),
    Attribute { name: AttributeName, format: Format },
}

/// The reason why a text is not a template, or why a template cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("`{0}` has a brace without its partner")]
    Brace(String),
    /// The text after the colon is not a format.
    #[error(
        "`{0}` has an unknown format; there are {{x:03}}, {{x:.3}}, {{x:016x}}, {{x:lower}}, {{x:label}}, {{x:base64}}; \
         what captures, such as {{x:number}}, belongs in `for_each` or the path of a source"
    )]
    Format(String),
    /// The format does not apply to the attribute's value.
    #[error("`{template}` cannot be filled in: {name} is `{value}`")]
    Value {
        template: String,
        name: AttributeName,
        value: String,
    },
    /// The text in the braces is not an attribute's name.
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("`{template}` needs the attribute `{name}`, which this device does not have")]
    Missing {
        template: String,
        name: AttributeName,
    },
}

impl Template {
    /// Returns the names of the attributes that the template uses.
    pub fn attributes(&self) -> impl Iterator<Item = &AttributeName> {
        self.parts.iter().filter_map(|part| match part {
            Part::Attribute { name, .. } => Some(name),
            Part::Text(_) => None,
        })
    }

    /// Returns whether the template can result in `text` with any attributes.
    pub fn may_become(&self, text: &str) -> bool {
        let mut rest = text;
        let mut follows_attribute = false;
        for (at, part) in self.parts.iter().enumerate() {
            let Part::Text(literal) = part else {
                follows_attribute = true;
                continue;
            };
            let is_last = at + 1 == self.parts.len();
            let start = match (follows_attribute, is_last) {
                (false, _) => rest.starts_with(literal).then_some(0),
                (true, false) => rest.find(literal),
                (true, true) => rest.ends_with(literal).then(|| rest.len() - literal.len()),
            };
            let Some(start) = start else { return false };
            rest = &rest[start + literal.len()..];
            follows_attribute = false;
        }
        follows_attribute || rest.is_empty()
    }

    /// Fills in all attributes and returns the text.
    ///
    /// # Errors
    /// An attribute is missing, or its format does not apply to it.
    pub fn fill(&self, attributes: &Attributes) -> Result<String, TemplateError> {
        let mut filled = String::with_capacity(self.text.len());
        for part in &self.parts {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Attribute { name, format } => {
                    let value = attributes.get(name).ok_or_else(|| TemplateError::Missing {
                        template: self.text.clone(),
                        name: name.clone(),
                    })?;
                    let written = format.apply(value).ok_or_else(|| TemplateError::Value {
                        template: self.text.clone(),
                        name: name.clone(),
                        value: crate::name::excerpt(value),
                    })?;
                    filled.push_str(&written);
                }
            }
        }
        Ok(filled)
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;

    fn try_from(text: String) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(at);
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let end = match brace
                .strip_prefix('{')
                .and_then(|inner| inner.find(['{', '}']))
            {
                Some(end) if brace[1 + end..].starts_with('}') => 1 + end,
                _ => return Err(TemplateError::Brace(text)),
            };
            parts.push(attribute(&brace[1..end], &text)?);
            rest = &brace[end + 1..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        Ok(Template { text, parts })
    }
}

fn attribute(inner: &str, text: &str) -> Result<Part, TemplateError> {
    let (name, format) = match inner.split_once(':') {
        None => (inner, Format::Plain),
        Some((name, format)) => match Format::parse(format) {
            Some(format) => (name, format),
            None => return Err(TemplateError::Format(text.to_owned())),
        },
    };
    Ok(Part::Attribute {
        name: AttributeName::try_from(name.to_owned())?,
        format,
    })
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One case a line: a template, and the filled-in text or the error.
    const FILLED: &str = "
/dev/null -> /dev/null
/dev/npu{index} -> /dev/npu12
/dev/bus/{bus:03}/{index:03} -> /dev/bus/003/012
{index}{bus} -> 123
{uuid} -> error: `{uuid}` needs the attribute `uuid`, which this device does not have
/dev/{index -> error: `/dev/{index` has a brace without its partner
/dev/}{ -> error: `/dev/}{` has a brace without its partner
{a{b}} -> error: `{a{b}}` has a brace without its partner
{index:base64}{bus:base64} -> error: `{index:base64}{bus:base64}` cannot be filled in: bus is `3`
{} -> error: attribute name is empty
";

    #[test]
    fn attributes_take_their_places() {
        let attributes = [("bus", "3"), ("index", "12")];
        let attributes = attributes.map(|(name, value)| {
            let name = AttributeName::try_from(name.to_owned());
            (name.unwrap(), value.to_owned())
        });
        let attributes = attributes.into();
        for line in FILLED.trim().lines() {
            let (template, wanted) = line.split_once(" -> ").unwrap();
            let filled = Template::try_from(template.to_owned()).and_then(|t| t.fill(&attributes));
            let filled = filled.unwrap_or_else(|error| format!("error: {error}"));
            assert_eq!(filled, wanted, "{template}");
        }
        let unknown = Template::try_from("{index:wide}".to_owned()).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            "`{index:wide}` has an unknown format; there are {x:03}, {x:.3}, {x:016x}, {x:lower}, \
             {x:label}, {x:base64}; what captures, such as {x:number}, belongs in `for_each` or the \
             path of a source"
        );
    }
}
