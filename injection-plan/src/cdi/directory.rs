//! Updates the directory from which engines read CDI specifications.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rooted_path::{read_own_text, read_regular_text, replace_file};

use super::kind::{find_classes, json_kind};
use super::{FILE_PREFIX, GeneratedSpecifications, Specification, SpecificationOwner};

pub use super::spec::file_name as specification_file;

/// The maximum size in bytes of a specification file that is read. A file of another vendor may
/// describe thousands of devices.
const MAX_FILE: u64 = 16 << 20;

pub use super::kind::{ForeignKind, kind_without_parser};

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation as a verb with its object, such as "write", for the message.
        action: &'static str,
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot serialize a specification")]
    Serialize(#[from] serde_json::Error),
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DirectoryError {
    move |error| DirectoryError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

/// A change of one specification file, or a conflict that prevented the change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecificationChange {
    Wrote {
        path: PathBuf,
        kind: String,
        devices: usize,
        /// The number of CDI devices in the file. A device has several names, and there is one more
        /// for all devices together.
        names: usize,
    },
    /// The file was removed, because the host has no devices of its kind any more.
    Removed(PathBuf),
    /// The specification was not written, because a file of another program describes devices of this
    /// kind. `is_certain` is false if the other file only may do so, because its kind is unclear.
    Conflict {
        kind: String,
        other: PathBuf,
        is_certain: bool,
    },
}

impl fmt::Display for SpecificationChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecificationChange::Wrote {
                path,
                kind,
                devices,
                names,
            } => write!(
                f,
                "wrote {}: {devices} {} of {kind} ({names} {})",
                path.display(),
                count_noun(*devices, "device"),
                count_noun(*names, "name"),
            ),
            SpecificationChange::Removed(path) => write!(
                f,
                "removed {}: no such devices, or not enabled",
                path.display()
            ),
            SpecificationChange::Conflict {
                kind,
                other,
                is_certain,
            } => write!(
                f,
                "{kind} is left out: {} {} devices of this kind, and engines refuse a device that \
                 two files describe; remove the file, or name other classes",
                other.display(),
                if *is_certain {
                    "describes"
                } else {
                    "may describe"
                }
            ),
        }
    }
}

fn count_noun(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{noun}{plural}")
}

/// The result of updating a directory.
#[derive(Debug, Default)]
pub struct DirectoryUpdate {
    pub changes: Vec<SpecificationChange>,
    /// The kinds of the specifications that could not be written, each with the error.
    pub failures: Vec<(String, DirectoryError)>,
    /// The names of old files that were not removed, because they may describe devices of a class that
    /// cannot be used now.
    pub retained: BTreeSet<String>,
}

/// The classes that cannot be used now. Their devices may still exist, so the files that describe
/// these devices are not removed.
#[derive(Debug, Clone, Default)]
pub struct UnusableClasses {
    pub names: BTreeSet<String>,
    /// Whether every class may be unusable, because the class files could not be read.
    pub all: bool,
}

impl UnusableClasses {
    /// Returns whether a specification may describe devices of an unusable class. `classes` are the
    /// classes that the file names, or `None` if it does not name any.
    fn may_have_written(&self, classes: Option<&BTreeSet<String>>) -> bool {
        let is_of_others = classes.is_some_and(|classes| self.names.is_disjoint(classes));
        self.all || !(is_of_others || self.names.is_empty())
    }
}

/// A specification file in the directory.
struct PresentFile {
    kind: ForeignKind,
    /// The classes that the file names. `None` means that it names none.
    classes: Option<BTreeSet<String>>,
}

