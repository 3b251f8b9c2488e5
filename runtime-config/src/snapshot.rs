//! What a plan is made from: the engine's files as they were at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::HostRoot;

/// The text of every file that an engine's plan depends on.
///
/// A path that was looked at and is absent is remembered as absent, together
/// with the directories that would have to be made for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    files: BTreeMap<PathBuf, Option<String>>,
    missing_dirs: BTreeMap<PathBuf, Vec<PathBuf>>,
    generated: BTreeSet<PathBuf>,
}

impl Snapshot {
    pub fn read(&mut self, host: &HostRoot, path: &Path) -> Result<Option<&str>, Error> {
        if !self.files.contains_key(path) {
            let text = host.read(path)?;
            if text.is_none() {
                self.missing_dirs
                    .insert(path.into(), host.missing_dirs(path)?);
            }
            self.files.insert(path.into(), text);
        }
        Ok(self.text(path))
    }

    /// The text of a file that was looked at; `None` when it is absent.
    pub fn text(&self, path: &Path) -> Option<&str> {
        self.files.get(path).and_then(Option::as_deref)
    }

    /// The files that exist, in the order of their paths.
    pub fn present(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.files
            .iter()
            .filter_map(|(path, text)| Some((path.as_path(), text.as_deref()?)))
    }

    /// Notes that the engine makes a file by itself: it tells things, but is
    /// never written to.
    pub(crate) fn set_generated(&mut self, path: &Path) {
        self.generated.insert(path.into());
    }

    pub(crate) fn is_generated(&self, path: &Path) -> bool {
        self.generated.contains(path)
    }

    /// Every path that was looked at and may be written to.
    pub(crate) fn writable(&self) -> impl Iterator<Item = &Path> {
        let paths = self.files.keys().filter(|path| !self.is_generated(path));
        paths.map(PathBuf::as_path)
    }

    /// The directories that must be made before `path` can be written.
    pub(crate) fn missing_dirs(&self, path: &Path) -> &[PathBuf] {
        self.missing_dirs.get(path).map_or(&[], Vec::as_slice)
    }

    /// Pretends that a file holds `text`.
    pub(crate) fn set(&mut self, path: &Path, text: Option<String>) {
        self.files.insert(path.into(), text);
    }
}
