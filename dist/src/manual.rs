//! Prepares manual pages for terminals. `go-md2man` makes the pages about file formats from
//! Markdown documents. The tables of these documents are too wide for a terminal, so the tables are
//! converted first. Afterwards, lines that go-md2man and clap write but `mandoc -T lint` rejects
//! are removed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Converts each table of a Markdown document to a list of definitions. The terms are the cells of
/// the first column. List items such as "`key`: meaning" are also converted. Links are replaced by
/// their texts, because a manual page cannot have links.
pub(crate) fn convert_tables(text: &str) -> String {
    let mut converted_text = String::new();
    let mut lines = text.lines().peekable();
    let mut is_in_code_block = false;
    while let Some(line) = lines.next() {
        is_in_code_block ^= line.starts_with("```");
        if !is_in_code_block && line.starts_with("<!--") {
            continue;
        }
        if let Some((term, definition)) = split_list_item(line).filter(|_| !is_in_code_block) {
            converted_text +=
                &format!("\n{}\n: {}\n", remove_links(term), remove_links(definition));
            continue;
        }
        if is_in_code_block || !line.starts_with('|') {
            let line = if is_in_code_block {
                line.to_owned()
            } else {
                remove_links(line)
            };
            converted_text += &line;
            converted_text.push('\n');
            continue;
        }
        let column_names = split_cells(line);
        // The line `|---|---|` between the header and the rows is skipped.
        lines.next();
        while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
            converted_text += &format_definition(&column_names, &split_cells(row));
        }
    }
    converted_text
}

/// Splits an item of a list, such as "- `key` (text): meaning", into its term and its text. Returns
/// `None` for any other line.
fn split_list_item(line: &str) -> Option<(&str, &str)> {
    let item = line.strip_prefix("- ")?;
    let starts_with_code = item.starts_with('`') || item.starts_with("**`");
    item.split_once(": ").filter(|_| starts_with_code)
}

/// Converts a row of a table to a definition. The first cell is the term, and the last cell is the
/// text. The cells between them follow the names of their columns, as in "type: list.".
fn format_definition(column_names: &[String], row: &[String]) -> String {
    let Some((term, cells)) = row.split_first() else {
        return String::new();
    };
    let mut sentences = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let column = column_names.get(index + 1).map_or("", String::as_str);
        let is_text = index + 1 == cells.len();
        match (cell.as_str(), column) {
            ("", _) => {}
            (cell, column) if is_text || column.is_empty() => sentences.push(cell.to_owned()),
            (cell, column) => sentences.push(format!("{column}: {cell}.")),
        }
    }
    let term = if term.is_empty() { "-" } else { term };
    let text = sentences.join(" ");
    let text = if text.is_empty() { "-" } else { &text };
    format!("\n{}\n: {}\n", remove_links(term), remove_links(text))
}

/// Splits a row of a table into cells. A vertical bar after a backslash is part of a cell.
fn split_cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    let cells = row.replace("\\|", "\0");
    let cells = cells.split('|').map(|cell| cell.trim().replace('\0', "|"));
    cells.collect()
}

/// Replaces each link `[text](target)` by its text.
fn remove_links(text: &str) -> String {
    let mut plain_text = String::new();
    let mut unread_text = text;
    while let Some((before_target, after)) = unread_text.split_once("](") {
        let Some((_, after_link)) = after.split_once(')') else {
            break;
        };
        match before_target.rfind('[') {
            Some(start) => {
                plain_text += &before_target[..start];
                plain_text += &before_target[start + 1..];
            }
            None => plain_text += before_target,
        }
        unread_text = after_link;
    }
    plain_text + unread_text
}

/// Cleans all manual pages in the subdirectories of `dir`, such as `man1`, and sets the date of the
/// pages.
pub(crate) fn normalize_manual_pages(dir: &Path, date: &str) -> Result<()> {
    for section in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
        for page in fs::read_dir(section?.path())? {
            let page = page?.path();
            let text = fs::read_to_string(&page)?;
            fs::write(&page, normalize_manual_page(&text, date))?;
        }
    }
    Ok(())
}

