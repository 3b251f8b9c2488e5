//! Fills in templates. A template is a text with attributes in braces, such as `/dev/npu{index}` or
//! `{busnum:03}`.

mod format;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use format::Format;
pub(crate) use format::decode_hexadecimal;

use crate::name::{AttributeName, NameError};

/// The attributes of a device or of the host. Maps the name of each attribute, such as `model`, to
/// its value.
pub type Attributes = BTreeMap<AttributeName, String>;

/// A text in which `{name}` is replaced by the value of the attribute `name`. A format may follow
/// the name: `{name:03}` adds leading zeros up to that width, `{name:.3}` keeps only the first
/// characters, `{name:016x}` writes a number in hexadecimal, `{name:lower}` writes lower case,
/// `{name:label}` makes the value a part of a resource name, and `{name:base64}` writes hexadecimal
/// bytes in base64 for URLs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Template {
    text: String,
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TemplatePart {
    Text(String),
    Attribute { name: AttributeName, format: Format },
}

/// The reason why a text is not a valid template, or why a template cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("`{0}` has a brace without its partner")]
    Brace(String),
    /// The text after the colon is not a known format.
    #[error(
        "`{0}` has an unknown format; there are {{x:03}}, {{x:.3}}, {{x:016x}}, {{x:lower}}, {{x:label}}, {{x:base64}}; \
         what captures, such as {{x:number}}, belongs in `for_each` or the path of a source"
    )]
    Format(String),
    /// The format does not accept the value of the attribute.
    #[error("`{template}` cannot be filled in: {name} is `{value}`")]
    Value {
        template: String,
        name: AttributeName,
        value: String,
    },
    /// The text in the braces is not a valid attribute name.
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("`{template}` needs the attribute `{name}`, which this device does not have")]
    Missing {
        template: String,
        name: AttributeName,
    },
}

impl Template {
    /// Returns the names of the attributes that the template uses. All of them must have values
    /// when the template is filled in.
    pub fn attributes(&self) -> impl Iterator<Item = &AttributeName> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Attribute { name, .. } => Some(name),
            TemplatePart::Text(_) => None,
        })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns whether the template is an empty text. With an empty text in `env`, a class removes
    /// an environment variable of the class that it extends.
    pub fn is_empty_text(&self) -> bool {
        self.text.is_empty()
    }

    /// Returns whether `text` can be the result of filling in the template. For example,
    /// `vendor.example/x1` can be a result of `vendor.example/{model}`.
    pub fn matches_filled_text(&self, text: &str) -> bool {
        let mut remaining_text = text;
        let mut is_after_attribute = false;
        for (index, part) in self.parts.iter().enumerate() {
            let TemplatePart::Text(literal) = part else {
                is_after_attribute = true;
                continue;
            };
            let is_last = index + 1 == self.parts.len();
            let start = match (is_after_attribute, is_last) {
                (false, _) => remaining_text.starts_with(literal).then_some(0),
                (true, false) => remaining_text.find(literal),
                (true, true) => remaining_text
                    .ends_with(literal)
                    .then(|| remaining_text.len() - literal.len()),
            };
            let Some(start) = start else { return false };
            remaining_text = &remaining_text[start + literal.len()..];
            is_after_attribute = false;
        }
        is_after_attribute || remaining_text.is_empty()
    }

    /// Replaces all attributes by their values and returns the text.
    ///
    /// # Errors
    /// An attribute is missing, or its format does not accept its value.
    pub fn fill(&self, attributes: &Attributes) -> Result<String, TemplateError> {
        let mut filled_text = String::with_capacity(self.text.len());
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => filled_text.push_str(text),
                TemplatePart::Attribute { name, format } => {
                    let value = attributes.get(name).ok_or_else(|| TemplateError::Missing {
                        template: self.text.clone(),
                        name: name.clone(),
                    })?;
                    let formatted_value =
                        format.apply(value).ok_or_else(|| TemplateError::Value {
                            template: self.text.clone(),
                            name: name.clone(),
                            value: crate::name::excerpt(value),
                        })?;
                    filled_text.push_str(&formatted_value);
                }
            }
        }
        Ok(filled_text)
    }
}

impl TryFrom<String> for Template {
    type Error = TemplateError;

    fn try_from(text: String) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut remaining_text = text.as_str();
        while let Some(brace_offset) = find_brace(remaining_text) {
            let (text_before, text_from_brace) = remaining_text.split_at(brace_offset);
            if !text_before.is_empty() {
                parts.push(TemplatePart::Text(text_before.to_owned()));
            }
            let end = match text_from_brace.strip_prefix('{').and_then(find_brace) {
                Some(end) if text_from_brace[1 + end..].starts_with('}') => 1 + end,
                _ => return Err(TemplateError::Brace(text)),
            };
            parts.push(parse_attribute(&text_from_brace[1..end], &text)?);
            remaining_text = &text_from_brace[end + 1..];
        }
        if !remaining_text.is_empty() {
            parts.push(TemplatePart::Text(remaining_text.to_owned()));
        }
        Ok(Template { text, parts })
    }
}

/// Returns the byte offset of the first brace. It searches bytes, which is several times as fast as
/// a search for characters, because a class file has hundreds of templates.
fn find_brace(text: &str) -> Option<usize> {
    text.bytes().position(|byte| matches!(byte, b'{' | b'}'))
}

fn parse_attribute(attribute_text: &str, text: &str) -> Result<TemplatePart, TemplateError> {
    let (name, format) = match attribute_text.split_once(':') {
        None => (attribute_text, Format::Plain),
        Some((name, format)) => match Format::parse(format) {
            Some(format) => (name, format),
            None => return Err(TemplateError::Format(text.to_owned())),
        },
    };
    Ok(TemplatePart::Attribute {
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
