//! Splits paths into components and checks the components, without access to the file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::rooted_path::{Error, Result};

/// The maximum length in bytes of a path that the kernel accepts: `PATH_MAX` without the final
/// NUL.
const MAX_PATH_BYTES: usize = 4095;

/// The maximum number of components of a path. A walk keeps one file descriptor open for each
/// component, so the number must be limited. Real paths have fewer components.
pub(crate) const MAX_COMPONENTS: usize = 256;

/// The name of a directory entry. It is not empty, is not `.` or `..`, and contains no slash and no
/// NUL byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileName<'a>(&'a OsStr);

impl<'a> FileName<'a> {
    /// Returns an error if `name` cannot be the name of a directory entry, such as `..` or `a/b`.
    pub fn new<S: AsRef<OsStr> + ?Sized>(name: &'a S) -> Result<Self> {
        let name = name.as_ref();
        match name.as_bytes() {
            b"" | b"." | b".." => Err(path_error(name, "it names no file in a directory")),
            bytes if bytes.contains(&b'/') => Err(path_error(name, "a name has no slash")),
            bytes if bytes.contains(&0) => Err(path_error(name, "it holds a NUL byte")),
            _ => Ok(Self(name)),
        }
    }

    pub fn as_os_str(self) -> &'a OsStr {
        self.0
    }
}

/// A component of a path: the text between two slashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Component<'a> {
    /// A `.`, or the empty text after a trailing slash. The components before it must lead to a
    /// directory.
    Current,
    Parent,
    Name(FileName<'a>),
}

/// Returns an error for a path that cannot be resolved below any root: it is empty, is too long,
/// has too many components, or contains a NUL byte.
pub(crate) fn check_path(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(path_error(path.as_os_str(), "it is empty"));
    }
    if bytes.len() > MAX_PATH_BYTES {
        return Err(path_error(path.as_os_str(), "it is longer than 4095 bytes"));
    }
    if bytes.contains(&0) {
        return Err(path_error(path.as_os_str(), "it holds a NUL byte"));
    }
    if split_components(path.as_os_str())
        .nth(MAX_COMPONENTS)
        .is_some()
    {
        return Err(path_error(path.as_os_str(), "it is deeper than 256 names"));
    }
    Ok(())
}

/// Splits a path into its components. A leading slash is ignored: the caller chooses the directory
/// in which the path starts.
pub(crate) fn split_components(path: &OsStr) -> impl DoubleEndedIterator<Item = Component<'_>> {
    let bytes = path.as_bytes();
    let trailing_component = bytes.ends_with(b"/").then_some(Component::Current);
    bytes
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
        .map(|part| match part {
            b"." => Component::Current,
            b".." => Component::Parent,
            name => Component::Name(FileName(OsStr::from_bytes(name))),
        })
        .chain(trailing_component)
}

/// Splits `path` into the path of the parent directory and the last name. If the path has no slash,
/// the parent directory is `/`.
///
/// # Errors
/// Returns [`Error::Path`] if the path does not end in a name, for example for `/` and `a/..`.
pub fn split_leaf(path: &Path) -> Result<(&Path, FileName<'_>)> {
    check_path(path)?;
    let bytes = path.as_os_str().as_bytes();
    let leaf_end = bytes.iter().rposition(|byte| *byte != b'/');
    let bytes = leaf_end.map_or(&bytes[..0], |end| &bytes[..=end]);
    let last_slash = bytes.iter().rposition(|byte| *byte == b'/');
    let (parent, leaf) = match last_slash {
        Some(slash) => (&bytes[..=slash], &bytes[slash + 1..]),
        None => (&b"/"[..], bytes),
    };
    let leaf = FileName::new(OsStr::from_bytes(leaf))
        .map_err(|_| path_error(path.as_os_str(), "it does not end in a name"))?;
    Ok((Path::new(OsStr::from_bytes(parent)), leaf))
}

fn path_error(path: &OsStr, reason: &'static str) -> Error {
    // The message quotes at most 256 bytes, because an invalid path may be very long.
    let bytes = path.as_bytes();
    let excerpt = &bytes[..bytes.len().min(256)];
    Error::Path {
        path: OsStr::from_bytes(excerpt).into(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_no_slash_or_nul_and_is_not_a_dot() {
        for valid in ["a", "...", "libc.so.6", ".hidden", "with space"] {
            assert!(FileName::new(valid).is_ok(), "{valid:?}");
        }
        for invalid in ["", ".", "..", "a/b", "/", "a/", "nul\0"] {
            assert!(FileName::new(invalid).is_err(), "{invalid:?}");
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
            let (directory, name) = split_leaf(Path::new(path)).unwrap();
            assert_eq!(directory, Path::new(parent), "{path}");
            assert_eq!(name.as_os_str(), leaf, "{path}");
        }
        for invalid in ["", "/", "//", ".", "/a/.", "/a/..", ".."] {
            assert!(split_leaf(Path::new(invalid)).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn a_trailing_slash_requires_a_directory() {
        let a = Component::Name(FileName(OsStr::new("a")));
        for (path, steps) in [
            ("/a", vec![a]),
            ("a//a", vec![a, a]),
            ("a/", vec![a, Component::Current]),
            ("./../a", vec![Component::Current, Component::Parent, a]),
        ] {
            let found: Vec<_> = split_components(OsStr::new(path)).collect();
            assert_eq!(found, steps, "{path}");
        }
    }

    #[test]
    fn length_and_depth_are_bounded() {
        for bad in ["a/".repeat(10_000), "a".repeat(4096), "a/".repeat(257)] {
            assert!(check_path(Path::new(&bad)).is_err());
        }
        let fits = vec!["a"; 256].join("/");
        assert!(check_path(Path::new(&fits)).is_ok());
    }
}
