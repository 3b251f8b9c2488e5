//! Path patterns: globs with captures, which take attributes from the names of the matching files.
//!
//! `/sys/class/apex/apex_{index:number}` matches `apex_0` and `apex_12`, and sets the attribute
//! `index`. If `index` is already known, the capture matches only the known value. So a pattern can
//! find the files of a known device in another directory.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;

use serde::Deserialize;

use crate::name::{AttributeName, NameError};
use crate::template::Attributes;

/// An absolute path whose components may be globs.
///
/// Within a component, `*` matches any characters, `?` matches one character, and `[a-f]` matches
/// one character of a set. `{name}` matches any characters and stores them as an attribute.
/// `{name:number}` matches only digits. None of these matches a slash. At the beginning of a
/// component, `*` and `?` do not match a dot (glob(7)).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PathPattern {
    text: String,
    components: Vec<Component>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component(Vec<Token>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(char),
    AnyChar,
    AnyChars,
    Set {
        ranges: Vec<(char, char)>,
        is_negated: bool,
    },
    Capture {
        name: AttributeName,
        is_digits_only: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("bad pattern `{0}`: it must begin with a slash")]
    Relative(String),
    /// The pattern has a component that is not supported, such as `..` or `**`.
    #[error("bad pattern `{pattern}`: the component `{component}` is not supported")]
    Component { pattern: String, component: String },
    /// The pattern has a bracket or brace without its partner, or nothing between the two, as in
    /// `[]`.
    #[error("bad pattern `{pattern}`: `{opener}` is not closed or is empty")]
    Unclosed {
        pattern: String,
        /// The bracket or brace: `[` or `{`, or a closing one without an opening one before it.
        opener: char,
    },
    /// The text after the colon of a capture is not `number`.
    #[error("bad pattern `{pattern}`: a capture may be of the kind `number`, not `{kind}`")]
    CaptureKind { pattern: String, kind: String },
    /// The text in the braces is not a valid attribute name.
    #[error(transparent)]
    Name(#[from] NameError),
}

impl PathPattern {
    /// Returns the components of the path in order. `/sys/class` has the components `sys` and
    /// `class`.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// Returns the names of the pattern's captures. A match sets the attributes of these names. If
    /// an attribute is already known, its capture matches only the known value.
    pub fn captures(&self) -> impl Iterator<Item = &AttributeName> {
        self.capture_tokens().map(|(name, _)| name)
    }

    /// Returns the names of the captures that match only digits (`{name:number}`).
    pub(crate) fn number_captures(&self) -> impl Iterator<Item = &AttributeName> {
        let captures = self.capture_tokens();
        captures.filter_map(|(name, is_digits_only)| is_digits_only.then_some(name))
    }

    /// Returns whether the pattern matches a path. The attributes that it captures may have any
    /// value.
    pub fn matches_path(&self, path: &Path) -> bool {
        let Ok(relative_path) = path.strip_prefix("/") else {
            return false;
        };
        let names: Vec<_> = relative_path.iter().collect();
        let no_attributes = Attributes::new();
        names.len() == self.components.len()
            && self.components.iter().zip(names).all(|(component, name)| {
                let name = name.to_str();
                name.is_some_and(|name| {
                    component.capture_attributes(name, &no_attributes).is_some()
                })
            })
    }

    fn capture_tokens(&self) -> impl Iterator<Item = (&AttributeName, bool)> {
        let components = self.components.iter();
        let tokens = components.flat_map(|component| &component.0);
        tokens.filter_map(|token| match token {
            Token::Capture {
                name,
                is_digits_only,
            } => Some((name, *is_digits_only)),
            _ => None,
        })
    }
}

impl Component {
    /// Returns the only file name that can match, or `None` if several names can match. If there is
    /// only one, the caller does not need to list the directory.
    pub fn fixed_name(&self, known_attributes: &Attributes) -> Option<String> {
        let mut name = String::new();
        for token in &self.0 {
            match token {
                Token::Literal(c) => name.push(*c),
                Token::Capture {
                    name: attribute, ..
                } => name.push_str(known_attributes.get(attribute)?),
                _ => return None,
            }
        }
        // The name may contain a value that the hardware reports. A name that would lead to another
        // directory is refused.
        (!name.contains('/') && name != ".." && name != "." && !name.is_empty()).then_some(name)
    }

    /// Returns the attributes that the component captures from a file name, or `None` if the name
    /// does not match.
    pub fn capture_attributes(
        &self,
        name: &str,
        known_attributes: &Attributes,
    ) -> Option<Attributes> {
        let is_hidden = name.starts_with('.');
        if is_hidden && !matches!(self.0.first(), Some(Token::Literal('.'))) {
            return None;
        }
        let mut captured_attributes = Attributes::new();
        matches_tokens(&self.0, name, known_attributes, &mut captured_attributes)
            .then_some(captured_attributes)
    }

    /// Compares two matches of the component by the captured values. Captures of the kind `number`
    /// are compared as numbers, so that `card9` comes before `card10`. Others, such as hexadecimal
    /// addresses, are compared as texts.
    pub(crate) fn compare_captures(&self, a: &Attributes, b: &Attributes) -> Ordering {
        let captures = self.0.iter().filter_map(|token| match token {
            Token::Capture {
                name,
                is_digits_only,
            } => Some((a.get(name)?, b.get(name)?, *is_digits_only)),
            _ => None,
        });
        captures.fold(Ordering::Equal, |order, (a, b, is_digits_only)| {
            order.then_with(|| {
                if is_digits_only {
                    compare_numbers(a, b)
                } else {
                    a.cmp(b)
                }
            })
        })
    }
}

/// Compares two texts of digits as numbers. They may be longer than any integer type.
fn compare_numbers(a: &str, b: &str) -> Ordering {
    let [a, b] = [a, b].map(|digits| digits.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// Returns whether the tokens match the whole name. Stores the attributes that the tokens capture
/// in `captured_attributes`.
fn matches_tokens(
    tokens: &[Token],
    name: &str,
    known_attributes: &Attributes,
    captured_attributes: &mut Attributes,
) -> bool {
    let Some((token, remaining_tokens)) = tokens.split_first() else {
        return name.is_empty();
    };
    let mut chars = name.chars();
    match token {
        Token::Literal(c) => {
            chars.next() == Some(*c)
                && matches_tokens(
                    remaining_tokens,
                    chars.as_str(),
                    known_attributes,
                    captured_attributes,
                )
        }
        Token::AnyChar => {
            chars.next().is_some()
                && matches_tokens(
                    remaining_tokens,
                    chars.as_str(),
                    known_attributes,
                    captured_attributes,
                )
        }
        Token::Set { ranges, is_negated } => {
            chars.next().is_some_and(|c| {
                ranges.iter().any(|(low, high)| (low..=high).contains(&&c)) != *is_negated
            }) && matches_tokens(
                remaining_tokens,
                chars.as_str(),
                known_attributes,
                captured_attributes,
            )
        }
        Token::AnyChars => (0..=name.len())
            .filter(|end| name.is_char_boundary(*end))
            .any(|end| {
                matches_tokens(
                    remaining_tokens,
                    &name[end..],
                    known_attributes,
                    captured_attributes,
                )
            }),
        Token::Capture {
            name: attribute,
            is_digits_only,
        } => {
            // The longest match is tried first, so that `{index:number}` takes all digits of a
            // number.
            let max_length = if *is_digits_only {
                name.bytes().take_while(u8::is_ascii_digit).count()
            } else {
                name.len()
            };
            let required_value = captured_attributes
                .get(attribute)
                .or(known_attributes.get(attribute))
                .cloned();
            (1..=max_length)
                .rev()
                .filter(|end| name.is_char_boundary(*end))
                .any(|end| {
                    let value = &name[..end];
                    if required_value
                        .as_deref()
                        .is_some_and(|required_value| required_value != value)
                    {
                        return false;
                    }
                    captured_attributes.insert(attribute.clone(), value.to_owned());
                    matches_tokens(
                        remaining_tokens,
                        &name[end..],
                        known_attributes,
                        captured_attributes,
                    ) || {
                        captured_attributes.remove(attribute);
                        false
                    }
                })
        }
    }
}

impl TryFrom<String> for PathPattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        let Some(relative_path) = text.strip_prefix('/') else {
            return Err(PatternError::Relative(text));
        };
        let mut components = Vec::new();
        for component in relative_path.split('/') {
            if matches!(component, "" | "." | "..") || component.contains("**") {
                let component = component.to_owned();
                return Err(PatternError::Component {
                    pattern: text,
                    component,
                });
            }
            components.push(Component(parse_tokens(component, &text)?));
        }
        Ok(PathPattern { text, components })
    }
}

fn parse_tokens(component: &str, pattern: &str) -> Result<Vec<Token>, PatternError> {
    let mut tokens = Vec::new();
    let mut remaining_text = component;
    while let Some(c) = remaining_text.chars().next() {
        remaining_text = &remaining_text[c.len_utf8()..];
        tokens.push(match c {
            '*' => Token::AnyChars,
            '?' => Token::AnyChar,
            '[' => parse_set(take_enclosed(&mut remaining_text, '[', ']', pattern)?),
            '{' => parse_capture(
                take_enclosed(&mut remaining_text, '{', '}', pattern)?,
                pattern,
            )?,
            ']' | '}' => {
                return Err(PatternError::Unclosed {
                    pattern: pattern.to_owned(),
                    opener: c,
                });
            }
            c => Token::Literal(c),
        });
    }
    Ok(tokens)
}

fn take_enclosed<'a>(
    text: &mut &'a str,
    opener: char,
    closer: char,
    pattern: &str,
) -> Result<&'a str, PatternError> {
    match text.split_once(closer) {
        Some((enclosed_text, text_after)) if !enclosed_text.trim_start_matches('!').is_empty() => {
            *text = text_after;
            Ok(enclosed_text)
        }
        _ => Err(PatternError::Unclosed {
            pattern: pattern.to_owned(),
            opener,
        }),
    }
}

