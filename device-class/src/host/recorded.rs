//! Reads a recorded host: a text file with everything that a scan reads from one host. With a
//! recorded host, a class can be tested without its hardware, and a bug report can include the
//! host.
//!
//! ```text
//! # one entry per line; directories of other entries can be omitted
//! char /dev/npu0 240:0
//! link /sys/class/npu/npu0 ../../devices/pci0000:00/0000:00:01.0/npu/npu0
//! file /sys/devices/pci0000:00/0000:00:01.0/npu/npu0/serial
//! | 4711
//! lib libnpu.so.1 /usr/lib/x86_64-linux-gnu/libnpu.so.1
//! lib32 libnpu.so.1 /usr/lib/i386-linux-gnu/libnpu.so.1
//! # in the loader's cache of a driver root, and the path in that root
//! lib libnpu.so.1 /usr/lib/libnpu.so.1 /run/npu/driver
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};

use host_files::rooted_path::MAX_LINKS;

use super::{DeviceKind, DeviceNumber, Entry, HostView, ProgramAbi};

#[derive(Debug, Clone, Default)]
pub struct RecordedHost {
    tree: BTreeMap<PathBuf, RecordedEntry>,
    children: BTreeMap<PathBuf, BTreeSet<String>>,
    /// The libraries in ld.so.cache. The key is the root directory that has this cache: `/` or a
    /// driver root.
    libraries: BTreeMap<PathBuf, LibraryPaths>,
}

pub(super) type LibraryPaths = BTreeMap<(String, ProgramAbi), Vec<PathBuf>>;

#[derive(Debug, Clone)]
pub(super) enum RecordedEntry {
    Link(PathBuf),
    Content(Vec<u8>),
    /// A file without content in the recording, such as a device node or a directory. Only its type
    /// is known.
    TypeOnly(Entry),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct RecordedHostError {
    line: usize,
    problem: &'static str,
}

impl RecordedHost {
    pub fn parse(text: &str) -> Result<Self, RecordedHostError> {
        let mut host = RecordedHost::default();
        let mut open_file: Option<PathBuf> = None;
        for (index, line) in text.lines().enumerate() {
            let to_error = |problem| RecordedHostError {
                line: index + 1,
                problem,
            };
            if let Some(content) = line.strip_prefix('|') {
                let path = open_file
                    .as_ref()
                    .ok_or(to_error("content without a file before it"))?;
                if let Some(RecordedEntry::Content(bytes)) = host.tree.get_mut(path) {
                    bytes
                        .extend_from_slice(content.strip_prefix(' ').unwrap_or(content).as_bytes());
                    bytes.push(b'\n');
                }
                continue;
            }
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let (Some(kind), Some(path)) = (words.next(), words.next()) else {
                return Err(to_error("an entry is a kind and a path"));
            };
            let value = words.next();
            let root = Path::new(words.next().unwrap_or("/"));
            let path = PathBuf::from(path);
            open_file = None;
            match (kind, value) {
                ("dir", None) => host.insert(path, RecordedEntry::TypeOnly(Entry::Directory)),
                ("socket", None) => host.insert(path, RecordedEntry::TypeOnly(Entry::Socket)),
                ("other", None) => host.insert(path, RecordedEntry::TypeOnly(Entry::Other)),
                ("file", None) => {
                    open_file = Some(path.clone());
                    host.insert(path, RecordedEntry::Content(Vec::new()));
                }
                ("char" | "block", Some(number)) => {
                    let number = parse_device_number(kind, number)
                        .ok_or(to_error("a device is MAJOR:MINOR"))?;
                    host.insert(path, RecordedEntry::TypeOnly(Entry::Device(number)));
                }
                ("link", Some(target)) => host.insert(path, RecordedEntry::Link(target.into())),
                ("lib" | "lib32", Some(target)) => {
                    let soname = path.to_string_lossy().into_owned();
                    let abi = match kind {
                        "lib" => ProgramAbi::Native,
                        _ => ProgramAbi::Bits32,
                    };
                    let libraries = host.libraries.entry(root.into()).or_default();
                    let paths = libraries.entry((soname, abi)).or_default();
                    paths.push(target.into());
                }
                _ => {
                    return Err(to_error(
                        "a kind is dir, file, char, block, link, socket, other, lib or lib32",
                    ));
                }
            }
        }
        Ok(host)
    }

    /// Adds a regular file with this content. Directories on its path that are missing are added
    /// too.
    pub fn add_file(&mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.insert(path.into(), RecordedEntry::Content(content.into()));
    }

    /// Removes the file at `path`, for example to simulate that a device was unplugged.
    pub fn remove(&mut self, path: &Path) {
        self.tree.remove(path);
        if let (Some(parent), Some(name)) =
            (path.parent(), path.file_name().and_then(|n| n.to_str()))
        {
            self.children.entry(parent.into()).or_default().remove(name);
        }
    }

    fn insert(&mut self, path: PathBuf, entry: RecordedEntry) {
        let mut child = path.as_path();
        while let (Some(parent), Some(name)) = (child.parent(), child.file_name()) {
            let name = name.to_string_lossy().into_owned();
            self.children.entry(parent.into()).or_default().insert(name);
            self.tree
                .entry(parent.into())
                .or_insert(RecordedEntry::TypeOnly(Entry::Directory));
            child = parent;
        }
        self.tree.insert(path, entry);
    }

