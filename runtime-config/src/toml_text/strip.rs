//! Undoes the edits of a TOML text. Marker comments show what was edited.

use std::borrow::Cow;

use toml_edit::{Document, RawString};

use super::{
    ADDED_LINE_SUFFIX, BLOCK_BEGIN, BLOCK_END, BOATHOOK_FILE_STEM, FILE_BLOCK_BEGIN,
    REPLACED_LINE_PREFIX,
};
use crate::engine_properties::RUNTIME_HANDLER_NAME;

/// The keys of containerd's configuration that depend on the version of its format: they have the
/// ids of plugins, which differ between the versions.
pub(crate) const VERSIONED_KEYS: [&str; 3] = ["plugins", "disabled_plugins", "required_plugins"];

/// The line that is added to a configuration of containerd without a version.
const VERSION_LINE: &str = "version = 2";

/// Returns the text without the parts that Boathook added, or `None` if Boathook created the file.
///
/// The function accepts every text, even one that is not TOML (such as a Go template) or does not
/// parse. A text without marker comments is returned unchanged. Lines of Boathook stay if text that
/// the administrator has added depends on them ([`KeptLines`]).
pub(crate) fn strip_edits(text: &str) -> Option<String> {
    let stripped_text = strip_lines(text, KeptLines::default());
    let is_blank = stripped_text.text.trim().is_empty();
    if is_blank && stripped_text.file_preamble.is_some() {
        return None;
    }
    let remaining_text = strip_lines(text, KeptLines::find(&stripped_text)).text;
    Some(strip_import(&remaining_text).unwrap_or(remaining_text))
}

/// A text without the blocks and the marked lines.
struct StrippedText<'t> {
    text: String,
    /// The first lines of the removed block if Boathook created the file ([`find_preamble`]).
    file_preamble: Option<&'t str>,
}

/// The lines of Boathook that stay, because text of the administrator depends on them.
#[derive(Debug, Clone, Copy, Default)]
struct KeptLines {
    /// The preamble of a file that Boathook created.
    preamble: bool,
    /// The line `version = 2` that Boathook added. Without it, containerd reads the tables of
    /// plugins in another way, or not at all.
    version: bool,
}

impl KeptLines {
    /// Returns the lines on which the text that remains without them depends.
    fn find(stripped_text: &StrippedText<'_>) -> Self {
        let mut lines = stripped_text.text.lines().map(str::trim);
        let has_settings = lines.any(|line| !line.is_empty() && !line.starts_with('#'));
        // k3s generates an empty configuration from a template that has only comments.
        let is_template = |preamble: &str| preamble.starts_with("{{");
        Self {
            preamble: stripped_text
                .file_preamble
                .is_some_and(|preamble| has_settings || is_template(preamble)),
            version: has_versioned_key(&stripped_text.text),
        }
    }
}

/// Returns whether a configuration of containerd has a key that depends on `version`. A text that
/// does not parse may have one.
fn has_versioned_key(text: &str) -> bool {
    match Document::parse(text) {
        Ok(doc) => VERSIONED_KEYS.iter().any(|key| doc.contains_key(key)),
        Err(_) => true,
    }
}

/// Removes the blocks and the marked lines.
fn strip_lines(text: &str, kept_lines: KeptLines) -> StrippedText<'_> {
    let mut remaining_text = String::with_capacity(text.len());
    let mut file_preamble = None;
    let mut unread_text = text;
    // Whether the last line before a removed block has no line break.
    let mut lacks_line_break = false;
    let mut follows_default_runtime = false;
    while !unread_text.is_empty() {
        let (line, next_lines) = unread_text.split_at(
            unread_text
                .find('\n')
                .map_or(unread_text.len(), |newline| newline + 1),
        );
        let line_text = line.strip_suffix('\n').unwrap_or(line);
        let begins_block = line_text == BLOCK_BEGIN || line_text == FILE_BLOCK_BEGIN;
        if let (true, Some(text_after_block)) = (begins_block, skip_block(next_lines)) {
            // `append_block` put a line break before the block. This line break is removed as well.
            lacks_line_break = remaining_text.pop().is_some()
                && !remaining_text.is_empty()
                && !remaining_text.ends_with('\n');
            if line_text == FILE_BLOCK_BEGIN {
                let preamble = find_preamble(next_lines);
                file_preamble = Some(preamble);
                if kept_lines.preamble {
                    if std::mem::take(&mut lacks_line_break) {
                        remaining_text.push('\n');
                    }
                    remaining_text.push_str(preamble);
                }
            }
            unread_text = text_after_block;
            continue;
        }
        if std::mem::take(&mut lacks_line_break) {
            remaining_text.push('\n');
        }
        let kept_line = match line.strip_prefix(REPLACED_LINE_PREFIX) {
            // If the administrator has changed the line above, it stays instead of the old line.
            Some(_) if follows_default_runtime => "".into(),
            Some(old_line) => old_line.into(),
            None => strip_mark(line, next_lines, kept_lines),
        };
        follows_default_runtime = sets_default_runtime(&kept_line);
        remaining_text.push_str(&kept_line);
        unread_text = next_lines;
    }
    StrippedText {
        text: remaining_text,
        file_preamble,
    }
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

