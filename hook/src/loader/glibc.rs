//! Generates the configuration files of glibc's `ldconfig`, so that it prefers the hook's libraries
//! to those of the image.
//!
//! `ldconfig` reads `ld.so.conf` from top to bottom. It replaces an `include` line by the files
//! that match the patterns of the line, in sorted order. If two libraries have the same soname,
//! `ldconfig` uses the library in the directory that is listed first. The default directories come
//! last. So the hook lists its directory in a drop-in file with a name that is sorted first.
//! `ld.so.conf` must include this file before it lists any other directory.

use super::LibraryDir;

pub(crate) const LD_SO_CONF_PATH: &str = "/etc/ld.so.conf";

/// The drop-in file that lists the hook's library directories. Its name begins with digits, so that
/// it is sorted before the files of the container's packages.
pub(crate) const DROP_IN_PATH: &str = "/etc/ld.so.conf.d/00-boathook.conf";

/// The content of [`LD_SO_CONF_PATH`] in most distributions. It is written if the image does not
/// have the file.
const DEFAULT_LD_SO_CONF: &[u8] = b"include /etc/ld.so.conf.d/*.conf\n";

/// The usual patterns of `include` lines that match [`DROP_IN_PATH`]. Relative patterns start at
/// the directory of [`LD_SO_CONF_PATH`].
///
/// If an image uses another pattern that matches [`DROP_IN_PATH`], the file is included twice. This
/// does no harm, because `ldconfig` skips a directory that it already knows.
const DROP_IN_PATTERNS: [&[u8]; 4] = [
    b"/etc/ld.so.conf.d/*.conf",
    b"ld.so.conf.d/*.conf",
    b"/etc/ld.so.conf.d/*",
    b"ld.so.conf.d/*",
];

pub(crate) fn generate_drop_in(directories: &[LibraryDir]) -> Vec<u8> {
    let mut content =
        b"# Libraries of the devices that boathook gave to this container.\n".to_vec();
    for directory in directories {
        content.extend_from_slice(directory.as_bytes());
        content.push(b'\n');
    }
    content
}

/// Returns a new content for [`LD_SO_CONF_PATH`] that makes `ldconfig` read [`DROP_IN_PATH`] first.
/// Returns `None` if the existing content already does so, as in most images.
///
/// If the existing content lists a directory or includes another file before [`DROP_IN_PATH`], an
/// `include` line is inserted at the beginning. The rest is not changed. An `include` line at the
/// end would not be enough, because libraries in earlier directories would take precedence.
pub(crate) fn update_ld_so_conf(existing_content: Option<&[u8]>) -> Option<Vec<u8>> {
    let Some(existing_content) = existing_content else {
        return Some(DEFAULT_LD_SO_CONF.into());
    };
    let first_statement = existing_content
        .split(|byte| *byte == b'\n')
        .find_map(parse_statement);
    if first_statement
        .and_then(parse_first_include)
        .is_some_and(matches_drop_in)
    {
        return None;
    }
    Some(
        [
            b"include ",
            DROP_IN_PATH.as_bytes(),
            b"\n",
            existing_content,
        ]
        .concat(),
    )
}

/// Returns the statement on a line of `ld.so.conf`. Returns `None` for a comment, for a blank line,
/// and for the obsolete directive `hwcap`. These lines list no directory.
fn parse_statement(line: &[u8]) -> Option<&[u8]> {
    let statement = line.split(|byte| *byte == b'#').next()?.trim_ascii_start();
    let is_hwcap =
        split_keyword(statement).is_some_and(|(keyword, _)| keyword.eq_ignore_ascii_case(b"hwcap"));
    (!statement.is_empty() && !is_hwcap).then_some(statement)
}

/// Returns the first pattern of an `include` statement, such as `/etc/ld.so.conf.d/*.conf`. Returns
/// `None` for any other statement.
fn parse_first_include(statement: &[u8]) -> Option<&[u8]> {
    let (keyword, patterns) = split_keyword(statement)?;
    (keyword == b"include").then(|| patterns.split(is_blank).find(|pattern| !pattern.is_empty()))?
}

/// Splits a statement at the first blank, such as `include` and the patterns after it. Returns
/// `None` if there is no blank, as in a line with a directory.
fn split_keyword(statement: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = statement.iter().position(is_blank)?;
    Some((&statement[..end], &statement[end + 1..]))
}

/// Reports whether a byte separates words in `ld.so.conf`. `ldconfig` uses isblank(3) for this.
fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn matches_drop_in(pattern: &[u8]) -> bool {
    pattern == DROP_IN_PATH.as_bytes() || DROP_IN_PATTERNS.contains(&pattern)
}