fn parse_set(set_text: &str) -> Token {
    let (set_text, is_negated) = match set_text.strip_prefix('!') {
        Some(set_text) => (set_text, true),
        None => (set_text, false),
    };
    let chars: Vec<char> = set_text.chars().collect();
    let mut ranges = Vec::new();
    let mut index = 0;
    while index < chars.len() {
        match chars[index..] {
            [low, '-', high, ..] => {
                ranges.push((low, high));
                index += 3;
            }
            _ => {
                ranges.push((chars[index], chars[index]));
                index += 1;
            }
        }
    }
    Token::Set { ranges, is_negated }
}

fn parse_capture(capture_text: &str, pattern: &str) -> Result<Token, PatternError> {
    let (name, is_digits_only) = match capture_text.split_once(':') {
        None => (capture_text, false),
        Some((name, "number")) => (name, true),
        Some((_, kind)) => {
            return Err(PatternError::CaptureKind {
                pattern: pattern.into(),
                kind: kind.into(),
            });
        }
    };
    Ok(Token::Capture {
        name: AttributeName::try_from(name.to_owned())?,
        is_digits_only,
    })
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses attributes from a text such as `a=1 b=2`.
    fn attributes(text: &str) -> Attributes {
        let pairs = text
            .split_whitespace()
            .map(|pair| pair.split_once('=').unwrap());
        let pairs =
            pairs.map(|(name, value)| (name.to_owned().try_into().unwrap(), value.to_owned()));
        pairs.collect()
    }

    #[test]
    fn a_component_matches_names_and_reads_attributes() {
        for (pattern, known, name, wanted) in [
            ("/npu{index:number}", "", "npu12", Some("index=12")),
            ("/npu{index:number}", "", "npu", None),
            ("/npu{index:number}", "", "npu12x", None),
            ("/npu{index:number}", "index=1", "npu12", None),
            ("/npu{index:number}", "index=12", "npu12", Some("index=12")),
            ("/npu[0-9]", "", "npu12", None),
            ("/npu[0-9]*", "", "npu12", Some("")),
            ("/npu[!0-9]", "", "npux", Some("")),
            ("/card?", "", "card1", Some("")),
            ("/{a}-{b:number}", "", "x-y-3", Some("a=x-y b=3")),
            ("/{a}{a}", "", "xyxy", Some("a=xy")),
            ("/*", "", ".hidden", None),
            ("/{any}", "", ".hidden", None),
            ("/.*", "", ".hidden", Some("")),
        ] {
            let parsed = PathPattern::try_from(pattern.to_owned()).unwrap();
            let found = parsed.components()[0].capture_attributes(name, &attributes(known));
            assert_eq!(found, wanted.map(attributes), "{pattern} on {name}");
        }
    }

    #[test]
    fn names_are_compared_by_their_numbers_and_texts() {
        for (pattern, names) in [
            ("/card{n:number}", ["card9", "card10", "card100"]),
            ("/card{n:number}", ["card007", "card8", "card09"]),
            (
                "/spi{bus:number}.{chip:number}",
                ["spi2.10", "spi10.2", "spi10.10"],
            ),
            ("/{name}-{n:number}", ["a-10", "b-2", "b-10"]),
            (
                "/{slot}.{n:number}",
                ["0000:09:00.1", "0000:0a:00.0", "0000:10:00.0"],
            ),
            (
                "/n{n:number}",
                ["n9", "n18446744073709551616", "n99999999999999999999"],
            ),
            ("/{name}", ["card10", "card100", "card9"]),
        ] {
            let parsed = PathPattern::try_from(pattern.to_owned()).unwrap();
            let component = &parsed.components()[0];
            let captures = names.map(|name| {
                let captures = component.capture_attributes(name, &Attributes::new());
                captures.unwrap()
            });
            let is_in_order =
                captures.is_sorted_by(|a, b| component.compare_captures(a, b).is_lt());
            assert!(is_in_order, "{pattern}: {names:?}");
        }
    }

    #[test]
    fn a_component_is_fixed_when_one_name_can_match() {
        let parsed = PathPattern::try_from("/{bdf}".to_owned()).unwrap();
        let component = &parsed.components()[0];
        assert_eq!(component.fixed_name(&attributes("")), None);
        let fixed = component.fixed_name(&attributes("bdf=0:1"));
        assert_eq!(fixed.as_deref(), Some("0:1"));
        for hostile in ["..", "a/b", ".", ""] {
            let fixed = component.fixed_name(&attributes(&format!("bdf={hostile}")));
            assert_eq!(fixed, None, "{hostile}");
        }
    }

    #[test]
    fn bad_globs_are_named() {
        for (pattern, reason) in [
            ("dev/npu*", "it must begin with a slash"),
            ("/dev/../x", "the component `..` is not supported"),
            ("/dev/**", "the component `**` is not supported"),
            ("/dev//x", "the component `` is not supported"),
            ("/dev/npu[0-9", "`[` is not closed or is empty"),
            ("/dev/npu[]", "`[` is not closed or is empty"),
            ("/dev/{x", "`{` is not closed or is empty"),
            ("/dev/x}", "`}` is not closed or is empty"),
            (
                "/dev/{x:hex}",
                "a capture may be of the kind `number`, not `hex`",
            ),
        ] {
            let error = PathPattern::try_from(pattern.to_owned()).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("bad pattern `{pattern}`: {reason}")
            );
        }
    }
}
