//! Taking the edits back, by their marks alone.

use toml_edit::Document;

use super::{ADDED, BEGIN, BEGIN_FILE, END, OWN_STEM, WAS};
use crate::facts::HANDLER;

/// The text without Boathook's parts; `None` if Boathook created the file.
///
/// Works on any text, also one that is not TOML (a Go template) or no longer
/// parses: what carries no mark stays.
pub(crate) fn strip(text: &str) -> Option<String> {
    let (lines, whole_file) = strip_lines(text);
    if whole_file && lines.is_empty() {
        return None;
    }
    Some(strip_list(&lines).unwrap_or(lines))
}

/// Removes blocks and marked lines; returns whether the file began as ours.
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
            // The break that came with the block, see `append_block`.
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
            // A line that the user has made into something else stays.
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

/// What follows the line that closes a block.
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

/// Whether a marked line is still as it was written.
fn is_as_written(line: &str) -> bool {
    let line = line.trim_start();
    line == "version = 2"
        || line == format!("default_runtime_name = \"{HANDLER}\"")
        || (line.starts_with("imports = [\"") && !line.contains(','))
}

/// Takes our drop-in out of the list of imports.
fn strip_list(text: &str) -> Option<String> {
    let doc = Document::parse(text).ok()?;
    let imports = doc.get("imports")?.as_array()?;
    let own = imports.iter().position(|v| {
        v.as_str()
            .is_some_and(|s| s.ends_with(&format!("/{OWN_STEM}.toml")))
    })?;
    let span = |index: usize| imports.get(index).and_then(|v| v.span());
    let here = span(own)?;
    let cut = match own.checked_sub(1).and_then(span) {
        Some(before) => before.end..here.end,
        None => here.start..span(own + 1).map_or(here.end, |next| next.start),
    };
    Some(format!("{}{}", &text[..cut.start], &text[cut.end..]))
}
