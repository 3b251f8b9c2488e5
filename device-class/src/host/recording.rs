//! Records all files that a scan reads, in the text format of a [`super::RecordedHost`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rooted_path::MAX_LINKS;

use super::recorded::{Libraries, RecordedEntry};
use super::{DeviceKind, Entry, GROUP_FILE, HostView, Place, Programs, View};
use crate::ownership::OwnershipError;

/// A [`HostView`] that passes all calls to another view, and records the files that were read.
pub struct Recording<'a> {
    view: View<'a>,
    /// The path of the view's root directory in the recorded host.
    root: PathBuf,
    seen: Rc<RefCell<RecordedCalls>>,
}

/// The files and libraries that were looked up so far.
#[derive(Default)]
struct RecordedCalls {
    tree: BTreeMap<PathBuf, RecordedEntry>,
    /// The libraries of each root directory that has a loader's cache.
    libraries: BTreeMap<PathBuf, Libraries>,
    passed: BTreeSet<PathBuf>,
}

impl<'a> Recording<'a> {
    pub fn new(view: &'a dyn HostView) -> Self {
        Recording {
            view: View::Borrowed(view),
            root: "/".into(),
            seen: Rc::default(),
        }
    }

    /// Converts a path of the view to the path in the recorded host.
    fn recorded(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Records the type of the file at a path, and every link on the path.
    fn note(&self, path: &Path) {
        self.note_through(path, 0);
    }

    fn note_through(&self, path: &Path, links: usize) {
        if is_of_process(path) {
            return;
        }
        if links > MAX_LINKS || !self.seen.borrow_mut().passed.insert(self.recorded(path)) {
            return;
        }
        let ancestors: Vec<&Path> = path.ancestors().collect();
        for part in ancestors.into_iter().rev() {
            let (Some(parent), Some(name)) = (part.parent(), part.file_name()) else {
                continue;
            };
            let Ok(parent) = self.view.canonical(parent) else {
                return;
            };
            let place = parent.join(name);
            if let Ok(target) = self.view.read_link(&place) {
                let leads_to = parent.join(&target);
                if is_of_process(&place) {
                    return;
                }
                let place = self.recorded(&place);
                self.seen
                    .borrow_mut()
                    .tree
                    .insert(place, RecordedEntry::Link(target));
                self.note_through(&leads_to, links + 1);
            }
        }
        if let (Ok(place), Ok(Some(entry))) = (self.view.canonical(path), self.view.entry(path))
            && !is_of_process(&place)
        {
            let tree = &mut self.seen.borrow_mut().tree;
            tree.entry(self.recorded(&place))
                .or_insert(RecordedEntry::Is(entry));
        }
    }
}

/// Returns whether a path is below the directory of a process in /proc, to which links such as
/// /dev/fd lead. Its files differ for each process, and name files that are no part of the host's
/// devices.
fn is_of_process(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/proc") else {
        return false;
    };
    let first = below.components().next();
    let first = first.map(|component| component.as_os_str().to_string_lossy());
    first.is_some_and(|name| {
        let is_pid = name.bytes().all(|byte| byte.is_ascii_digit());
        is_pid || name == "self" || name == "thread-self"
    })
}

impl HostView for Recording<'_> {
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>> {
        self.note(path);
        self.view.entry(path)
    }

    fn is_link(&self, path: &Path) -> bool {
        self.note(path);
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
        self.note(path);
        let names = self.view.list_matching(path, is_match)?;
        for name in &names {
            self.note(&path.join(name));
        }
        Ok(names)
    }

    fn read(&self, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.note(path);
        let bytes = self.view.read(path, limit)?;
        if let Ok(place) = self.view.canonical(path)
            && !is_of_process(&place)
        {
            let tree = &mut self.seen.borrow_mut().tree;
            tree.insert(self.recorded(&place), RecordedEntry::Content(bytes.clone()));
        }
        Ok(bytes)
    }

    /// Records the first bytes of the file only if it is a script. The content of other programs is
    /// not recorded.
    fn is_script(&self, path: &Path) -> bool {
        self.note(path);
        self.view.is_script(path) && self.read(path, 2).is_ok()
    }

    fn check_root_only(&self, path: &Path) -> Result<(), OwnershipError> {
        self.view.check_root_only(path)
    }

    fn place(&self, path: &Path) -> Result<Option<Place>, OwnershipError> {
        self.note(path);
        self.view.place(path)
    }

    /// Records only the line of this group, without its members.
    fn group_id(&self, name: &str) -> io::Result<Option<u32>> {
        let number = self.view.group_id(name)?;
        let path = self.recorded(Path::new(GROUP_FILE));
        let tree = &mut self.seen.borrow_mut().tree;
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
        self.note(path);
        self.view.read_link(path)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        self.note(path);
        self.view.canonical(path)
    }

    fn libraries(&self, soname: &str, programs: Programs) -> io::Result<Vec<PathBuf>> {
        let paths = self.view.libraries(soname, programs)?;
        for path in &paths {
            self.note(path);
        }
        let mut seen = self.seen.borrow_mut();
        let libraries = seen.libraries.entry(self.root.clone()).or_default();
        libraries.insert((soname.to_owned(), programs), paths.clone());
        Ok(paths)
    }

    fn library_names(&self, programs: Programs) -> io::Result<Vec<String>> {
        self.view.library_names(programs)
    }

    fn driver_root<'a>(&'a self, path: &Path) -> io::Result<Box<dyn HostView + 'a>> {
        let view = self.view.driver_root(path)?;
        self.note(path);
        Ok(Box::new(Recording {
            root: self.recorded(&self.view.canonical(path)?),
            view: View::Owned(view),
            seen: Rc::clone(&self.seen),
        }))
    }
}

/// Formats the recorded host as [`super::RecordedHost::parse`] parses it. Paths with spaces are left
/// out, because the format cannot represent them.
impl fmt::Display for Recording<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.seen.borrow();
        let plain = |path: &Path| !path.to_string_lossy().contains(char::is_whitespace);
        for (path, kind) in seen.tree.iter().filter(|(path, _)| plain(path)) {
            let at = path.display();
            match kind {
                RecordedEntry::Link(target) if plain(target) => {
                    writeln!(f, "link {at} {}", target.display())?;
                }
                RecordedEntry::Link(_) => {}
                RecordedEntry::Is(Entry::Directory) => writeln!(f, "dir {at}")?,
                RecordedEntry::Is(Entry::File) => writeln!(f, "file {at}")?,
                RecordedEntry::Is(Entry::Socket) => writeln!(f, "socket {at}")?,
                RecordedEntry::Is(Entry::Other) => writeln!(f, "other {at}")?,
                RecordedEntry::Is(Entry::Device(number)) => {
                    let kind = match number.kind {
                        DeviceKind::Character => "char",
                        DeviceKind::Block => "block",
                    };
                    writeln!(f, "{kind} {at} {}:{}", number.major, number.minor)?;
                }
                RecordedEntry::Content(bytes) => {
                    writeln!(f, "file {at}")?;
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
        for (root, libraries) in &seen.libraries {
            let root = if root == Path::new("/") {
                String::new()
            } else {
                format!(" {}", root.display())
            };
            for ((soname, programs), paths) in libraries {
                let kind = match programs {
                    Programs::Native => "lib",
                    Programs::Bits32 => "lib32",
                };
                for path in paths {
                    writeln!(f, "{kind} {soname} {}{root}", path.display())?;
                }
            }
        }
        Ok(())
    }
}
