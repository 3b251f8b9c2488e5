//! The plan: a pure function of what an engine's files hold, what an earlier
//! installation recorded, and what is wanted.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::change::Change;
use crate::default_runtime::ReplacedRuntime;
use crate::docker;
use crate::error::Error;
use crate::facts::Engine;
use crate::options::Options;
use crate::record::{Record, RecordedFile};
use crate::snapshot::Snapshot;
use crate::toml_text::{self, OWN_STEM};

/// The mode of a configuration file that did not exist.
const NEW_FILE_MODE: u32 = 0o644;

/// What will be done to one engine's files, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub engine: Engine,
    /// The changes. Files that nothing refers to yet come first.
    pub changes: Vec<Change>,
    /// What must be kept to undo it, and must be on disk before the first
    /// change; `None` after an undo.
    pub record: Option<Record>,
    /// The default runtime that `boathook-runtime` replaces, if it does.
    pub replaced: Option<ReplacedRuntime>,
}

impl Plan {
    /// Whether the engine already is as wanted.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// The changes as one diff.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.changes
            .iter()
            .try_for_each(|change| write!(f, "{change}"))
    }
}

impl Engine {
    /// Plans to make the engine call the hook. Planning again after the plan
    /// was carried out gives an empty one.
    pub fn plan_install(
        self,
        now: &Snapshot,
        record: Option<&Record>,
        options: &Options,
    ) -> Result<Plan, Error> {
        let base = without_ours(now, record);
        let wanted = self.desired(&base, options)?;
        let replaced = match options.set_default {
            true => self.default_runtime(&base)?.replace(self, &base, options)?,
            false => None,
        };
        let mut changes = Vec::new();
        let mut next = Record::new(self);
        next.made_dirs = record.map(|r| r.made_dirs.clone()).unwrap_or_default();
        for (path, text) in &wanted {
            // An owner may have formatted the file again.
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
                written: written(path, text, now, record),
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

    /// Plans what makes the running engine drop our runtime once it is reloaded,
    /// before [`Engine::plan_undo`] brings the user's file back; `None` where
    /// that alone does it.
    pub fn plan_release(
        self,
        now: &Snapshot,
        record: Option<&Record>,
    ) -> Result<Option<Plan>, Error> {
        if self != Self::Docker {
            return Ok(None);
        }
        let base = without_ours(now, record);
        let (path, text) = docker::released(&base)?;
        let mut next = record.cloned().unwrap_or_else(|| Record::new(self));
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

    /// Plans to take back what was installed, with or without a record of it.
    pub fn plan_undo(self, now: &Snapshot, record: Option<&Record>) -> Plan {
        let base = without_ours(now, record);
        // Last written, first undone: what refers goes before what is referred to.
        let recorded = record.iter().flat_map(|r| r.paths()).map(Path::to_path_buf);
        let mut order: Vec<PathBuf> = recorded.collect();
        order.reverse();
        let known: BTreeSet<_> = order.iter().cloned().collect();
        order.extend(
            now.writable()
                .map(Path::to_path_buf)
                .filter(|p| !known.contains(p)),
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

/// The snapshot without anything that this program wrote.
///
/// By the record where it fits to the byte, else by our file names and marks.
fn without_ours(now: &Snapshot, record: Option<&Record>) -> Snapshot {
    let mut base = now.clone();
    // What an engine has made of our files by itself is not to be taken apart.
    for (path, text) in now.present().filter(|(path, _)| !now.is_generated(path)) {
        let recorded = record.and_then(|r| r.file(path));
        let text = match recorded {
            Some(file) if file.written.iter().any(|w| w == text) => file.before.clone(),
            _ if is_own(path) => None,
            _ if path.extension().is_some_and(|e| e == "json") => {
                let before = recorded.and_then(|file| file.before.as_deref());
                Some(docker::strip(text, before))
            }
            _ => toml_text::strip(text),
        };
        base.set(path, text);
    }
    base
}

/// Whether a file is ours by its name.
fn is_own(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == OWN_STEM)
}

/// The texts by which the file may later be known as written by us.
fn written(path: &Path, text: &str, now: &Snapshot, record: Option<&Record>) -> Vec<String> {
    let replaced = record
        .and_then(|r| r.file(path))
        .zip(now.text(path))
        .filter(|(file, current)| file.written.iter().any(|w| w == current) && *current != text);
    let replaced = replaced.map(|(_, current)| current.to_owned());
    std::iter::once(text.to_owned()).chain(replaced).collect()
}

fn rewrite(path: &Path, before: Option<&str>, after: Option<&str>) -> Option<Change> {
    Change::rewrite(path, before, after, NEW_FILE_MODE)
}
