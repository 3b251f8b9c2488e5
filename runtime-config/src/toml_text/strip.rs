//! Undoes the edits of a TOML text by their marks.

use toml_edit::Document;

use super::{ADDED, BEGIN, BEGIN_FILE, END, OWN_STEM, WAS};
use crate::facts::HANDLER;

/// Returns the text without Boathook's parts, or `None` if Boathook created the file.
///
/// The function works on every text, even if it is not TOML (a Go template) or does not parse.
/// Text without a mark is not changed.
pub(crate) fn strip(text: &str) -> Option<String> {
    let (lines, whole_file) = strip_lines(text);
    if whole_file && lines.is_empty() {
        return None;
    }
    Some(strip_list(&lines).unwrap_or(lines))
}

/// Removes blocks and marked lines. Also returns whether Boathook created the file.
fn strip_lines(text: &str) -> (String, bool) {
    let mut out = String::with_capacity(text.len());
    let mut whole_file = false;
    let mut rest = text;
    let mut joined = false;
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.find('\n').map_or(rest.len(), |n| n + 1));
        let bare = line.strip_suffix('\n').unwrap_or(line);
        let opens = bare == BEGIN || bare == BEGIN_FILE;
        if let (true, Some(after_block)) = (opens, after_end(after)) {
            whole_file |= bare == BEGIN_FILE;
            // `append_block` put a line break before the block, which is removed with it.
            joined = out.pop().is_some() && !out.is_empty() && !out.ends_with('\n');
            rest = after_block;
            continue;
        }
        if std::mem::take(&mut joined) {
            out.push('\n');
        }
        if let Some(was) = line.strip_prefix(WAS) {
            out.push_str(was);
        } else if let Some(own) = bare.strip_suffix(ADDED) {
            // A marked line that the user has changed since is kept.
            if !is_as_written(own) {
                out.push_str(own);
                out.push('\n');
            }
        } else {
            out.push_str(line);
        }
        rest = after;
    }
    (out, whole_file)
}

/// Returns the text after the last line of a block, or `None` if that line is missing.
fn after_end(text: &str) -> Option<&str> {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        offset += line.len();
        match line.trim_end_matches('\n') {
            END => return Some(&text[offset..]),
            BEGIN | BEGIN_FILE => return None,
            _ => {}
        }
    }
    None
}

/// Returns whether a marked line is unchanged since Boathook wrote it.
fn is_as_written(line: &str) -> bool {
    let line = line.trim_start();
    line == "version = 2"
        || line == format!("default_runtime_name = \"{HANDLER}\"")
        || (line.starts_with("imports = [\"") && !line.contains(','))
}

/// Removes Boathook's drop-in from the list of imports.
fn strip_list(text: &str) -> Option<String> {
    let doc = Document::parse(text).ok()?;
    let imports = doc.get("imports")?.as_array()?;
    let own = imports.iter().position(|v| {
        v.as_str()
            .is_some_and(|s| s.ends_with(&format!("/{OWN_STEM}.toml")))
    })?;
    let span = |index: usize| imports.get(index).and_then(|v| v.span());
    let here = span(own)?;
    let removed = match own.checked_sub(1).and_then(span) {
        Some(previous) => previous.end..here.end,
        None => here.start..span(own + 1).map_or(here.end, |next| next.start),
    };
    Some(format!(
        "{}{}",
        &text[..removed.start],
        &text[removed.end..]
    ))
}