/// Returns a manual page with the date, and without text that mandoc rejects. go-md2man writes the
/// font `C` and a paragraph after a heading. Other rejected text is a line break beside vertical
/// space, white space at the end of a line, or a line of an example that looks like a macro.
fn normalize_manual_page(text: &str, date: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut is_in_example = false;
    for line in text.lines() {
        let mut line = line.trim_end().replace("\\fC", "");
        match line.as_str() {
            ".nf" => is_in_example = true,
            ".fi" => is_in_example = false,
            _ if is_in_example && line.starts_with(['.', '\'']) => line.insert_str(0, "\\&"),
            _ => {}
        }
        let previous_line = lines.last().map(String::as_str).unwrap_or_default();
        let is_heading = previous_line.starts_with(".SH ") || previous_line.starts_with(".SS ");
        match line.as_str() {
            ".PP" | "" if is_heading => continue,
            "" if !is_in_example => continue,
            ".br" if previous_line == ".sp" || previous_line == ".br" => continue,
            ".sp" if previous_line == ".br" => drop(lines.pop()),
            _ => {}
        }
        lines.push(complete_title(line, date));
    }
    lines.join("\n") + "\n"
}

/// Completes the title line (`.TH`) of a page: sets the date, which is empty, and writes the name
/// in capital letters. Returns all other lines unchanged.
fn complete_title(line: String, date: &str) -> String {
    let Some(title) = line.strip_prefix(".TH ") else {
        return line;
    };
    let mut words = title.splitn(3, ' ');
    let (name, section) = (words.next(), words.next());
    let title_rest = words.next().unwrap_or_default().trim_start();
    let title_rest = title_rest
        .strip_prefix("\"\"")
        .unwrap_or(title_rest)
        .trim_start();
    let (name, section) = (name.unwrap_or_default(), section.unwrap_or_default());
    let name = name.to_uppercase();
    format!(".TH {name} {section} \"{date}\" {title_rest}")
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_lists_of_keys_become_definitions() {
        let text = "See [the page](a.md#b) and `x`.\n\n| key | type | |\n|---|---|---|\n\
            | `a` | text | One \\| two, see [c](d.md). |\n| `b` | | |\n\n<!-- x -->\nAfter.\n\
            - `c` (list, required): Of [d](e.md): f.\n- no term\n\
            ```toml\n| no | table |\n[a](b)\n- `c`: d\n```\n";
        let expected = "See the page and `x`.\n\n\n`a`\n: type: text. One | two, see c.\n\n`b`\n: -\n\n\
            After.\n\n`c` (list, required)\n: Of d: f.\n- no term\n\
            ```toml\n| no | table |\n[a](b)\n- `c`: d\n```\n";
        assert_eq!(convert_tables(text), expected);
    }

    #[test]
    fn a_page_gets_a_date_and_loses_what_mandoc_rejects() {
        for (text, expected) in [
            (".TH a 1  \"a 1\" \n", ".TH A 1 \"2026-11-28\" \"a 1\"\n"),
            ("text \n", "text\n"),
            (
                ".TH A 1 \"\" \"b\" \"c\"\n.SH NAME\n.PP\nx\n",
                ".TH A 1 \"2026-11-28\" \"b\" \"c\"\n.SH NAME\nx\n",
            ),
            ("\\fB\\fCkey\\fR\n", "\\fBkey\\fR\n"),
            (".nf\n.b\n\n'c\n.fi\n", ".nf\n\\&.b\n\n\\&'c\n.fi\n"),
            (".br\n.sp\n.br\nx\n", ".sp\nx\n"),
        ] {
            assert_eq!(
                normalize_manual_page(text, "2026-11-28"),
                expected,
                "{text}"
            );
        }
    }
}
