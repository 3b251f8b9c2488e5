//! The record of an installation in the files of one engine. With it, an undo restores every byte.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::engine_properties::Engine;
use crate::error::Error;
use crate::host::HostRoot;

/// The files that an installation changed, each with its text before and after the change.
///
/// If a file still has the text that the installation wrote, an undo restores the previous text. If
/// the administrator has changed the file since, an undo removes only the parts with Boathook's
/// marker comments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstallationRecord {
    /// The version of the record's format. It is always 1.
    #[serde(rename = "format")]
    format_version: u32,
    pub(crate) engine: Engine,
    /// The directories that the installation created. A directory comes before its subdirectories.
    pub(crate) made_dirs: Vec<PathBuf>,
    /// The files, in the order in which they were written.
    pub(crate) files: Vec<RecordedFile>,
}

/// A file that an installation changed, with its texts before and after the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedFile {
    pub(crate) path: PathBuf,
    /// The text of the file before the installation. `None` means that the file did not exist.
    #[serde(rename = "before")]
    pub(crate) old_text: Option<String>,
    /// The texts that an installation may have left in the file: first the newest text, then the
    /// text that it replaces. The record is written before the file, so the file can have either
    /// text.
    #[serde(rename = "written")]
    pub(crate) written_texts: Vec<String>,
}

impl InstallationRecord {
    const FORMAT_VERSION: u32 = 1;

    /// Returns the first recorded file whose directory existed before the installation and does not
    /// exist now. Either the engine was removed from the host, or the directory is not mounted in
    /// this container. In the second case an undo would not find the file, and would not restore
    /// it.
    pub fn find_unreachable_file(&self, host: &HostRoot) -> Option<&Path> {
        self.paths().find(|path| {
            let mut dirs = path.ancestors().skip(1);
            let existing_dir =
                dirs.find(|dir| !self.made_dirs.iter().any(|made_dir| made_dir == dir));
            existing_dir.is_some_and(|dir| !host.exists(dir))
        })
    }

    pub(crate) fn new(engine: Engine) -> Self {
        Self {
            format_version: Self::FORMAT_VERSION,
            engine,
            made_dirs: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Returns the paths of the files that the installation wrote, in the order in which they were
    /// written.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Returns the paths of the files that were changed after the installation: their text is not
    /// the newest recorded text.
    pub fn find_changed_files(&self, host: &HostRoot) -> Result<Vec<&Path>, Error> {
        let mut changed_files = Vec::new();
        for file in &self.files {
            if host.read(&file.path)?.as_ref() != file.written_texts.first() {
                changed_files.push(file.path.as_path());
            }
        }
        Ok(changed_files)
    }

    pub(crate) fn find_file(&self, path: &Path) -> Option<&RecordedFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Reads the record from the file at `path`. Returns `None` if the file does not exist.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a valid record, or has an unknown format.
    pub fn load(host: &HostRoot, path: &Path) -> Result<Option<Self>, Error> {
        let Some(text) = host.read(path)? else {
            return Ok(None);
        };
        let new_error = |message: String| {
            Error::Other(format!(
                "the installation record {} is not valid: {message}; restore it from a backup, or \
                 remove it to undo without it",
                path.display()
            ))
        };
        let record: Self =
            serde_json::from_str(&text).map_err(|error| new_error(error.to_string()))?;
        if record.format_version != Self::FORMAT_VERSION {
            return Err(new_error(format!(
                "format {} is not known",
                record.format_version
            )));
        }
        Ok(Some(record))
    }

    pub fn to_text(&self) -> String {
        // The default is never used, because strings, numbers and lists can always be serialized.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}
