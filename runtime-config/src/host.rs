//! A host's file system under any root: `/`, or `/host` in a container.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::error::Error;

/// Engine configurations are a few kilobytes; nothing larger is read.
const MAX_FILE: u64 = 4 << 20;

/// The kernel's own limit (`MAXSYMLINKS`, path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The root directory that stands for the host's `/`.
///
/// Paths given to it are the host's absolute paths. Symbolic links are
/// followed inside the root, so that an absolute link on the host leads to
/// the host's file also when the host is mounted at `/host`.
#[derive(Debug, Clone)]
pub struct HostRoot(PathBuf);

impl HostRoot {
    /// A host whose `/` is at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self(root.into())
    }

    /// The directory that stands for the host's `/`.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Where this process finds the host's `path`, all symbolic links followed.
    ///
    /// The file itself need not exist.
    ///
    /// # Errors
    /// A loop of links, or a directory that can't be searched.
    pub fn locate(&self, path: &Path) -> Result<PathBuf, Error> {
        let mut done = PathBuf::new();
        let mut todo = reversed(path);
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                done.pop();
                continue;
            }
            let here = self.0.join(&done).join(&name);
            match fs::read_link(&here) {
                Ok(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::LinkLoop { path: path.into() });
                    }
                    if target.is_absolute() {
                        done = PathBuf::new();
                    }
                    todo.extend(reversed(&target));
                }
                // EINVAL: it exists and is no link. ENOENT: it is still to be made.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput || is_absent(&e) => {
                    done.push(name);
                }
                Err(e) => return Err(Error::io("follow", &here)(e)),
            }
        }
        Ok(self.0.join(done))
    }

    /// Whether something is at `path`.
    pub fn exists(&self, path: &Path) -> bool {
        self.locate(path)
            .is_ok_and(|p| p.symlink_metadata().is_ok())
    }

    /// The text of a file; `None` when there is none.
    ///
    /// # Errors
    /// The file is no regular file, too large, not UTF-8 or can't be read.
    pub fn read(&self, path: &Path) -> Result<Option<String>, Error> {
        let at = self.locate(path)?;
        match at.metadata() {
            Ok(meta) if !meta.is_file() => return Err(Error::NotAFile { path: at }),
            Ok(_) => {}
            Err(e) if is_absent(&e) => return Ok(None),
            Err(e) => return Err(Error::io("read", &at)(e)),
        }
        let file = fs::File::open(&at).map_err(Error::io("read", &at))?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(Error::io("read", &at))?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(Error::TooLarge {
                path: at,
                limit: MAX_FILE,
            });
        }
        String::from_utf8(bytes)
            .map(Some)
            .map_err(|_| Error::NotUtf8 { path: at })
    }

    /// The names in a directory, sorted; none when the directory is absent.
    ///
    /// # Errors
    /// The directory can't be read.
    pub fn list(&self, dir: &Path) -> Result<Vec<OsString>, Error> {
        let at = self.locate(dir)?;
        let entries = match fs::read_dir(&at) {
            Ok(entries) => entries,
            Err(e) if is_absent(&e) => return Ok(Vec::new()),
            Err(e) => return Err(Error::io("list", &at)(e)),
        };
        let mut names = entries
            .map(|entry| entry.map(|e| e.file_name()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(Error::io("list", &at))?;
        names.sort();
        Ok(names)
    }

    /// The directories above `path` that do not exist yet, outermost first.
    pub fn missing_dirs(&self, path: &Path) -> Vec<PathBuf> {
        let mut missing: Vec<PathBuf> = path
            .ancestors()
            .skip(1)
            .take_while(|dir| !self.exists(dir))
            .map(Path::to_path_buf)
            .collect();
        missing.reverse();
        missing
    }
}

/// ENOENT, or ENOTDIR where a parent is a file: nothing is there.
pub(crate) fn is_absent(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// A path's names in reverse, ready to be taken one by one from the end.
fn reversed(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter_map(|c| match c {
            Component::Normal(name) => Some(name.to_os_string()),
            Component::ParentDir => Some("..".into()),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_inside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("data/args")).unwrap();
        fs::write(root.join("data/args/file"), "x").unwrap();
        symlink("/data", root.join("absolute")).unwrap();
        symlink("../../../../data", root.join("above")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let host = HostRoot::new(root);
        for path in [
            "/absolute/args/file",
            "/above/args/file",
            "/data/../data/args/file",
        ] {
            assert_eq!(
                host.read(Path::new(path)).unwrap().as_deref(),
                Some("x"),
                "{path}"
            );
        }
        assert_eq!(host.read(Path::new("/absolute/none")).unwrap(), None);
        assert!(matches!(
            host.read(Path::new("/loop")),
            Err(Error::LinkLoop { .. })
        ));
        assert!(matches!(
            host.read(Path::new("/data")),
            Err(Error::NotAFile { .. })
        ));
    }

    #[test]
    fn only_text_of_a_sane_size_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("binary"), [0xff, 0xfe]).unwrap();
        fs::write(dir.path().join("big"), vec![b'#'; MAX_FILE as usize + 1]).unwrap();
        let host = HostRoot::new(dir.path());
        assert!(matches!(
            host.read(Path::new("/binary")),
            Err(Error::NotUtf8 { .. })
        ));
        assert!(matches!(
            host.read(Path::new("/big")),
            Err(Error::TooLarge { .. })
        ));
    }

    #[test]
    fn missing_directories_come_outermost_first() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("etc")).unwrap();
        let host = HostRoot::new(dir.path());
        assert_eq!(
            host.missing_dirs(Path::new("/etc/a/b/file")),
            [PathBuf::from("/etc/a"), PathBuf::from("/etc/a/b")]
        );
    }
}
