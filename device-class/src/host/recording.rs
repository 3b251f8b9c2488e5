//! Records what a scan reads, in the text format of a [`super::RecordedHost`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use host_files::rooted_path::MAX_LINKS;

use super::recorded::{LibraryPaths, RecordedEntry};
use super::{DeviceKind, Entry, GROUP_FILE_PATH, HostFile, HostView, HostViewCow, ProgramAbi};
use crate::ownership::OwnershipError;

/// A [`HostView`] that passes all calls to another view, and records the files, links and libraries
/// that were read.
pub struct HostRecorder<'a> {
    view: HostViewCow<'a>,
    /// The path of the root directory of `view` in the recorded host. It is `/`, or the path of a
    /// directory in which a driver is installed.
    root: PathBuf,
    recorded_files: Rc<RefCell<RecordedFiles>>,
}

/// The files and libraries that have been read or looked up so far.
#[derive(Default)]
struct RecordedFiles {
    tree: BTreeMap<PathBuf, RecordedEntry>,
    /// The libraries in ld.so.cache. The key is the root directory that has this cache: `/` or a
    /// driver root.
    libraries: BTreeMap<PathBuf, LibraryPaths>,
    /// The paths that are already recorded. The links on such a path are not followed again.
    recorded_paths: BTreeSet<PathBuf>,
}

impl<'a> HostRecorder<'a> {
    pub fn new(view: &'a dyn HostView) -> Self {
        HostRecorder {
            view: HostViewCow::Borrowed(view),
            root: "/".into(),
            recorded_files: Rc::default(),
        }
    }

    /// Converts a path of `view` to the path in the recorded host.
    fn to_recorded_path(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Records the type of the file at a path, and every symbolic link on the path, so that the
    /// recorded host resolves the path in the same way.
    fn record_path(&self, path: &Path) {
        self.record_links(path, 0);
    }

    fn record_links(&self, path: &Path, link_count: usize) {
        if is_process_path(path) {
            return;
        }
        if link_count > MAX_LINKS
            || !self
                .recorded_files
                .borrow_mut()
                .recorded_paths
                .insert(self.to_recorded_path(path))
        {
            return;
        }
        let ancestors: Vec<&Path> = path.ancestors().collect();
        for ancestor in ancestors.into_iter().rev() {
            let (Some(parent), Some(name)) = (ancestor.parent(), ancestor.file_name()) else {
                continue;
            };
            let Ok(parent) = self.view.canonicalize(parent) else {
                return;
            };
            let path = parent.join(name);
            if let Ok(target) = self.view.read_link(&path) {
                let target_path = parent.join(&target);
                if is_process_path(&path) {
                    return;
                }
                let recorded_path = self.to_recorded_path(&path);
                self.recorded_files
                    .borrow_mut()
                    .tree
                    .insert(recorded_path, RecordedEntry::Link(target));
                self.record_links(&target_path, link_count + 1);
            }
        }
        if let (Ok(real_path), Ok(Some(entry))) =
            (self.view.canonicalize(path), self.view.entry(path))
            && !is_process_path(&real_path)
        {
            let tree = &mut self.recorded_files.borrow_mut().tree;
            tree.entry(self.to_recorded_path(&real_path))
                .or_insert(RecordedEntry::TypeOnly(entry));
        }
    }
}

/// Returns whether a path is below the directory of a process in /proc. Links such as /dev/fd lead
/// there. Files there are not recorded, because they describe a process and not the host's devices.
fn is_process_path(path: &Path) -> bool {
    let Ok(relative_path) = path.strip_prefix("/proc") else {
        return false;
    };
    let component = relative_path.components().next();
    let name = component.map(|component| component.as_os_str().to_string_lossy());
    name.is_some_and(|name| {
        let is_pid = name.bytes().all(|byte| byte.is_ascii_digit());
        is_pid || name == "self" || name == "thread-self"
    })
}

impl HostView for HostRecorder<'_> {
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.record_path(path);
        self.view.entry(path)
    }

    fn is_link(&self, path: &Path) -> bool {
        self.record_path(path);
        self.view.is_link(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.list_matching(path, &|_| true)
    }

    fn list_matching(
        &self,
        path: &Path,
        is_match: &dyn Fn(&str) -> bool,
    ) -> io::Result<Vec<String>> {
        self.record_path(path);
        let names = self.view.list_matching(path, is_match)?;
        for name in &names {
            self.record_path(&path.join(name));
        }
        Ok(names)
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.record_path(path);
        let bytes = self.view.read(path, limit)?;
        if let Ok(real_path) = self.view.canonicalize(path)
            && !is_process_path(&real_path)
        {
            let tree = &mut self.recorded_files.borrow_mut().tree;
            tree.insert(
                self.to_recorded_path(&real_path),
                RecordedEntry::Content(bytes.clone()),
            );
        }
        Ok(bytes)
    }

    /// Returns whether the file is a script. The two first bytes of a script are recorded, so that
    /// the recorded host gives the same answer. The content of other programs is not recorded.
    fn is_script(&self, path: &Path) -> bool {
        self.record_path(path);
        self.view.is_script(path) && self.read(path, 2).is_ok()
    }

    fn check_root_only(&self, path: &Path) -> Result<(), OwnershipError> {
        self.view.check_root_only(path)
    }

    fn find_trusted_file(&self, path: &Path) -> Result<Option<HostFile>, OwnershipError> {
        self.record_path(path);
        self.view.find_trusted_file(path)
    }

    /// Looks up a group. Records only the line of this group, without the members of the group.
    fn group_id(&self, name: &str) -> io::Result<Option<u32>> {
        let number = self.view.group_id(name)?;
        let path = self.to_recorded_path(Path::new(GROUP_FILE_PATH));
        let tree = &mut self.recorded_files.borrow_mut().tree;
        let file = tree
            .entry(path)
            .or_insert(RecordedEntry::Content(Vec::new()));
        if let (Some(number), RecordedEntry::Content(text)) = (number, file) {
            let line = format!("{name}:x:{number}:\n");
            if !text.windows(line.len()).any(|part| part == line.as_bytes()) {
                text.extend_from_slice(line.as_bytes());
            }
        }
        Ok(number)
    }

    fn read_link(&self, path: &Path) -> io::Result<PathBuf> {
        self.record_path(path);
        self.view.read_link(path)
    }

    fn canonicalize(&self, path: &Path) -> io::Result<PathBuf> {
        self.record_path(path);
        self.view.canonicalize(path)
    }

    fn libraries(&self, soname: &str, abi: ProgramAbi) -> io::Result<Vec<PathBuf>> {
        let paths = self.view.libraries(soname, abi)?;
        for path in &paths {
            self.record_path(path);
        }
        let mut recorded_files = self.recorded_files.borrow_mut();
        let libraries = recorded_files
            .libraries
            .entry(self.root.clone())
            .or_default();
        libraries.insert((soname.to_owned(), abi), paths.clone());
        Ok(paths)
    }

    fn has_library_cache(&self) -> io::Result<bool> {
        self.view.has_library_cache()
    }

    fn library_names(&self, abi: ProgramAbi) -> io::Result<Vec<String>> {
        self.view.library_names(abi)
    }

    fn open_driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>> {
        let view = self.view.open_driver_root(path)?;
        self.record_path(path);
        Ok(Box::new(HostRecorder {
            root: self.to_recorded_path(&self.view.canonicalize(path)?),
            view: HostViewCow::Owned(view),
            recorded_files: Rc::clone(&self.recorded_files),
        }))
    }
}