/// Writes the generated specifications to `directory`. A file that already has the content is not
/// written again. Other files of Boathook for the same `user` are removed if `is_old` accepts their
/// names, unless they may describe devices of `unusable` classes. `read_yaml` finds the kind of
/// another program's specification that is not JSON.
///
/// # Errors
/// Returns an error if the directory cannot be read, or if no file in it can be written.
pub fn update(
    directory: &Path,
    generated: &GeneratedSpecifications,
    user: SpecificationOwner,
    unusable: &UnusableClasses,
    is_old: impl Fn(&str) -> bool,
    read_yaml: impl Fn(String) -> Option<ForeignKind>,
) -> Result<DirectoryUpdate, DirectoryError> {
    let DirectoryUpdate {
        mut changes,
        mut failures,
        mut retained,
    } = DirectoryUpdate::default();
    let files = read_files(directory, read_yaml)?;
    let mut kept = BTreeSet::new();
    for specification in &generated.specifications {
        let name = specification.file_name();
        let path = directory.join(&name);
        let mut others = files.iter().filter(|(file, present)| {
            present.kind.may_be(&specification.kind) && file.file_name() != Some(OsStr::new(&name))
        });
        if let Some((other, present)) = others.next() {
            changes.push(SpecificationChange::Conflict {
                kind: specification.kind.clone(),
                other: other.clone(),
                is_certain: matches!(present.kind, ForeignKind::Known(_)),
            });
            continue;
        }
        match write_if_changed(directory, &path, specification) {
            Ok(change) => changes.extend(change),
            Err(error) => failures.push((specification.kind.clone(), error)),
        }
        kept.insert(path);
    }
    if failures.len() == generated.specifications.len()
        && let Some((_, error)) = failures.pop()
    {
        return Err(error);
    }
    for (path, present) in files {
        let name = name_of(&path).into_owned();
        let is_old = is_ours(&path) && user.owns_file(&name) && is_old(&name);
        if !is_old || kept.contains(&path) {
            continue;
        }
        if unusable.may_have_written(present.classes.as_ref()) {
            retained.insert(name);
        } else {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
            changes.push(SpecificationChange::Removed(path));
        }
    }
    Ok(DirectoryUpdate {
        changes,
        failures,
        retained,
    })
}

/// Writes a specification, unless the file has this content already.
pub fn write_if_changed(
    directory: &Path,
    path: &Path,
    specification: &Specification,
) -> Result<Option<SpecificationChange>, DirectoryError> {
    let text = format!("{}\n", serde_json::to_string_pretty(specification)?);
    // A link, or a file that others can write, is not read, and is replaced.
    if read_own_text(path, MAX_FILE).is_ok_and(|present| present == text) {
        return Ok(None);
    }
    write(directory, path, &text)?;
    Ok(Some(SpecificationChange::Wrote {
        path: path.to_owned(),
        kind: specification.kind.clone(),
        devices: specification.count_devices(),
        names: specification.devices.len(),
    }))
}

/// Returns whether a file is a specification that this module wrote. Its name must be the one that
/// this module uses for the kind in its text.
pub fn is_generated(name: &str, text: &str) -> bool {
    json_kind(text).is_some_and(|kind| super::file_name(&kind) == name)
}

/// Returns whether a mounted directory was removed from the host. Nothing can be created in such a
/// directory. If the host creates the directory again, this process still sees the removed one until
/// its container is restarted.
pub fn is_removed_mount(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.is_dir() && metadata.nlink() == 0)
}

fn name_of(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn is_ours(path: &Path) -> bool {
    let name = name_of(path);
    name.starts_with(FILE_PREFIX) && name.ends_with(".json")
}

/// Returns the specification files in a directory by their paths. A file that cannot be read is
/// skipped, because the engines report it.
fn read_files(
    directory: &Path,
    read_yaml: impl Fn(String) -> Option<ForeignKind>,
) -> Result<BTreeMap<PathBuf, PresentFile>, DirectoryError> {
    let mut files = BTreeMap::new();
    let failed = failed("read the directory", directory);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries.map_err(&failed)?,
    };
    for entry in entries {
        let path = entry.map_err(&failed)?.path();
        let is_specification = path
            .extension()
            .is_some_and(|extension| extension == "json" || extension == "yaml");
        let text = is_specification
            .then(|| read_regular_text(&path, MAX_FILE).ok())
            .flatten();
        let Some(text) = text else {
            continue;
        };
        let classes = is_ours(&path).then(|| find_classes(&text)).flatten();
        let kind = match json_kind(&text) {
            Some(kind) => Some(ForeignKind::Known(kind)),
            None => read_yaml(text),
        };
        files.extend(kind.map(|kind| (path, PresentFile { kind, classes })));
    }
    Ok(files)
}

/// Writes a file that every user can read, and creates the directory if it is missing. The
/// file is replaced as a whole. Engines read only `*.json` and `*.yaml`, so they do not read
/// the unfinished file.
fn write(directory: &Path, path: &Path, text: &str) -> Result<(), DirectoryError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    builder
        .create(directory)
        .map_err(failed("create the directory", directory))?;
    replace_file(path, 0o644, text.as_bytes()).map_err(failed("write", path))
}

#[cfg(test)]
mod tests;
