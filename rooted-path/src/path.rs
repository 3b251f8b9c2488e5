//! Parses paths, without access to a file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::{Error, Result};

/// The longest path that the kernel accepts, in bytes, without the final NUL.
const MAX_LENGTH: usize = 4095;

/// The maximum number of components of a path. Deeper paths do not occur in
/// practice, and in a walk each level takes a descriptor.
pub(crate) const MAX_DEPTH: usize = 256;

/// One name in a directory: not empty, not `.` or `..`, and without a slash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(&'a OsStr);

impl<'a> Name<'a> {
    /// `name`, if it is a single name.
    pub fn new<S: AsRef<OsStr> + ?Sized>(name: &'a S) -> Result<Self> {
        let name = name.as_ref();
        match name.as_bytes() {
            b"" | b"." | b".." => Err(refused(name, "it names no file in a directory")),
            bytes if bytes.contains(&b'/') => Err(refused(name, "a name has no slash")),
            bytes if bytes.contains(&0) => Err(refused(name, "it holds a NUL byte")),
            _ => Ok(Self(name)),
        }
    }

    pub fn as_os_str(self) -> &'a OsStr {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component<'a> {
    /// `.`, or the end after a trailing slash: the current path must be a
    /// directory.
    Current,
    Parent,
    Name(Name<'a>),
}

/// Refuses paths that are invalid in any root.
pub(crate) fn check(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(refused(path.as_os_str(), "it is empty"));
    }
    if bytes.len() > MAX_LENGTH {
        return Err(refused(path.as_os_str(), "it is longer than 4095 bytes"));
    }
    if bytes.contains(&0) {
        return Err(refused(path.as_os_str(), "it holds a NUL byte"));
    }
    if components(path.as_os_str()).nth(MAX_DEPTH).is_some() {
        return Err(refused(path.as_os_str(), "it is deeper than 256 names"));
    }
    Ok(())
}

/// The steps of `path`. The caller determines where it starts.
pub(crate) fn components(path: &OsStr) -> impl DoubleEndedIterator<Item = Component<'_>> {
    let bytes = path.as_bytes();
    let trailing = bytes.ends_with(b"/").then_some(Component::Current);
    bytes
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .map(|part| match part {
            b"." => Component::Current,
            b".." => Component::Parent,
            name => Component::Name(Name(OsStr::from_bytes(name))),
        })
        .chain(trailing)
}

/// Splits `path` into the directory to resolve and the name in it.
///
/// # Errors
/// [`Error::Path`] if the path ends in no name, as `/` and `a/..` do.
pub fn split_leaf(path: &Path) -> Result<(&Path, Name<'_>)> {
    check(path)?;
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/');
    let bytes = end.map_or(&bytes[..0], |end| &bytes[..=end]);
    let start = bytes.iter().rposition(|byte| *byte == b'/');
    let (parent, leaf) = match start {
        Some(slash) => (&bytes[..=slash], &bytes[slash + 1..]),
        None => (&b"/"[..], bytes),
    };
    let leaf = Name::new(OsStr::from_bytes(leaf))
        .map_err(|_| refused(path.as_os_str(), "it does not end in a name"))?;
    Ok((Path::new(OsStr::from_bytes(parent)), leaf))
}

fn refused(path: &OsStr, reason: &'static str) -> Error {
    // Of a path that is too long, only the beginning is quoted.
    let shown = path.as_bytes();
    let shown = &shown[..shown.len().min(256)];
    Error::Path {
        path: OsStr::from_bytes(shown).into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component() {
        for good in ["a", "...", "libc.so.6", ".hidden", "with space"] {
            assert!(Name::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "a/b", "/", "a/", "nul\0"] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_split_into_directory_and_name() {
        for (path, parent, leaf) in [
            ("/dev/null", "/dev/", "null"),
            ("dev/null", "dev/", "null"),
            ("/null", "/", "null"),
            ("null", "/", "null"),
            ("/usr/lib//", "/usr/", "lib"),
            ("../../x", "../../", "x"),
        ] {
            let (found, name) = split_leaf(Path::new(path)).unwrap();
            assert_eq!(found, Path::new(parent), "{path}");
            assert_eq!(name.as_os_str(), leaf, "{path}");
        }
        for bad in ["", "/", "//", ".", "/a/.", "/a/..", ".."] {
            assert!(split_leaf(Path::new(bad)).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_trailing_slash_requires_a_directory() {
        let a = Component::Name(Name(OsStr::new("a")));
        for (path, steps) in [
            ("/a", vec![a]),
            ("a//a", vec![a, a]),
            ("a/", vec![a, Component::Current]),
            ("./../a", vec![Component::Current, Component::Parent, a]),
        ] {
            let found: Vec<_> = components(OsStr::new(path)).collect();
            assert_eq!(found, steps, "{path}");
        }
    }

    #[test]
    fn length_and_depth_are_bounded() {
        for bad in ["a/".repeat(10_000), "a".repeat(4096), "a/".repeat(257)] {
            assert!(check(Path::new(&bad)).is_err());
        }
        let fits = vec!["a"; 256].join("/");
        assert!(check(Path::new(&fits)).is_ok());
    }
}
