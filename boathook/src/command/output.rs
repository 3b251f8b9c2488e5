//! Prints tables and paragraphs on stdout. On a terminal, long lines are wrapped and severities are
//! coloured.

use std::env;
use std::io::{self, IsTerminal, Write};

use host_files::printable;
use terminal_size::Width;

/// The width, in columns, of a terminal that does not report its width, such as a serial console.
const DEFAULT_COLUMNS: usize = 80;
/// The minimum width in characters of a table's last column. On a narrow terminal, table rows may
/// therefore be wider than the terminal.
const MIN_LAST_COLUMN_CHARS: usize = 24;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    /// The width in columns at which lines are wrapped. It is `None` if the output goes to a
    /// program or a file: then lines are not wrapped.
    width: Option<usize>,
    is_colored: bool,
}

/// Returns the width in columns of the terminal to which stdout goes.
fn read_terminal_width() -> usize {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map_or(DEFAULT_COLUMNS, |(Width(columns), _)| columns.into())
}

impl Style {
    /// Returns the style for this process's stdout. The variable COLUMNS sets the width even if
    /// stdout is not a terminal, as in ps(1). NO_COLOR (no-color.org) and TERM=dumb disable
    /// colours.
    pub(super) fn for_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        let columns = env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|columns| *columns > 0);
        let is_set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb_terminal = env::var_os("TERM").is_some_and(|term| term == "dumb");
        Style {
            width: columns.or_else(|| is_terminal.then(read_terminal_width)),
            is_colored: !is_set("NO_COLOR")
                && (is_set("CLICOLOR_FORCE") || is_terminal && !is_dumb_terminal),
        }
    }

    /// Writes a table. Each column is as wide as its widest cell. The text of the last column is
    /// wrapped. If the first cell of a row is a severity, it is coloured.
    pub(super) fn write_table<const N: usize>(
        self,
        out: &mut impl Write,
        rows: &[[String; N]],
    ) -> io::Result<()> {
        let rows: Vec<[String; N]> = rows
            .iter()
            .map(|row| row.each_ref().map(|cell| printable::escape_line(cell)))
            .collect();
        let mut widths = [0; N];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let indent = widths.iter().take(N - 1).map(|width| width + 2).sum();
        for row in &rows {
            let mut line = String::new();
            for (index, (cell, width)) in row.iter().zip(widths).take(N - 1).enumerate() {
                let padding = " ".repeat(width + 2 - cell.chars().count());
                match self.color_code(cell).filter(|_| index == 0) {
                    Some(color_code) => {
                        line += &format!("\x1b[{color_code}m{cell}\x1b[0m{padding}")
                    }
                    None => line += &format!("{cell}{padding}"),
                }
            }
            let last_cell = row.last().map_or("", String::as_str);
            for (index, wrapped_line) in self.wrap_text(last_cell, indent).iter().enumerate() {
                if index > 0 {
                    line = " ".repeat(indent);
                }
                writeln!(out, "{}", format!("{line}{wrapped_line}").trim_end())?;
            }
        }
        Ok(())
    }

    /// Writes a paragraph. Its lines are wrapped at the style's width.
    pub(super) fn write_paragraph(self, out: &mut impl Write, text: &str) -> io::Result<()> {
        let lines = self.wrap_text(&printable::escape_line(text), 0);
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// Splits a text into lines that end at the style's width if the caller prints them after
    /// `indent` columns. A word that is longer than a line, such as a path, is not split.
    fn wrap_text(self, text: &str, indent: usize) -> Vec<String> {
        let Some(width) = self.width else {
            return vec![text.to_owned()];
        };
        let width = width.saturating_sub(indent).max(MIN_LAST_COLUMN_CHARS);
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let word_length = word.chars().count();
            let line_length = lines.last_mut().map_or(0, |line| line.chars().count());
            if line_length > 0 && line_length + 1 + word_length > width {
                lines.push(word.to_owned());
            } else if let Some(last_line) = lines.last_mut() {
                if line_length > 0 {
                    last_line.push(' ');
                }
                last_line.push_str(word);
            }
        }
        lines
    }

    /// Returns the colour code of a severity (ECMA-48, SGR), or `None` if colours are disabled.
    fn color_code(self, severity: &str) -> Option<u8> {
        let color_code = match severity {
            "ok" => 32,
            "warning" => 33,
            "error" => 31,
            _ => return None,
        };
        self.is_colored.then_some(color_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(style: Style) -> String {
        let rows = [
            ["ok", "a", "short"],
            [
                "error",
                "subject",
                "a text of several words that is wrapped \x1b[2J",
            ],
        ];
        let mut out = Vec::new();
        let rows = rows.map(|row| row.map(str::to_owned));
        style.write_table(&mut out, &rows).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_fits_its_width_or_is_not_wrapped() {
        let narrow = Style {
            width: Some(40),
            is_colored: false,
        };
        let expected = "ok     a        short\n\
                        error  subject  a text of several words\n                \
                        that is wrapped\n                \\u{1b}[2J\n";
        assert_eq!(written(narrow), expected);
        let lines = written(Style::default());
        assert_eq!(lines.lines().count(), 2, "{lines}");
    }

    #[test]
    fn only_severities_are_coloured() {
        let style = Style {
            width: None,
            is_colored: true,
        };
        let colored = written(style);
        assert!(colored.starts_with("\x1b[32mok\x1b[0m     a"), "{colored}");
        assert_eq!(colored.matches("\x1b[").count(), 4, "{colored}");
    }
}
