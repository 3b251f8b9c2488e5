//! Plans how an installation changes the files of one engine, and how an undo restores them. A plan
//! depends only on these files, the record of an earlier installation, and the options.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use toml_edit::Document;

use crate::change::Change;
use crate::default_runtime::ReplacedRuntime;
use crate::docker;
use crate::drop_in::DROP_IN_HEADER;
use crate::engine_properties::Engine;
use crate::error::Error;
use crate::options::InstallOptions;
use crate::record::{InstallationRecord, RecordedFile};
use crate::snapshot::Snapshot;
use crate::toml_text::{self, BOATHOOK_FILE_STEM};

const NEW_FILE_MODE: u32 = 0o644;

/// The changes of one engine's files, and the record that is needed to undo them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub engine: Engine,
    /// The changes, in the order in which they are made. If a file refers to another file, the
    /// other file comes first, so that the engine never reads a reference to a missing file.
    pub changes: Vec<Change>,
    /// The record that an undo needs. It must be written to disk before the first change, so that
    /// an interrupted installation can be undone. `None` means that this plan is itself an undo.
    pub record: Option<InstallationRecord>,
    /// The default runtime that `boathook-runtime` replaces. `None` means that the default runtime
    /// is not changed, or that the engine still calls its program.
    pub replaced_runtime: Option<ReplacedRuntime>,
}

impl Plan {
    /// Returns whether the plan has no changes. The engine's files then already have the planned
    /// texts.
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
    /// Plans the changes that make the engine call the hook. After these changes were made, a
    /// second plan with the same options has no changes.
    ///
    /// # Errors
    /// Fails if a file does not parse, if another runtime has Boathook's name, or if the default
    /// runtime cannot be replaced without a loss of isolation.
    pub fn plan_install(
        self,
        current_snapshot: &Snapshot,
        record: Option<&InstallationRecord>,
        options: &InstallOptions,
    ) -> Result<Plan, Error> {
        let original_snapshot = remove_installation(current_snapshot, record);
        let files = self.plan_files(&original_snapshot, options)?;
        let replaced_runtime = if options.set_default {
            self.find_default_runtime(&original_snapshot)?
                .plan_replacement(self, &original_snapshot, options)?
        } else {
            None
        };
        let mut changes = Vec::new();
        let mut new_record = InstallationRecord::new(self);
        new_record.made_dirs = record
            .map(|record| record.made_dirs.clone())
            .unwrap_or_default();
        for (path, text) in &files {
            if has_boathook_stem(path) && original_snapshot.get_text(path).is_some() {
                return Err(Error::Other(format!(
                    "{engine}: {} is there, and boathook-init did not write it: move it away, or give it \
                     another name, and try again",
                    path.display(),
                    engine = self
                )));
            }
            // After an earlier installation, the administrator may have formatted daemon.json
            // differently. If the content is the same, the file is not written again.
            let text = match current_snapshot.get_text(path) {
                Some(current_text)
                    if self == Self::Docker && docker::has_same_json(current_text, text) =>
                {
                    current_text
                }
                _ => text,
            };
            for dir in current_snapshot.missing_dirs(path) {
                let change = Change::MakeDir { path: dir.clone() };
                if !changes.contains(&change) {
                    changes.push(change);
                }
                if !new_record.made_dirs.contains(dir) {
                    new_record.made_dirs.push(dir.clone());
                }
            }
            changes.extend(new_file_change(
                path,
                current_snapshot.get_text(path),
                Some(text),
            ));
            new_record.files.push(RecordedFile {
                path: path.clone(),
                old_text: original_snapshot.get_text(path).map(str::to_owned),
                written_texts: collect_written_texts(path, text, current_snapshot, record),
            });
        }
        for file in record.iter().flat_map(|record| &record.files) {
            if !files.iter().any(|(path, _)| *path == file.path) {
                changes.extend(new_file_change(
                    &file.path,
                    current_snapshot.get_text(&file.path),
                    original_snapshot.get_text(&file.path),
                ));
            }
        }
        Ok(Plan {
            engine: self,
            changes,
            record: Some(new_record),
            replaced_runtime,
        })
    }

    /// Plans a temporary change of an engine's file, so that the running engine drops Boathook's
    /// runtime at a reload. It is made before the changes of [`Engine::plan_undo`]. Only Docker
    /// needs this change. Returns `None` for all other engines.
    pub fn plan_runtime_unload(
        self,
        current_snapshot: &Snapshot,
        record: Option<&InstallationRecord>,
    ) -> Result<Option<Plan>, Error> {
        if self != Self::Docker {
            return Ok(None);
        }
        let original_snapshot = remove_installation(current_snapshot, record);
        let (path, text) = docker::plan_runtime_unload_file(&original_snapshot)?;
        let mut new_record = record
            .cloned()
            .unwrap_or_else(|| InstallationRecord::new(self));
        let old_text = original_snapshot.get_text(&path).map(str::to_owned);
        match new_record.files.iter_mut().find(|file| file.path == path) {
            // The administrator may have edited the file since the installation. The undo must
            // restore the edited text, and not the text from before the installation.
            Some(file) => {
                file.old_text = old_text;
                file.written_texts.push(text.clone());
            }
            None => new_record.files.push(RecordedFile {
                old_text,
                written_texts: vec![text.clone()],
                path: path.clone(),
            }),
        }
        Ok(Some(Plan {
            engine: self,
            changes: new_file_change(&path, current_snapshot.get_text(&path), Some(&text))
                .into_iter()
                .collect(),
            record: Some(new_record),
            replaced_runtime: None,
        }))
    }