/// Returns the lines of a block before its first table: `version`, `imports`, or the template
/// "base" of k3s. `block` begins after the first line of the block.
fn find_preamble(block: &str) -> &str {
    let is_preamble_line = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('[') && line != BLOCK_END
    };
    let lines = block.split_inclusive('\n').take_while(is_preamble_line);
    &block[..lines.map(str::len).sum()]
}

/// Returns the part of a line that stays. `next_lines` is the text after the line.
///
/// If the administrator has changed a marked line since the installation, the line stays, without
/// its mark. A line above an old line is treated as marked, even if its mark was removed.
fn strip_mark<'t>(line: &'t str, next_lines: &str, kept_lines: KeptLines) -> Cow<'t, str> {
    let line_text = line.strip_suffix('\n').unwrap_or(line);
    let replaces_line = next_lines.starts_with(REPLACED_LINE_PREFIX);
    let added_line = line_text
        .strip_suffix(ADDED_LINE_SUFFIX)
        .or(replaces_line.then_some(line_text));
    match added_line {
        None => line.into(),
        Some(added_line)
            if is_unchanged_line(added_line)
                && !(kept_lines.version && added_line.trim() == VERSION_LINE) =>
        {
            "".into()
        }
        Some(added_line) => format!("{added_line}\n").into(),
    }
}

/// Returns whether a marked line is still as Boathook wrote it.
fn is_unchanged_line(line: &str) -> bool {
    let line = line.trim();
    let import = line
        .strip_prefix("imports = [\"")
        .and_then(|line| line.strip_suffix("\"]"));
    line == VERSION_LINE
        || line == format!("default_runtime_name = \"{RUNTIME_HANDLER_NAME}\"")
        || import.is_some_and(|path| is_drop_in_path(path) && !path.contains('"'))
}

/// Returns whether the path is that of Boathook's drop-in, whose name is `99-boathook.toml`.
fn is_drop_in_path(path: &str) -> bool {
    path.ends_with(&format!("/{BOATHOOK_FILE_STEM}.toml"))
}

fn sets_default_runtime(line: &str) -> bool {
    let value = line.trim_start().strip_prefix("default_runtime_name");
    value.is_some_and(|value| value.trim_start().starts_with('='))
}

/// Removes Boathook's drop-in from the list `imports`. Returns `None` if the list does not contain
/// the drop-in.
fn strip_import(text: &str) -> Option<String> {
    let doc = Document::parse(text).ok()?;
    let imports = doc.get("imports")?.as_array()?;
    let import_index = imports
        .iter()
        .position(|value| value.as_str().is_some_and(is_drop_in_path))?;
    let import = imports.get(import_index)?;
    let span = |index: usize| imports.get(index).and_then(|value| value.span());
    let import_span = import.span()?;
    let mut remaining_text = text.to_owned();
    // A comma after the only element would be left in an empty list, which TOML does not allow.
    // Comments may come before the comma.
    if imports.len() == 1 && imports.trailing_comma() {
        let suffix_span = import.decor().suffix().and_then(RawString::span);
        let comma_offset = suffix_span.map_or(import_span.end, |suffix_span| suffix_span.end);
        remaining_text.replace_range(comma_offset..comma_offset + 1, "");
    }
    // The separator before the removed element is removed as well. If the element is the first one,
    // the separator after it is removed instead.
    let removed_range = match import_index.checked_sub(1).and_then(span) {
        Some(previous_span) => previous_span.end..import_span.end,
        None => {
            import_span.start
                ..span(import_index + 1).map_or(import_span.end, |next_span| next_span.start)
        }
    };
    remaining_text.replace_range(removed_range, "");
    Some(remaining_text)
}
