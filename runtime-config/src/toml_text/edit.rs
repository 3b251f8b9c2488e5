//! Functions that edit a TOML text. Each of them returns the changed text.

use std::path::Path;

use toml_edit::{Document, Item, Table};

use super::{
    ADDED_LINE_SUFFIX, BLOCK_BEGIN, BLOCK_END, FILE_BLOCK_BEGIN, REPLACED_LINE_PREFIX,
    find_line_number, find_line_range, get_item, parse_document, quote,
};
use crate::error::Error;

/// Returns the text of a configuration file that only Boathook writes. Boathook recognizes its
/// files by the marker lines before and after `body`.
pub(crate) fn format_managed_file(body: &str) -> String {
    format!("{FILE_BLOCK_BEGIN}\n{body}{BLOCK_END}\n")
}

/// Appends a block with tables to a text. A line break comes before the block. It is removed
/// together with the block, so an undo restores the text exactly even if it did not end with a line
/// break.
pub(crate) fn append_block(text: &str, body: &str) -> String {
    let separator = if text.is_empty() { "" } else { "\n" };
    format!("{text}{separator}{BLOCK_BEGIN}\n{body}{BLOCK_END}\n")
}

/// Inserts a top-level line before the key `version`, or at the top of a text without this key. If
/// the line came after the header of a table, it would be part of that table.
pub(crate) fn insert_line(path: &Path, text: &str, line: &str) -> Result<String, Error> {
    let doc = parse_document(path, text)?;
    let offset = find_key_offset(doc.as_table(), "version")
        .map_or(0, |key| find_line_range(text, key).start);
    Ok(replace_range(
        text,
        offset..offset,
        &format!("{line}{ADDED_LINE_SUFFIX}\n"),
    ))
}

/// Adds a string to a top-level list. The list is created if it does not exist.
pub(crate) fn add_to_list(
    path: &Path,
    text: &str,
    key: &str,
    value: &str,
) -> Result<String, Error> {
    let doc = parse_document(path, text)?;
    let Some(item) = doc.get(key) else {
        return insert_line(path, text, &format!("{key} = [{}]", quote(value)));
    };
    let (array, span) = item
        .as_array()
        .and_then(|array| Some((array, array.span()?)))
        .ok_or_else(|| {
            let line = find_line_number(text, find_key_offset(doc.as_table(), key).unwrap_or(0));
            let problem = format!("{key} is not a list; make it a list of strings");
            Error::new_at_line(path, line, problem)
        })?;
    Ok(match array.iter().last().and_then(|last| last.span()) {
        Some(last) => replace_range(text, last.end..last.end, &format!(", {}", quote(value))),
        None => replace_range(text, span.start + 1..span.start + 1, &quote(value)),
    })
}

/// Sets a key to a string, in a table that has its own `[header]` in the text.
///
/// Returns `None` if the table has no header of its own. The caller can then write the table in a
/// block.
///
/// # Errors
/// Fails if the text does not parse. Also fails if the key exists and shares its line with other
/// text, so that a new line cannot replace it. Also fails if the table's header is the last line
/// and has no line break.
pub(crate) fn set_key(
    path: &Path,
    text: &str,
    table_path: &[&str],
    key: &str,
    value: &str,
) -> Result<Option<String>, Error> {
    let doc = parse_document(path, text)?;
    let Some(table) = find_header_table(&doc, table_path) else {
        return Ok(None);
    };
    let line = format!("{key} = {}{ADDED_LINE_SUFFIX}\n", quote(value));
    if let Some((old_key, old_value)) = table.get_key_value(key) {
        let start = old_key.span().unwrap_or_default().start;
        let line_range = find_line_range(text, start);
        let end = old_value.span().unwrap_or_default().end;
        if !text[line_range.start..start].trim().is_empty() || end > line_range.end {
            let problem = format!(
                "{key} is not on a line of its own; write it as {key} = \"...\" under its table's \
                 header"
            );
            return Err(Error::new_at_line(
                path,
                find_line_number(text, start),
                problem,
            ));
        }
        let indent = &text[line_range.start..start];
        let old_line = &text[line_range.clone()];
        let lines = format!("{indent}{line}{REPLACED_LINE_PREFIX}{old_line}");
        return Ok(Some(replace_range(text, line_range, &lines)));
    }
    let header = table.span().unwrap_or_default();
    let next_line = find_line_range(text, header.start).end;
    if !text[..next_line].ends_with('\n') {
        let problem = "the file ends without a line break; end its last line";
        return Err(Error::new_at_line(
            path,
            find_line_number(text, header.start),
            problem,
        ));
    }
    Ok(Some(replace_range(text, next_line..next_line, &line)))
}

/// Returns the table to which `keys` lead, if it has a `[header]` of its own. Returns `None` for a
/// table that exists only because of its subtables or because of a dotted key.
fn find_header_table<'d>(doc: &'d Document<&str>, keys: &[&str]) -> Option<&'d Table> {
    let table = get_item(doc, keys).and_then(Item::as_table)?;
    (!table.is_implicit() && !table.is_dotted()).then_some(table)
}

fn find_key_offset(table: &Table, key: &str) -> Option<usize> {
    Some(table.get_key_value(key)?.0.span()?.start)
}

fn replace_range(text: &str, range: std::ops::Range<usize>, replacement: &str) -> String {
    format!(
        "{}{replacement}{}",
        &text[..range.start],
        &text[range.end..]
    )
}
