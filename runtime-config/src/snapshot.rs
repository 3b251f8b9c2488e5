//! What a plan is made from: the engine's files as they were at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::daemon_options::DaemonOption;
use crate::error::Error;
use crate::facts::PROGRAM_DIRECTORIES;
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
    /// The programs that were looked for and are there.
    programs: BTreeSet<PathBuf>,
    /// The default runtime that the engine's daemon has on its command line.
    default_runtime_option: Option<DaemonOption>,
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

    /// Notes whether there is a program at an absolute path, or of a name in the usual
    /// directories.
    pub(crate) fn look_for_program(&mut self, host: &HostRoot, program: &Path) {
        let paths = PROGRAM_DIRECTORIES
            .iter()
            .map(|dir| Path::new(dir).join(program));
        self.programs.extend(paths.filter(|path| host.exists(path)));
    }

    /// An absolute path as it is, and a name as the path of the first program that was
    /// looked for and has this name.
    pub(crate) fn find_program<'p>(&'p self, program: &'p Path) -> Option<&'p Path> {
        if program.is_absolute() {
            return Some(program);
        }
        let mut paths = PROGRAM_DIRECTORIES
            .iter()
            .map(|dir| Path::new(dir).join(program));
        paths.find_map(|path| self.programs.get(&path).map(PathBuf::as_path))
    }

    /// Whether a program that was looked for is at this path.
    pub(crate) fn has_program(&self, path: &Path) -> bool {
        self.programs.contains(path)
    }

    pub(crate) fn set_default_runtime_option(&mut self, option: Option<DaemonOption>) {
        self.default_runtime_option = option;
    }

    /// The default runtime that the engine's daemon has on its command line.
    pub(crate) fn default_runtime_option(&self) -> Option<&DaemonOption> {
        self.default_runtime_option.as_ref()
    }

    /// Pretends that a file holds `text`.
    pub(crate) fn set(&mut self, path: &Path, text: Option<String>) {
        self.files.insert(path.into(), text);
    }
}
