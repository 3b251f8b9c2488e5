//! Reads a recorded host: a text file with all that a scan reads of one host. With it a class
//! can be tested without its hardware, and a bug report can include the host.
//!
//! ```text
//! # one entry a line; directories need not be named
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

use rooted_path::MAX_LINKS;

use super::{DeviceKind, DeviceNumber, Entry, HostView, Programs};

#[derive(Debug, Clone, Default)]
pub struct RecordedHost {
    tree: BTreeMap<PathBuf, RecordedEntry>,
    children: BTreeMap<PathBuf, BTreeSet<String>>,
    /// The libraries of each root directory that has a loader's cache.
    libraries: BTreeMap<PathBuf, Libraries>,
}

pub(super) type Libraries = BTreeMap<(String, Programs), Vec<PathBuf>>;

#[derive(Debug, Clone)]
pub(super) enum RecordedEntry {
    Link(PathBuf),
    Content(Vec<u8>),
    Is(Entry),
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
        for (at, line) in text.lines().enumerate() {
            let bad = |problem| RecordedHostError {
                line: at + 1,
                problem,
            };
            if let Some(content) = line.strip_prefix('|') {
                let path = open_file
                    .as_ref()
                    .ok_or(bad("content without a file before it"))?;
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
                return Err(bad("an entry is a kind and a path"));
            };
            let value = words.next();
            let root = Path::new(words.next().unwrap_or("/"));
            let path = PathBuf::from(path);
            open_file = None;
            match (kind, value) {
                ("dir", None) => host.insert(path, RecordedEntry::Is(Entry::Directory)),
                ("socket", None) => host.insert(path, RecordedEntry::Is(Entry::Socket)),
                ("other", None) => host.insert(path, RecordedEntry::Is(Entry::Other)),
                ("file", None) => {
                    open_file = Some(path.clone());
                    host.insert(path, RecordedEntry::Content(Vec::new()));
                }
                ("char" | "block", Some(number)) => {
                    let number = device(kind, number).ok_or(bad("a device is MAJOR:MINOR"))?;
                    host.insert(path, RecordedEntry::Is(Entry::Device(number)));
                }
                ("link", Some(to)) => host.insert(path, RecordedEntry::Link(to.into())),
                ("lib" | "lib32", Some(to)) => {
                    let soname = path.to_string_lossy().into_owned();
                    let programs = match kind {
                        "lib" => Programs::Native,
                        _ => Programs::Bits32,
                    };
                    let libraries = host.libraries.entry(root.into()).or_default();
                    let paths = libraries.entry((soname, programs)).or_default();
                    paths.push(to.into());
                }
                _ => {
                    return Err(bad(
                        "a kind is dir, file, char, block, link, socket, other, lib or lib32",
                    ));
                }
            }
        }
        Ok(host)
    }

    /// Adds a file with any content.
    pub fn add_file(&mut self, path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) {
        self.insert(path.into(), RecordedEntry::Content(content.into()));
    }

    /// Removes the file at `path`, as when a device is unplugged.
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
                .or_insert(RecordedEntry::Is(Entry::Directory));
            child = parent;
        }
        self.tree.insert(path, entry);
    }

    /// Resolves all links in a path. The last component need not exist.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let mut links = 0;
        let mut resolved = PathBuf::from("/");
        let mut rest: Vec<PathBuf> = vec![path.into()];
        while let Some(next) = rest.pop() {
            let mut parts = next.components();
            let Some(part) = parts.next() else { continue };
            let after = parts.as_path().to_owned();
            rest.push(after);
            match part {
                Component::RootDir => resolved = PathBuf::from("/"),
                Component::ParentDir => {
                    resolved.pop();
                }
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    resolved.push(name);
                    if let Some(RecordedEntry::Link(to)) = self.tree.get(&resolved) {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(nix::Error::ELOOP.into());
                        }
                        resolved.pop();
                        rest.push(to.clone());
                    }
                }
            }
        }
        Ok(resolved)
    }

    fn unresolved_leaf(&self, path: &Path) -> io::Result<PathBuf> {
        match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) => Ok(self.resolve(parent)?.join(name)),
            _ => self.resolve(path),
        }
    }
}

fn device(kind: &str, number: &str) -> Option<DeviceNumber> {
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

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl HostView for RecordedHost {
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        Ok(self
            .tree
            .get(&self.resolve(path)?)
            .map(|entry| match entry {
                RecordedEntry::Is(entry) => *entry,
                RecordedEntry::Content(_) => Entry::File,
                RecordedEntry::Link(_) => Entry::Other,
            }))
    }

    fn is_link(&self, path: &Path) -> bool {
        self.unresolved_leaf(path)
            .is_ok_and(|leaf| matches!(self.tree.get(&leaf), Some(RecordedEntry::Link(_))))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let children = self.children.get(&self.resolve(path)?);
        Ok(children.into_iter().flatten().cloned().collect())
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        match self.tree.get(&self.resolve(path)?) {
            Some(RecordedEntry::Content(bytes)) => Ok(bytes[..bytes.len().min(limit)].to_vec()),
            Some(_) => Err(io::Error::other("not a regular file")),
            None => Err(not_found()),
        }
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        match self.tree.get(&self.unresolved_leaf(path)?) {
            Some(RecordedEntry::Link(to)) => Ok(to.clone()),
            _ => Err(not_found()),
        }
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let resolved = self.resolve(path)?;
        if self.tree.contains_key(&resolved) {
            Ok(resolved)
        } else {
            Err(not_found())
        }
    }

    fn libraries(&self, soname: &str, programs: Programs) -> io::Result<Vec<PathBuf>> {
        let libraries = self.libraries.get(Path::new("/"));
        let found = libraries.and_then(|names| names.get(&(soname.to_owned(), programs)));
        Ok(found.cloned().unwrap_or_default())
    }

    fn library_names(&self, programs: Programs) -> io::Result<Vec<String>> {
        let libraries = self.libraries.get(Path::new("/")).into_iter().flatten();
        let names = libraries.filter(|((_, of), _)| *of == programs);
        Ok(names.map(|((name, _), _)| name.clone()).collect())
    }

    fn driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>> {
        let root = self.canonical(path)?;
        let mut driver = RecordedHost::default();
        driver.insert("/".into(), RecordedEntry::Is(Entry::Directory));
        for (path, entry) in &self.tree {
            if let Ok(inside) = path.strip_prefix(&root) {
                driver.insert(Path::new("/").join(inside), entry.clone());
            }
        }
        if let Some(libraries) = self.libraries.get(&root) {
            driver.libraries.insert("/".into(), libraries.clone());
        }
        Ok(Box::new(driver))
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
                host.canonical(Path::new(path)).ok(),
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
