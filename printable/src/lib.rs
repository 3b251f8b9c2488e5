//! Makes untrusted text safe to print: text from an image, a request, a process or a file
//! of the host. Every program of the project prints and logs through this crate.
//!
//! A terminal acts on control characters, and some Unicode characters reorder or hide the
//! text around them. The author of an untrusted text could use these characters to forge
//! messages or to type into a terminal. This crate prints them as escapes.

#![forbid(unsafe_code)]

use std::io::{self, Write};

/// The longest message, in characters. All messages of the project are shorter, and a
/// message of this length still fits into one datagram.
const MAX: usize = 4096;

/// The output that a text is written to. The form decides how line feeds and other
/// control characters are escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The text is one line: all line feeds but the last one are escaped.
    Line,
    /// The text has several lines: line feeds are not escaped.
    Lines,
    /// The text is a JSON document. Line feeds are not escaped, and other characters are
    /// escaped as `\uXXXX`, so that the output is JSON with the same meaning.
    Json,
}

/// Returns `text` on one line. A text of more than 4096 characters is cut there and ends
/// with an ellipsis.
#[must_use]
pub fn line(text: &str) -> String {
    let mut characters = text.chars();
    let mut printed = escape(characters.by_ref().take(MAX), Form::Line);
    if characters.next().is_some() {
        printed.push('…');
    }
    printed
}

/// Returns a JSON document with the same meaning, in which unsafe characters are escaped.
#[must_use]
pub fn json(document: &str) -> String {
    escape(document.chars(), Form::Json)
}

fn escape(characters: impl Iterator<Item = char>, form: Form) -> String {
    let mut printed = String::new();
    for character in characters {
        match form {
            _ if is_printable(character) => printed.push(character),
            Form::Lines | Form::Json if character == '\n' => printed.push(character),
            Form::Line | Form::Lines => printed.extend(character.escape_default()),
            Form::Json => {
                let mut units = [0; 2];
                let units = character.encode_utf16(&mut units).iter();
                printed.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
        }
    }
    printed
}

fn is_printable(character: char) -> bool {
    !(character.is_control()
        || matches!(character,
            // These are line and paragraph separators, marks and overrides of the
            // direction of text, characters without width, and tag characters.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{061c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'))
}

/// A writer that escapes unsafe characters before it passes text on. Each write must
/// contain whole UTF-8 characters; incomplete characters become U+FFFD.
#[derive(Debug)]
pub struct Printable<W> {
    to: W,
    form: Form,
}

impl<W: Write> Printable<W> {
    /// Returns a writer that passes escaped text on to `to`. With [`Form::Line`] each
    /// call of `write` is one line.
    pub fn new(to: W, form: Form) -> Self {
        Self { to, form }
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let (line, end) = match text.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (&*text, ""),
        };
        let printed = escape(line.chars(), self.form) + end;
        self.to.write_all(printed.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_escaped() {
        for (text, expected) in [
            ("plain é 😀 \"quoted\" a\\b", "plain é 😀 \"quoted\" a\\b"),
            ("a\nboathook: forged", "a\\nboathook: forged"),
            ("\r\t\0", "\\r\\t\\u{0}"),
            ("\x1b[2J\x1b]0;title\x07", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("a\u{202e}b\u{2028}c", "a\\u{202e}b\\u{2028}c"),
        ] {
            assert_eq!(line(text), expected);
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let printed = line(&"é".repeat(MAX + 1));
        assert_eq!(printed.chars().count(), MAX + 1);
        assert!(printed.ends_with('…'));
    }

    #[test]
    fn an_output_keeps_the_lines_of_its_form() {
        for (form, expected) in [
            (Form::Line, "a\\u{1b}[0m\\nb\n"),
            (Form::Lines, "a\\u{1b}[0m\nb\n"),
            (Form::Json, "a\\u001b[0m\nb\n"),
        ] {
            let mut out = Printable::new(Vec::new(), form);
            out.write_all(b"a\x1b[0m\nb\n").unwrap();
            assert_eq!(out.to, expected.as_bytes(), "{form:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_printed_is_a_control_character(text: String) {
            prop_assert!(!line(&text).contains(char::is_control));
        }

        #[test]
        fn a_json_document_means_the_same(text: String) {
            let document = serde_json::to_string_pretty(&[&text]).unwrap();
            let printed = json(&document);
            prop_assert!(!printed.replace('\n', "").contains(char::is_control));
            let [read]: [String; 1] = serde_json::from_str(&printed).unwrap();
            prop_assert_eq!(read, text);
        }
    }
}
