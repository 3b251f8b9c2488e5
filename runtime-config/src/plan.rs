//! Plans how an installation changes the files of one engine, and how an undo restores them. A plan is
//! a pure function of the files, the record of an earlier installation, and the options.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::change::Change;
use crate::default_runtime::ReplacedRuntime;
use crate::docker;
use crate::error::Error;
use crate::facts::Engine;
use crate::options::Options;
use crate::record::{InstallationRecord, RecordedFile};
use crate::snapshot::Snapshot;
use crate::toml_text::{self, OWN_STEM};

/// The mode of a configuration file that an installation creates.
const NEW_FILE_MODE: u32 = 0o644;

/// The changes of one engine's files, and the record with which they can be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub engine: Engine,
    /// The changes, in the order in which they are made. A file comes before the files that refer
    /// to it, so that the engine never reads a reference to a missing file.
    pub changes: Vec<Change>,
    /// The record that an undo needs. It must be on disk before the first change, so that an
    /// interrupted installation can be undone. `None` means that the changes are an undo.
    pub record: Option<InstallationRecord>,
    /// The default runtime that `boathook-runtime` replaces. `None` means that the default
    /// runtime stays, or that the engine calls its program as before.
    pub replaced: Option<ReplacedRuntime>,
}

impl Plan {
    /// Returns whether the engine's files already are as the options require.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Formats the changes as one diff.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes
            .iter()
            .try_for_each(|change| write!(f, "{change}"))
    }
}

impl Engine {
    /// Plans the changes that make the engine call the hook. After the plan was carried out, a
    /// second plan with the same options has no changes.
    ///
    /// # Errors
    /// Fails if a file does not parse, if another runtime has Boathook's name, or if the default
    /// runtime cannot be replaced without a loss of isolation.
    pub fn plan_install(
        self,
        now: &Snapshot,
        record: Option<&InstallationRecord>,
        options: &Options,
    ) -> Result<Plan, Error> {
        let base = remove_installation(now, record);
        let wanted = self.plan_files(&base, options)?;
        let replaced = if options.set_default {
            self.default_runtime(&base)?.replace(self, &base, options)?
        } else {
            None
        };
        let mut changes = Vec::new();
        let mut next = InstallationRecord::new(self);
        next.made_dirs = record.map(|r| r.made_dirs.clone()).unwrap_or_default();
        for (path, text) in &wanted {
            // The administrator may have formatted daemon.json again after an earlier
            // installation. The same content in another format is not rewritten.
            let text = match now.text(path) {
                Some(current) if self == Self::Docker && docker::is_same(current, text) => current,
                _ => text,
            };
            for dir in now.missing_dirs(path) {
                let change = Change::MakeDir { path: dir.clone() };
                if !changes.contains(&change) {
                    changes.push(change);
                }
                if !next.made_dirs.contains(dir) {
                    next.made_dirs.push(dir.clone());
                }
            }
            changes.extend(rewrite(path, now.text(path), Some(text)));
            next.files.push(RecordedFile {
                path: path.clone(),
                before: base.text(path).map(str::to_owned),
                written: written_texts(path, text, now, record),
            });
        }
        for file in record.iter().flat_map(|r| &r.files) {
            if !wanted.iter().any(|(path, _)| *path == file.path) {
                changes.extend(rewrite(
                    &file.path,
                    now.text(&file.path),
                    base.text(&file.path),
                ));
            }
        }
        Ok(Plan {
            engine: self,
            changes,
            record: Some(next),
            replaced,
        })
    }

    /// Plans an intermediate change, before [`Engine::plan_undo`] restores the user's file, with
    /// which the running engine drops Boathook's runtime at a reload. Returns `None` for all
    /// engines except Docker: they need no intermediate change.
    pub fn plan_release(
        self,
        now: &Snapshot,
        record: Option<&InstallationRecord>,
    ) -> Result<Option<Plan>, Error> {
        if self != Self::Docker {
            return Ok(None);
        }
        let base = remove_installation(now, record);
        let (path, text) = docker::release_file(&base)?;
        let mut next = record
            .cloned()
            .unwrap_or_else(|| InstallationRecord::new(self));
        match next.files.iter_mut().find(|file| file.path == path) {
            Some(file) => file.written.push(text.clone()),
            None => next.files.push(RecordedFile {
                before: base.text(&path).map(str::to_owned),
                written: vec![text.clone()],
                path: path.clone(),
            }),
        }
        Ok(Some(Plan {
            engine: self,
            changes: rewrite(&path, now.text(&path), Some(&text))
                .into_iter()
                .collect(),
            record: Some(next),
            replaced: None,
        }))
    }

    /// Plans the changes that undo an installation. Without a record, Boathook's parts are found
    /// by file names and marks.
    pub fn plan_undo(self, now: &Snapshot, record: Option<&InstallationRecord>) -> Plan {
        let base = remove_installation(now, record);
        // The file that was written last is undone first, so that a reference is removed before
        // the file to which it refers.
        let recorded = record.iter().flat_map(|r| r.paths()).map(Path::to_path_buf);
        let mut order: Vec<PathBuf> = recorded.collect();
        order.reverse();
        let recorded: BTreeSet<_> = order.iter().cloned().collect();
        order.extend(
            now.writable()
                .map(Path::to_path_buf)
                .filter(|path| !recorded.contains(path)),
        );
        let files = order
            .iter()
            .filter_map(|path| rewrite(path, now.text(path), base.text(path)));
        let made_dirs = record.map_or(&[][..], |r| &r.made_dirs);
        let dirs = made_dirs
            .iter()
            .rev()
            .map(|path| Change::RemoveDir { path: path.clone() });
        Plan {
            engine: self,
            changes: files.chain(dirs).collect(),
            record: None,
            replaced: None,
        }
    }
}

/// Returns the snapshot as it would be without Boathook's installation.
///
/// If a file has a text that the record contains, the recorded text from before the installation
/// is used. In other files Boathook's parts are found by file names and marks.
fn remove_installation(now: &Snapshot, record: Option<&InstallationRecord>) -> Snapshot {
    let mut base = now.clone();
    // A file that the engine generates contains Boathook's parts too, but the engine replaces it
    // at the next start. It stays as it is.
    for (path, text) in now.present().filter(|(path, _)| !now.is_generated(path)) {
        let recorded = record.and_then(|r| r.file(path));
        let text = match recorded {
            Some(file) if file.written.iter().any(|w| w == text) => file.before.clone(),
            _ if is_own_file(path) => None,
            _ if path.extension().is_some_and(|e| e == "json") => {
                Some(docker::strip(text, recorded))
            }
            _ => toml_text::strip(text),
        };
        base.set(path, text);
    }
    base
}

/// Returns whether only Boathook writes the file, by the file's name.
fn is_own_file(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == OWN_STEM)
}

/// Returns the texts that the record has to contain for a file: the new text, and the present
/// text if an earlier installation wrote it. The file still has the present text if the process
/// is interrupted after it has written the record.
fn written_texts(
    path: &Path,
    text: &str,
    now: &Snapshot,
    record: Option<&InstallationRecord>,
) -> Vec<String> {
    let replaced = record
        .and_then(|r| r.file(path))
        .zip(now.text(path))
        .filter(|(file, current)| file.written.iter().any(|w| w == current) && *current != text)
        .map(|(_, current)| current.to_owned());
    std::iter::once(text.to_owned()).chain(replaced).collect()
}

fn rewrite(path: &Path, before: Option<&str>, after: Option<&str>) -> Option<Change> {
    Change::rewrite(path, before, after, NEW_FILE_MODE)
}
