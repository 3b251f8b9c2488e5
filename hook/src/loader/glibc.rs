//! The configuration of glibc's `ldconfig`.
//!
//! `ldconfig` reads `ld.so.conf` from top to bottom. An `include` line is replaced by the
//! files that match its patterns, in sorted order. If two libraries have the same soname,
//! `ldconfig` uses the one in the directory that is listed first; the default directories are
//! last. Therefore the injected directory is listed in a file that sorts first in the usual
//! drop-in directory, and `ld.so.conf` must include that file before it lists any other
//! directory.

use super::LibraryDir;

pub(crate) const CONF: &str = "/etc/ld.so.conf";

/// The drop-in file of the hook. The digits sort it before the files of packages.
pub(crate) const DROP_IN: &str = "/etc/ld.so.conf.d/00-boathook.conf";

/// The text of [`CONF`] in most distributions, which is written if the file does not exist.
const INCLUDE_ALL: &[u8] = b"include /etc/ld.so.conf.d/*.conf\n";

/// The patterns of an `include` line that match [`DROP_IN`], in addition to its own name.
/// Relative patterns start at the directory of [`CONF`]. Any other pattern counts as not
/// matching. The drop-in file is then included twice, which does no harm, because `ldconfig`
/// skips a directory that it already knows.
const COVERING: [&[u8]; 4] = [
    b"/etc/ld.so.conf.d/*.conf",
    b"ld.so.conf.d/*.conf",
    b"/etc/ld.so.conf.d/*",
    b"ld.so.conf.d/*",
];

pub(crate) fn drop_in(directories: &[LibraryDir]) -> Vec<u8> {
    let mut text = b"# Libraries of the devices that boathook gave to this container.\n".to_vec();
    for directory in directories {
        text.extend_from_slice(directory.as_bytes());
        text.push(b'\n');
    }
    text
}

/// Returns the text of [`CONF`] with which [`DROP_IN`] is read first, or `None` if the
/// existing text does that already, as in most images.
///
/// If the file lists a directory, or includes another file, before [`DROP_IN`], an `include`
/// line is inserted at the beginning. The rest is kept byte for byte. A line at the end would
/// be read too late, because an old library in an earlier directory would take precedence.
pub(crate) fn conf(existing: Option<&[u8]>) -> Option<Vec<u8>> {
    let Some(existing) = existing else {
        return Some(INCLUDE_ALL.into());
    };
    let first = existing.split(|byte| *byte == b'\n').find_map(statement);
    if first.and_then(first_included).is_some_and(covers_drop_in) {
        return None;
    }
    Some([b"include ", DROP_IN.as_bytes(), b"\n", existing].concat())
}

/// Returns the statement of a line, or `None` for a comment, a blank line, or the `hwcap`
/// directive, which lists no directory.
fn statement(line: &[u8]) -> Option<&[u8]> {
    let text = line.split(|byte| *byte == b'#').next()?.trim_ascii_start();
    let is_hwcap = split_keyword(text).is_some_and(|(word, _)| word.eq_ignore_ascii_case(b"hwcap"));
    (!text.is_empty() && !is_hwcap).then_some(text)
}

/// Returns the first pattern of an `include` statement.
fn first_included(statement: &[u8]) -> Option<&[u8]> {
    let (word, patterns) = split_keyword(statement)?;
    (word == b"include").then(|| patterns.split(is_blank).find(|word| !word.is_empty()))?
}

/// Splits a statement after its first word and the blank that follows.
fn split_keyword(statement: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = statement.iter().position(is_blank)?;
    Some((&statement[..end], &statement[end + 1..]))
}

/// Does the same as `isblank` of ldconfig.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn covers_drop_in(pattern: &[u8]) -> bool {
    pattern == DROP_IN.as_bytes() || COVERING.contains(&pattern)
}
