//! Escapes untrusted text for terminals and logs. Such text comes from an image, a request, a
//! process or a file of the host. Every program of the project prints and logs through this module.
//!
//! A terminal acts on control characters. Some Unicode characters reorder or hide the text around
//! them. With these characters, the author of an untrusted text could forge messages or type into a
//! terminal. This module writes them as escape sequences.

use std::io::{self, Write};

/// The maximum length of a line in characters. All messages of this project are shorter. A line of
/// this length fits into one datagram to syslog.
const MAX_LINE_LENGTH: usize = 4096;

/// The format of an output. It determines whether line feeds are escaped, and how control
/// characters are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Each write is one line. A line feed at its end is kept; all others are escaped.
    Line,
    /// Each write may have several lines. Line feeds are not escaped.
    Lines,
    /// The output is a JSON document. Line feeds are not escaped. Control characters are escaped as
    /// `\uXXXX`, so that the meaning of the document does not change.
    Json,
}

/// Returns `text` as one line. Control characters are escaped. A text of more than 4096 characters
/// is cut and gets an ellipsis at its end.
#[must_use]
pub fn escape_line(text: &str) -> String {
    let mut characters = text.chars();
    let mut escaped_line = escape(
        characters.by_ref().take(MAX_LINE_LENGTH),
        OutputFormat::Line,
    );
    if characters.next().is_some() {
        escaped_line.push('…');
    }
    escaped_line
}

/// Escapes the characters of a JSON document that control a terminal. The meaning of the document
/// does not change.
#[must_use]
pub fn escape_json(document: &str) -> String {
    escape(document.chars(), OutputFormat::Json)
}

fn escape(characters: impl Iterator<Item = char>, form: OutputFormat) -> String {
    let mut escaped_text = String::new();
    for character in characters {
        match form {
            _ if is_printable(character) => escaped_text.push(character),
            OutputFormat::Lines | OutputFormat::Json if character == '\n' => {
                escaped_text.push(character)
            }
            OutputFormat::Line | OutputFormat::Lines => {
                escaped_text.extend(character.escape_default())
            }
            OutputFormat::Json => {
                let mut units = [0; 2];
                let units = character.encode_utf16(&mut units).iter();
                escaped_text.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    escaped_text
}

fn is_printable(character: char) -> bool {
    !(character.is_control()
        || matches!(character,
            // Line and paragraph separators of Unicode, marks and overrides of the text direction,
            // characters without width, and tag characters.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{061c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'))
}

/// A writer that escapes unsafe characters and passes the text on to another writer. Each write
/// must consist of complete UTF-8 characters. Incomplete ones become U+FFFD.
#[derive(Debug)]
pub struct EscapingWriter<W> {
    inner: W,
    form: OutputFormat,
}

impl<W: Write> EscapingWriter<W> {
    /// Returns a writer that passes escaped text to `inner`.
    pub fn new(inner: W, form: OutputFormat) -> Self {
        Self { inner, form }
    }
}

impl<W: Write> Write for EscapingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (line, line_feed) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };
        let escaped = escape(line.chars(), self.form) + line_feed;
        self.inner.write_all(escaped.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_and_text_directions_are_escaped() {
        for (text, expected) in [
            ("plain é 😀 \"quoted\" a\\b", "plain é 😀 \"quoted\" a\\b"),
            ("a\nboathook: forged", "a\\nboathook: forged"),
            ("\r\t\0", "\\r\\t\\u{0}"),
            ("\x1b[2J\x1b]0;title\x07", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("a\u{202e}b\u{2028}c", "a\\u{202e}b\\u{2028}c"),
        ] {
            assert_eq!(escape_line(text), expected);
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let printed = escape_line(&"é".repeat(MAX_LINE_LENGTH + 1));
        assert_eq!(printed.chars().count(), MAX_LINE_LENGTH + 1);
        assert!(printed.ends_with('…'));
    }

    #[test]
    fn line_feeds_are_escaped_only_in_the_form_of_one_line() {
        for (form, expected) in [
            (OutputFormat::Line, "a\\u{1b}[0m\\nb\n"),
            (OutputFormat::Lines, "a\\u{1b}[0m\nb\n"),
            (OutputFormat::Json, "a\\u001b[0m\nb\n"),
        ] {
            let mut out = EscapingWriter::new(Vec::new(), form);
            out.write_all(b"a\x1b[0m\nb\n").unwrap();
            assert_eq!(out.inner, expected.as_bytes(), "{form:?}");
        }
    }

    proptest! {
        #[test]
        fn a_line_has_no_control_characters(text: String) {
            prop_assert!(!escape_line(&text).contains(char::is_control));
        }

        #[test]
        fn an_escaped_json_document_has_the_same_value(text: String) {
            let document = serde_json::to_string_pretty(&[&text]).unwrap();
            let printed = escape_json(&document);
            prop_assert!(!printed.replace('\n', "").contains(char::is_control));
            let [read]: [String; 1] = serde_json::from_str(&printed).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
