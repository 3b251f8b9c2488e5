//! Texts that may come from an image or a request, made safe to print.

use std::io::{self, Write};

/// Most characters of a message: enough for any of ours, little enough for a
/// datagram.
const MAX: usize = 4096;

/// `text` on one line and without anything that a terminal acts on: control
/// characters, and those that reorder or hide text.
pub(crate) fn printable(text: &str) -> String {
    let mut printed = String::with_capacity(text.len());
    for (count, character) in text.chars().enumerate() {
        if count == MAX {
            printed.push('…');
            break;
        }
        push(&mut printed, character);
    }
    printed
}

fn push(printed: &mut String, character: char) {
    if is_printable(character) {
        printed.push(character);
    } else {
        printed.extend(character.escape_default());
    }
}

fn is_printable(character: char) -> bool {
    !(character.is_control()
        || matches!(character,
            // Line and paragraph separators, marks and overrides of direction,
            // characters without width, tags.
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{061c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'))
}

/// Output of several lines for a terminal: as [`printable`], but line feeds stay.
pub(crate) struct Printable<W>(pub(crate) W);

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut printed = String::with_capacity(bytes.len());
        for character in String::from_utf8_lossy(bytes).chars() {
            match character {
                '\n' => printed.push('\n'),
                character => push(&mut printed, character),
            }
        }
        self.0.write_all(printed.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
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
            assert_eq!(printable(text), expected);
        }
    }

    #[test]
    fn a_long_text_is_cut() {
        let printed = printable(&"é".repeat(MAX + 1));
        assert_eq!(printed.chars().count(), MAX + 1);
        assert!(printed.ends_with('…'));
    }

    #[test]
    fn output_keeps_its_lines() {
        let mut out = Printable(Vec::new());
        writeln!(out, "a\x1b[0m").unwrap();
        writeln!(out, "b").unwrap();
        assert_eq!(out.0, b"a\\u{1b}[0m\nb\n");
    }

    proptest! {
        #[test]
        fn nothing_printed_is_a_control_character(text: String) {
            prop_assert!(!printable(&text).contains(char::is_control));
        }
    }
}
