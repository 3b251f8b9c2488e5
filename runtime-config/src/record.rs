//! What an installation remembers of an engine's files, so that it can be
//! undone to the byte.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::facts::Engine;
use crate::host::HostRoot;

/// The files that were changed, what they held before and what they were given.
///
/// A file that still holds what it was given gets back what it held before.
/// One that its owner has changed since only loses what carries our marks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The record's own format; 1.
    format: u32,
    pub(crate) engine: Engine,
    /// The directories that were made, outermost first.
    pub(crate) made_dirs: Vec<PathBuf>,
    /// The files, in the order in which they were written.
    pub(crate) files: Vec<RecordedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedFile {
    pub(crate) path: PathBuf,
    /// What it held before; `None`: it did not exist.
    pub(crate) before: Option<String>,
    /// What it may hold by our hand: the newest text first, then the one that
    /// was to be replaced when the record was written.
    pub(crate) written: Vec<String>,
}

impl Record {
    const FORMAT: u32 = 1;

    /// A file that cannot be looked at: its directory, which was there before it, is not there
    /// now. The engine was removed since, or a container does not have that directory.
    pub fn out_of_sight(&self, host: &HostRoot) -> Option<&Path> {
        let is_out = |file: &&RecordedFile| {
            let made = |dir: &Path| self.made_dirs.iter().any(|made| made == dir);
            let above = file.path.ancestors().skip(1).find(|dir| !made(dir));
            above.is_some_and(|dir| !host.exists(dir))
        };
        self.files.iter().find(is_out).map(|file| &*file.path)
    }

    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            format: Self::FORMAT,
            engine,
            made_dirs: Vec::new(),
            files: Vec::new(),
        }
    }

    /// The files that the installation wrote.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|f| f.path.as_path())
    }

    /// The files that no longer hold what was written to them.
    pub fn verify(&self, host: &HostRoot) -> Result<Vec<&Path>, Error> {
        let mut changed = Vec::new();
        for file in &self.files {
            if host.read(&file.path)?.as_ref() != file.written.first() {
                changed.push(file.path.as_path());
            }
        }
        Ok(changed)
    }

    pub(crate) fn file(&self, path: &Path) -> Option<&RecordedFile> {
        self.files.iter().find(|f| f.path == path)
    }

    /// The record kept at `path`; `None` when there is none.
    pub fn load(host: &HostRoot, path: &Path) -> Result<Option<Self>, Error> {
        let Some(text) = host.read(path)? else {
            return Ok(None);
        };
        let invalid = |message: String| {
            Error::Other(format!(
                "the installation record {} is not valid: {message}; restore it from a backup, or \
                 remove it to undo without it",
                path.display()
            ))
        };
        let record: Self = serde_json::from_str(&text).map_err(|e| invalid(e.to_string()))?;
        if record.format != Self::FORMAT {
            return Err(invalid(format!("format {} is not known", record.format)));
        }
        Ok(Some(record))
    }

    pub fn to_text(&self) -> String {
        // Strings and lists alone: serialising them has no way to fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
