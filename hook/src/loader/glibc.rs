//! The configuration of glibc's `ldconfig`.
//!
//! `ldconfig` reads `ld.so.conf` from top to bottom, where `include` lines stand for the files
//! that their patterns match, in sorted order. Of two libraries with one soname it takes the
//! one whose directory was named first; the default directories come last. So our directory
//! has a file that sorts first in the usual directory of such files, and `ld.so.conf` has to
//! read that file before it names any other directory.

use super::LibraryDir;

/// The main configuration.
pub(crate) const CONF: &str = "/etc/ld.so.conf";

/// Our own part of the configuration. The digits sort it before what packages install.
pub(crate) const DROP_IN: &str = "/etc/ld.so.conf.d/00-boathook.conf";

/// What distributions write into [`CONF`], and we where there is none.
const INCLUDE_ALL: &[u8] = b"include /etc/ld.so.conf.d/*.conf\n";

/// The patterns of an `include` that cover [`DROP_IN`], besides its own name. Relative ones
/// start at the directory of [`CONF`]. A pattern not listed here counts as not covering it:
/// then the file is named twice, and `ldconfig` skips a directory that it already knows.
const COVERING: [&[u8]; 4] = [
    b"/etc/ld.so.conf.d/*.conf",
    b"ld.so.conf.d/*.conf",
    b"/etc/ld.so.conf.d/*",
    b"ld.so.conf.d/*",
];

/// The whole text of [`DROP_IN`].
pub(crate) fn drop_in(directories: &[LibraryDir]) -> Vec<u8> {
    let mut text = b"# Libraries of the devices that boathook gave to this container.\n".to_vec();
    for directory in directories {
        text.extend_from_slice(directory.as_bytes());
        text.push(b'\n');
    }
    text
}

/// The text that [`CONF`] must have for [`DROP_IN`] to be read first, or `None` if it is so
/// already, which is the rule: then the image's file need not be touched.
///
/// A file that names a directory, or includes anything else, before [`DROP_IN`] gets one line
/// in front, which includes it; the rest stays byte for byte. A line at the end would be read,
/// but too late: a stale library in an earlier directory would win.
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

/// What a line says, or `None` if nothing: a comment, a blank line, or the `hwcap` directive,
/// which names no directory.
fn statement(line: &[u8]) -> Option<&[u8]> {
    let text = line.split(|byte| *byte == b'#').next()?.trim_ascii_start();
    let is_hwcap = keyword(text).is_some_and(|(word, _)| word.eq_ignore_ascii_case(b"hwcap"));
    (!text.is_empty() && !is_hwcap).then_some(text)
}

/// The first pattern of an `include`.
fn first_included(statement: &[u8]) -> Option<&[u8]> {
    let (word, patterns) = keyword(statement)?;
    (word == b"include").then(|| patterns.split(is_blank).find(|word| !word.is_empty()))?
}

/// A statement's first word, and what follows its blank.
fn keyword(statement: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = statement.iter().position(is_blank)?;
    Some((&statement[..end], &statement[end + 1..]))
}

/// ldconfig's `isblank`.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn covers_drop_in(pattern: &[u8]) -> bool {
    pattern == DROP_IN.as_bytes() || COVERING.contains(&pattern)
}