    /// Plans the changes that undo an installation. Without a record, file names and marker
    /// comments show what Boathook has added.
    pub fn plan_undo(
        self,
        current_snapshot: &Snapshot,
        record: Option<&InstallationRecord>,
    ) -> Plan {
        let original_snapshot = remove_installation(current_snapshot, record);
        // The file that was written last is restored first. So a reference is removed before the
        // file to which it refers.
        let mut ordered_paths: Vec<PathBuf> = record
            .iter()
            .flat_map(|record| record.paths())
            .map(Path::to_path_buf)
            .collect();
        ordered_paths.reverse();
        let recorded_paths: BTreeSet<_> = ordered_paths.iter().cloned().collect();
        ordered_paths.extend(
            current_snapshot
                .writable_paths()
                .map(Path::to_path_buf)
                .filter(|path| !recorded_paths.contains(path)),
        );
        let file_changes = ordered_paths.iter().filter_map(|path| {
            new_file_change(
                path,
                current_snapshot.get_text(path),
                original_snapshot.get_text(path),
            )
        });
        let made_dirs = record.map_or(&[][..], |record| &record.made_dirs);
        let dir_changes = made_dirs
            .iter()
            .rev()
            .map(|path| Change::RemoveDir { path: path.clone() });
        Plan {
            engine: self,
            changes: file_changes.chain(dir_changes).collect(),
            record: None,
            replaced_runtime: None,
        }
    }
}

/// Returns the snapshot as it would be without Boathook's installation.
///
/// If the record says that an installation wrote the text of a file, the file gets its recorded
/// text from before the installation. From all other files, Boathook's parts are removed. File
/// names and marker comments show which parts these are.
fn remove_installation(
    current_snapshot: &Snapshot,
    record: Option<&InstallationRecord>,
) -> Snapshot {
    let mut original_snapshot = current_snapshot.clone();
    // A generated file contains Boathook's parts as well. The snapshot keeps its text, because the
    // engine generates the file again at its next start.
    for (path, text) in current_snapshot
        .existing_files()
        .filter(|(path, _)| !current_snapshot.is_generated(path))
    {
        let recorded_file = record.and_then(|record| record.find_file(path));
        let text = match recorded_file {
            Some(file)
                if file
                    .written_texts
                    .iter()
                    .any(|written_text| written_text == text) =>
            {
                file.old_text.clone()
            }
            _ if has_boathook_stem(path)
                && (recorded_file.is_some() || is_installer_text(path, text)) =>
            {
                None
            }
            _ if path
                .extension()
                .is_some_and(|extension| extension == "json") =>
            {
                Some(docker::remove_boathook_entries(text, recorded_file))
            }
            _ => strip_valid_toml(text),
        };
        original_snapshot.set_text(path, text);
    }
    original_snapshot
}

/// Removes Boathook's parts from a TOML text. If only the administrator can do that, because the
/// remaining text does not parse and the whole text does, the text is returned unchanged.
fn strip_valid_toml(text: &str) -> Option<String> {
    let is_valid = |text: &str| Document::parse(text).is_ok();
    let remaining_text = toml_text::strip_edits(text)?;
    if is_valid(text) && !is_valid(&remaining_text) {
        return Some(text.to_owned());
    }
    Some(remaining_text)
}

/// Returns whether only Boathook writes the file, because its name is `99-boathook` with any
/// extension.
fn has_boathook_stem(path: &Path) -> bool {
    path.file_stem()
        .is_some_and(|stem| stem == BOATHOOK_FILE_STEM)
}

/// Returns whether an installation has written a file with one of Boathook's file names. Such a
/// TOML file begins with Boathook's header. A JSON file, which has no comments, names Boathook's
/// hook.
fn is_installer_text(path: &Path, text: &str) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("json") => text.contains("boathook-hook"),
        Some("conf" | "toml") => text.starts_with(DROP_IN_HEADER),
        _ => true,
    }
}

/// Returns the texts that the record must list for a file: the new text, and the current text if an
/// earlier installation wrote it. The record is written before the file. If the process is killed
/// in between, the file still has the current text.
fn collect_written_texts(
    path: &Path,
    text: &str,
    current_snapshot: &Snapshot,
    record: Option<&InstallationRecord>,
) -> Vec<String> {
    let replaced_text = record
        .and_then(|record| record.find_file(path))
        .zip(current_snapshot.get_text(path))
        .filter(|(file, current_text)| {
            *current_text != text
                && file
                    .written_texts
                    .iter()
                    .any(|written_text| written_text == current_text)
        })
        .map(|(_, current_text)| current_text.to_owned());
    std::iter::once(text.to_owned())
        .chain(replaced_text)
        .collect()
}

fn new_file_change(path: &Path, old_text: Option<&str>, new_text: Option<&str>) -> Option<Change> {
    Change::from_texts(path, old_text, new_text, NEW_FILE_MODE)
}