/// Writes the recorded host in the format that [`super::RecordedHost::parse`] reads. Paths with
/// spaces are left out, because the format cannot represent them.
impl fmt::Display for HostRecorder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorded_files = self.recorded_files.borrow();
        let is_recordable = |path: &Path| !path.to_string_lossy().contains(char::is_whitespace);
        for (path, entry) in recorded_files
            .tree
            .iter()
            .filter(|(path, _)| is_recordable(path))
        {
            let path = path.display();
            match entry {
                RecordedEntry::Link(target) if is_recordable(target) => {
                    writeln!(f, "link {path} {}", target.display())?;
                }
                RecordedEntry::Link(_) => {}
                RecordedEntry::TypeOnly(Entry::Directory) => writeln!(f, "dir {path}")?,
                RecordedEntry::TypeOnly(Entry::File) => writeln!(f, "file {path}")?,
                RecordedEntry::TypeOnly(Entry::Socket) => writeln!(f, "socket {path}")?,
                RecordedEntry::TypeOnly(Entry::Other) => writeln!(f, "other {path}")?,
                RecordedEntry::TypeOnly(Entry::Device(number)) => {
                    let kind = match number.kind {
                        DeviceKind::Character => "char",
                        DeviceKind::Block => "block",
                    };
                    writeln!(f, "{kind} {path} {}:{}", number.major, number.minor)?;
                }
                RecordedEntry::Content(bytes) => {
                    writeln!(f, "file {path}")?;
                    let text = String::from_utf8_lossy(bytes);
                    let is_binary = |c: char| c.is_control() && !c.is_ascii_whitespace();
                    let lines = if text.contains(is_binary) {
                        "(not text)"
                    } else {
                        &text
                    };
                    for line in lines.lines() {
                        writeln!(f, "| {line}")?;
                    }
                }
            }
        }
        for (root, libraries) in &recorded_files.libraries {
            let root = if root == Path::new("/") {
                String::new()
            } else {
                format!(" {}", root.display())
            };
            for ((soname, abi), paths) in libraries {
                let kind = match abi {
                    ProgramAbi::Native => "lib",
                    ProgramAbi::Bits32 => "lib32",
                };
                for path in paths {
                    writeln!(f, "{kind} {soname} {}{root}", path.display())?;
                }
            }
        }
        Ok(())
    }
}
