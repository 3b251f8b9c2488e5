//! Undoes the edits of a TOML text. Marker comments show what was edited.

use toml_edit::Document;

use super::{
    ADDED_LINE_SUFFIX, BLOCK_BEGIN, BLOCK_END, BOATHOOK_FILE_STEM, FILE_BLOCK_BEGIN,
    REPLACED_LINE_PREFIX,
};
use crate::engine_properties::RUNTIME_HANDLER_NAME;

/// Returns the text without the parts that Boathook added, or `None` if Boathook created the file.
///
/// The function accepts every text, even one that is not TOML (such as a Go template) or does not
/// parse. A text without marker comments is returned unchanged.
pub(crate) fn strip_edits(text: &str) -> Option<String> {
    let (remaining_text, is_boathook_file) = strip_lines(text);
    if is_boathook_file && remaining_text.is_empty() {
        return None;
    }
    Some(strip_import(&remaining_text).unwrap_or(remaining_text))
}

/// Removes the blocks and the marked lines. Returns the remaining text, and whether Boathook
/// created the file.
fn strip_lines(text: &str) -> (String, bool) {
    let mut remaining_text = String::with_capacity(text.len());
    let mut is_boathook_file = false;
    let mut unread_text = text;
    // Whether the last line before a removed block has no line break.
    let mut lacks_line_break = false;
    while !unread_text.is_empty() {
        let (line, next_lines) = unread_text.split_at(
            unread_text
                .find('\n')
                .map_or(unread_text.len(), |newline| newline + 1),
        );
        let line_text = line.strip_suffix('\n').unwrap_or(line);
        let begins_block = line_text == BLOCK_BEGIN || line_text == FILE_BLOCK_BEGIN;
        if let (true, Some(text_after_block)) = (begins_block, skip_block(next_lines)) {
            is_boathook_file |= line_text == FILE_BLOCK_BEGIN;
            // `append_block` put a line break before the block. This line break is removed as well.
            lacks_line_break = remaining_text.pop().is_some()
                && !remaining_text.is_empty()
                && !remaining_text.ends_with('\n');
            unread_text = text_after_block;
            continue;
        }
        if std::mem::take(&mut lacks_line_break) {
            remaining_text.push('\n');
        }
        if let Some(old_line) = line.strip_prefix(REPLACED_LINE_PREFIX) {
            remaining_text.push_str(old_line);
        } else if let Some(added_line) = line_text.strip_suffix(ADDED_LINE_SUFFIX) {
            // If the user has changed a marked line since the installation, the line is kept,
            // without its mark.
            if !is_unchanged_line(added_line) {
                remaining_text.push_str(added_line);
                remaining_text.push('\n');
            }
        } else {
            remaining_text.push_str(line);
        }
        unread_text = next_lines;
    }
    (remaining_text, is_boathook_file)
}

/// Returns the text after a block. `text` begins after the first line of the block. Returns `None`
/// if the last line of the block is missing.
fn skip_block(text: &str) -> Option<&str> {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        offset += line.len();
        match line.trim_end_matches('\n') {
            BLOCK_END => return Some(&text[offset..]),
            BLOCK_BEGIN | FILE_BLOCK_BEGIN => return None,
            _ => {}
        }
    }
    None
}

/// Returns whether a marked line is still as Boathook wrote it.
fn is_unchanged_line(line: &str) -> bool {
    let line = line.trim_start();
    line == "version = 2"
        || line == format!("default_runtime_name = \"{RUNTIME_HANDLER_NAME}\"")
        || (line.starts_with("imports = [\"") && !line.contains(','))
}

/// Removes Boathook's drop-in from the list `imports`. Returns `None` if the list does not contain
/// the drop-in.
fn strip_import(text: &str) -> Option<String> {
    let doc = Document::parse(text).ok()?;
    let imports = doc.get("imports")?.as_array()?;
    let import_index = imports.iter().position(|value| {
        value
            .as_str()
            .is_some_and(|path| path.ends_with(&format!("/{BOATHOOK_FILE_STEM}.toml")))
    })?;
    let span = |index: usize| imports.get(index).and_then(|value| value.span());
    let import_span = span(import_index)?;
    // The separator before the removed element is removed as well. If the element is the first one,
    // the separator after it is removed instead.
    let removed_range = match import_index.checked_sub(1).and_then(span) {
        Some(previous_span) => previous_span.end..import_span.end,
        None => {
            import_span.start
                ..span(import_index + 1).map_or(import_span.end, |next_span| next_span.start)
        }
    };
    Some(format!(
        "{}{}",
        &text[..removed_range.start],
        &text[removed_range.end..]
    ))
}
