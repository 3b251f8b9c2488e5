//! The edits of a TOML text. Each function returns the changed text.

use std::path::Path;

use toml_edit::{Document, Item, Table};

use super::{ADDED, BEGIN, BEGIN_FILE, END, WAS, item_at, line_around, line_of, parse, quote};
use crate::error::Error;

/// Returns the text of a new file that only Boathook writes.
pub(crate) fn whole_file(body: &str) -> String {
    format!("{BEGIN_FILE}\n{body}{END}\n")
}

/// Appends a block with tables to a text. The block begins with a line break, so that the text
/// is restored exactly even if it did not end with one.
pub(crate) fn append_block(text: &str, body: &str) -> String {
    let gap = if text.is_empty() { "" } else { "\n" };
    format!("{text}{gap}{BEGIN}\n{body}{END}\n")
}

/// Inserts a top-level line before `version`, or at the top of a text without `version`. After
/// a table's header the line would belong to that table.
pub(crate) fn insert_line(path: &Path, text: &str, line: &str) -> Result<String, Error> {
    let doc = parse(path, text)?;
    let at = key_offset(doc.as_table(), "version").map_or(0, |key| line_around(text, key).start);
    Ok(splice(text, at..at, &format!("{line}{ADDED}\n")))
}

/// Adds a string to a top-level list. The list is created if it does not exist.
pub(crate) fn add_to_list(
    path: &Path,
    text: &str,
    key: &str,
    value: &str,
) -> Result<String, Error> {
    let doc = parse(path, text)?;
    let Some(item) = doc.get(key) else {
        return insert_line(path, text, &format!("{key} = [{}]", quote(value)));
    };
    let (array, span) = item
        .as_array()
        .and_then(|array| Some((array, array.span()?)))
        .ok_or_else(|| {
            let line = line_of(text, key_offset(doc.as_table(), key).unwrap_or(0));
            let problem = format!("{key} is not a list; make it a list of strings");
            Error::new_at_line(path, line, problem)
        })?;
    Ok(match array.iter().last().and_then(|last| last.span()) {
        Some(last) => splice(text, last.end..last.end, &format!(", {}", quote(value))),
        None => splice(text, span.start + 1..span.start + 1, &quote(value)),
    })
}

/// Sets a key to a string in a table that has a `[header]` in the text.
///
/// Returns `None` if there is no such header. The caller can then write the table in a block.
///
/// # Errors
/// Fails if the key is not on a line of its own, so that a line cannot replace it.
pub(crate) fn set_key(
    path: &Path,
    text: &str,
    table: &[&str],
    key: &str,
    value: &str,
) -> Result<Option<String>, Error> {
    let doc = parse(path, text)?;
    let Some(table) = header_table(&doc, table) else {
        return Ok(None);
    };
    let line = format!("{key} = {}{ADDED}\n", quote(value));
    if let Some((name, old)) = table.get_key_value(key) {
        let start = name.span().unwrap_or_default().start;
        let whole = line_around(text, start);
        let end = old.span().unwrap_or_default().end;
        if !text[whole.start..start].trim().is_empty() || end > whole.end {
            let problem = format!(
                "{key} is not on a line of its own; write it as {key} = \"...\" under its table's \
                 header"
            );
            return Err(Error::new_at_line(path, line_of(text, start), problem));
        }
        let indent = &text[whole.start..start];
        let was = format!("{indent}{line}{WAS}{}", &text[whole.clone()]);
        return Ok(Some(splice(text, whole, &was)));
    }
    let header = table.span().unwrap_or_default();
    let after = line_around(text, header.start).end;
    if !text[..after].ends_with('\n') {
        let problem = "the file ends without a line break; end its last line";
        return Err(Error::new_at_line(
            path,
            line_of(text, header.start),
            problem,
        ));
    }
    Ok(Some(splice(text, after..after, &line)))
}

/// Returns the table at a path if it has a `[header]` of its own. Returns `None` for a table that
/// exists only because of its subtables or of a dotted key.
fn header_table<'d>(doc: &'d Document<&str>, path: &[&str]) -> Option<&'d Table> {
    let table = item_at(doc, path).and_then(Item::as_table)?;
    (!table.is_implicit() && !table.is_dotted()).then_some(table)
}

fn key_offset(table: &Table, key: &str) -> Option<usize> {
    Some(table.get_key_value(key)?.0.span()?.start)
}

fn splice(text: &str, range: std::ops::Range<usize>, with: &str) -> String {
    format!("{}{with}{}", &text[..range.start], &text[range.end..])
}