    /// Resolves all symbolic links in a path. A component of the path may be missing. More than
    /// [`MAX_LINKS`] links are an error (`ELOOP`), as in the kernel.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut link_count = 0;
        let mut resolved_path = PathBuf::from("/");
        let mut pending_paths: Vec<PathBuf> = vec![path.into()];
        while let Some(pending_path) = pending_paths.pop() {
            let mut components = pending_path.components();
            let Some(component) = components.next() else {
                continue;
            };
            pending_paths.push(components.as_path().to_owned());
            match component {
                Component::RootDir => resolved_path = PathBuf::from("/"),
                Component::ParentDir => {
                    resolved_path.pop();
                }
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    resolved_path.push(name);
                    if let Some(RecordedEntry::Link(target)) = self.tree.get(&resolved_path) {
                        link_count += 1;
                        if link_count > MAX_LINKS {
                            return Err(nix::Error::ELOOP.into());
                        }
                        resolved_path.pop();
                        pending_paths.push(target.clone());
                    }
                }
            }
        }
        Ok(resolved_path)
    }

    /// Resolves the symbolic links in a path, but not its last component.
    fn resolve_parent(&self, path: &Path) -> io::Result<PathBuf> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok(self.resolve(parent)?.join(name)),
            _ => self.resolve(path),
        }
    }
}

fn parse_device_number(kind: &str, number: &str) -> Option<DeviceNumber> {
    let (major, minor) = number.split_once(':')?;
    let kind = if kind == "char" {
        DeviceKind::Character
    } else {
        DeviceKind::Block
    };
    Some(DeviceNumber {
        kind,
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

fn not_found_error() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl HostView for RecordedHost {
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        Ok(self
            .tree
            .get(&self.resolve(path)?)
            .map(|entry| match entry {
                RecordedEntry::TypeOnly(entry) => *entry,
                RecordedEntry::Content(_) => Entry::File,
                RecordedEntry::Link(_) => Entry::Other,
            }))
    }

    fn is_link(&self, path: &Path) -> bool {
        self.resolve_parent(path)
            .is_ok_and(|path| matches!(self.tree.get(&path), Some(RecordedEntry::Link(_))))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let children = self.children.get(&self.resolve(path)?);
        Ok(children.into_iter().flatten().cloned().collect())
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        match self.tree.get(&self.resolve(path)?) {
            Some(RecordedEntry::Content(bytes)) => Ok(bytes[..bytes.len().min(limit)].to_vec()),
            Some(_) => Err(io::Error::other("not a regular file")),
            None => Err(not_found_error()),
        }
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        match self.tree.get(&self.resolve_parent(path)?) {
            Some(RecordedEntry::Link(target)) => Ok(target.clone()),
            _ => Err(not_found_error()),
        }
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        let resolved_path = self.resolve(path)?;
        if self.tree.contains_key(&resolved_path) {
            Ok(resolved_path)
        } else {
            Err(not_found_error())
        }
    }

    fn libraries(&self, soname: &str, abi: ProgramAbi) -> io::Result<Vec<PathBuf>> {
        let libraries = self.libraries.get(Path::new("/"));
        let paths = libraries.and_then(|names| names.get(&(soname.to_owned(), abi)));
        Ok(paths.cloned().unwrap_or_default())
    }

    /// Recorded libraries come from ld.so.cache, so a host with recorded libraries has a cache. A
    /// host with /usr/lib and without recorded libraries has none. A recording without /usr/lib
    /// does not show this, so a cache is assumed.
    fn has_library_cache(&self) -> io::Result<bool> {
        Ok(self.entry(Path::new("/usr/lib"))?.is_none() || !self.libraries.is_empty())
    }

    fn library_names(&self, abi: ProgramAbi) -> io::Result<Vec<String>> {
        let libraries = self.libraries.get(Path::new("/")).into_iter().flatten();
        let libraries = libraries.filter(|((_, library_abi), _)| *library_abi == abi);
        Ok(libraries.map(|((name, _), _)| name.clone()).collect())
    }

    fn open_driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>> {
        let root = self.canonicalize(path)?;
        let mut root_view = RecordedHost::default();
        root_view.insert("/".into(), RecordedEntry::TypeOnly(Entry::Directory));
        for (path, entry) in &self.tree {
            if let Ok(path_in_root) = path.strip_prefix(&root) {
                root_view.insert(Path::new("/").join(path_in_root), entry.clone());
            }
        }
        if let Some(libraries) = self.libraries.get(&root) {
            root_view.libraries.insert("/".into(), libraries.clone());
        }
        Ok(Box::new(root_view))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_where_the_kernel_would_go() {
        let host = RecordedHost::parse(
            "link /sys/class/npu/npu0 ../../devices/npu0\n\
             file /sys/devices/npu0/serial\n| 4711\n\
             link /loop/a b\nlink /loop/b a\n\
             link /abs /sys/class\n",
        )
        .unwrap();
        for (path, wanted) in [
            (
                "/sys/class/npu/npu0/serial",
                Some("/sys/devices/npu0/serial"),
            ),
            ("/abs/npu/npu0", Some("/sys/devices/npu0")),
            ("/abs/..", Some("/sys")),
            ("/loop/a", None),
            ("/nothing", None),
        ] {
            assert_eq!(
                host.canonicalize(Path::new(path)).ok(),
                wanted.map(PathBuf::from),
                "{path}"
            );
        }
        assert_eq!(
            host.read(Path::new("/abs/npu/npu0/serial"), 3).unwrap(),
            b"471"
        );
        assert!(host.is_link(Path::new("/abs/npu/npu0")));
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [
            ("chr /dev/x 1:2", 1),
            ("\n| x", 2),
            ("char /dev/x 1", 1),
            ("dir", 1),
        ] {
            assert_eq!(RecordedHost::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
