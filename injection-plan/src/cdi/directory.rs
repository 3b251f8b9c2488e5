//! Updates a directory from which engines read CDI specifications, such as `/etc/cdi`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use host_files::rooted_path::{read_own_text, read_regular_text, replace_file};

use super::kind::{find_hook_classes, parse_json_kind};
use super::{GeneratedSpecifications, SPEC_FILE_PREFIX, Specification, SpecificationOwner};

pub use super::spec::file_name as specification_file;

/// The maximum size in bytes of a specification file. A larger file is not read. The limit is high,
/// because a vendor's file may describe thousands of devices.
const MAX_FILE_BYTES: u64 = 16 << 20;

pub use super::kind::{SpecFileKind, scan_yaml_kind};

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation that failed, as text for the message, such as "write" or "create the
        /// directory".
        action: &'static str,
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("cannot serialize a specification")]
    Serialize(#[from] serde_json::Error),
}

fn io_error(action: &'static str, path: &Path) -> impl Fn(io::Error) -> DirectoryError {
    move |error| DirectoryError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

/// A change of one specification file, or a conflict that prevented it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpecificationChange {
    Written {
        path: PathBuf,
        kind: String,
        devices: usize,
        /// The number of device names in the file. It is usually larger than the number of devices:
        /// a device can have its id and its index as names, and the name `all` means all devices.
        names: usize,
    },
    /// The file was removed, because the host no longer has devices of its kind, or because their
    /// class is no longer enabled.
    Removed(PathBuf),
    /// The specification was not written, because the file `other_path` of another program
    /// describes devices of the same kind. `is_certain` is false if the kind of the other file
    /// could not be read, and may be a different one.
    Conflict {
        kind: String,
        other_path: PathBuf,
        is_certain: bool,
    },
}

impl fmt::Display for SpecificationChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpecificationChange::Written {
                path,
                kind,
                devices,
                names,
            } => write!(
                f,
                "wrote {}: {devices} {} of {kind} ({names} {})",
                path.display(),
                pluralize(*devices, "device"),
                pluralize(*names, "name"),
            ),
            SpecificationChange::Removed(path) => write!(
                f,
                "removed {}: no such devices, or not enabled",
                path.display()
            ),
            SpecificationChange::Conflict {
                kind,
                other_path,
                is_certain,
            } => write!(
                f,
                "{kind} is left out: {} {} devices of this kind, and engines refuse a device that \
                 two files describe; remove the file, or name other classes",
                other_path.display(),
                if *is_certain {
                    "describes"
                } else {
                    "may describe"
                }
            ),
        }
    }
}

fn pluralize(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{noun}{plural}")
}

/// The result of [`update`]: the changes of specification files, and the errors.
#[derive(Debug, Default)]
pub struct DirectoryUpdate {
    pub changes: Vec<SpecificationChange>,
    /// The errors of the specifications that could not be written, each with the CDI kind.
    pub failures: Vec<(String, DirectoryError)>,
    /// The errors of the outdated files that could not be removed.
    pub removal_failures: Vec<DirectoryError>,
    /// The names of outdated files that were kept, because they may describe devices of a class
    /// that cannot be used now.
    pub retained_file_names: BTreeSet<String>,
}

/// The classes that cannot be used now, for example because a class file has an error. Their
/// devices may still exist, so the specification files with these devices are not removed.
#[derive(Debug, Clone, Default)]
pub struct UnusableClasses {
    pub names: BTreeSet<String>,
    /// Whether more classes than those in `names` may be unusable, because the class files could
    /// not be read.
    pub may_include_others: bool,
}

impl UnusableClasses {
    /// Returns whether a specification file may describe devices of an unusable class. `classes`
    /// are the classes of the file's devices. `None` means that these classes are not known.
    fn may_own_file(&self, classes: Option<&BTreeSet<String>>) -> bool {
        let has_usable_classes = classes.is_some_and(|classes| self.names.is_disjoint(classes));
        self.may_include_others || !(has_usable_classes || self.names.is_empty())
    }
}

/// A file with a CDI specification, which Boathook or another program has written.
struct SpecificationFile {
    kind: SpecFileKind,
    /// The class names in the arguments of the file's hooks. `None` means that a device has no hook
    /// of Boathook, or that another program wrote the file.
    classes: Option<BTreeSet<String>>,
}

/// Writes the generated specifications to `directory`, and removes outdated files. A file that
/// already has the right content is not written again.
///
/// A file is outdated if Boathook wrote it for the same `owner`, `generated` has no specification
/// for it, and `is_obsolete` accepts its name. An outdated file is kept if it may describe devices
/// of `unusable_classes`. `read_yaml` finds the CDI kind of a specification that is not JSON.
///
/// # Errors
/// Returns an error if the directory cannot be read, or if none of the specifications can be
/// written. Outdated files are removed in the second case, too.
pub fn update(
    directory: &Path,
    generated: &GeneratedSpecifications,
    owner: SpecificationOwner,
    unusable_classes: &UnusableClasses,
    is_obsolete: impl Fn(&str) -> bool,
    read_yaml: impl Fn(String) -> Option<SpecFileKind>,
) -> Result<DirectoryUpdate, DirectoryError> {
    let DirectoryUpdate {
        mut changes,
        mut failures,
        mut removal_failures,
        mut retained_file_names,
    } = DirectoryUpdate::default();
    let files = read_files(directory, read_yaml)?;
    let mut written_paths = BTreeSet::new();
    for specification in &generated.specifications {
        let name = specification.file_name();
        let path = directory.join(&name);
        let mut conflicting_files = files.iter().filter(|(file, other_file)| {
            other_file.kind.may_match(&specification.kind)
                && file.file_name() != Some(OsStr::new(&name))
        });
        if let Some((other_path, other_file)) = conflicting_files.next() {
            changes.push(SpecificationChange::Conflict {
                kind: specification.kind.clone(),
                other_path: other_path.clone(),
                is_certain: matches!(other_file.kind, SpecFileKind::Known(_)),
            });
            continue;
        }
        match write_if_changed(directory, &path, specification) {
            Ok(change) => changes.extend(change),
            Err(error) => failures.push((specification.kind.clone(), error)),
        }
        written_paths.insert(path);
    }
    for (path, other_file) in files {
        let name = lossy_file_name(&path).into_owned();
        let is_outdated =
            has_boathook_file_name(&path) && owner.owns_file(&name) && is_obsolete(&name);
        if !is_outdated || written_paths.contains(&path) {
            continue;
        }
        if unusable_classes.may_own_file(other_file.classes.as_ref()) {
            retained_file_names.insert(name);
            continue;
        }
        match fs::remove_file(&path).map_err(io_error("remove", &path)) {
            Ok(()) => changes.push(SpecificationChange::Removed(path)),
            Err(error) => removal_failures.push(error),
        }
    }
    if failures.len() == generated.specifications.len()
        && let Some((_, error)) = failures.pop()
    {
        return Err(error);
    }
    Ok(DirectoryUpdate {
        changes,
        failures,
        removal_failures,
        retained_file_names,
    })
}

/// Writes a specification to the file at `path`, and returns the change. Returns `None` if the file
/// already has this content.
pub fn write_if_changed(
    directory: &Path,
    path: &Path,
    specification: &Specification,
) -> Result<Option<SpecificationChange>, DirectoryError> {
    let text = format!("{}\n", serde_json::to_string_pretty(specification)?);
    // If the file is a symbolic link, or if other users can write to it, `read_own_text` fails. The
    // file is then replaced, whatever it contains.
    if read_own_text(path, MAX_FILE_BYTES).is_ok_and(|current_text| current_text == text) {
        return Ok(None);
    }
    write_file(directory, path, &text)?;
    Ok(Some(SpecificationChange::Written {
        path: path.to_owned(),
        kind: specification.kind.clone(),
        devices: specification.count_devices(),
        names: specification.devices.len(),
    }))
}

/// Returns whether Boathook generated the specification with this file name and text. The name of
/// such a file, for example `boathook-vendor.com-npu.json`, follows from the CDI kind in the text.
pub fn is_generated(name: &str, text: &str) -> bool {
    parse_json_kind(text).is_some_and(|kind| super::file_name(&kind) == name)
}

/// Returns whether `directory`, which the host mounted into the container of this process, has been
/// removed on the host. No file can be created in a removed directory. If the host creates a new
/// directory at the same path, the container sees the removed one until it is restarted.
pub fn is_removed_mount(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|metadata| metadata.is_dir() && metadata.nlink() == 0)
}

fn lossy_file_name(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn has_boathook_file_name(path: &Path) -> bool {
    let name = lossy_file_name(path);
    name.starts_with(SPEC_FILE_PREFIX) && name.ends_with(".json")
}

/// Reads the CDI specifications in a directory, and returns them by their paths. A file that cannot
/// be read is skipped, because container engines report such a file.
fn read_files(
    directory: &Path,
    read_yaml: impl Fn(String) -> Option<SpecFileKind>,
) -> Result<BTreeMap<PathBuf, SpecificationFile>, DirectoryError> {
    let mut files = BTreeMap::new();
    let io_error = io_error("read the directory", directory);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        entries => entries.map_err(&io_error)?,
    };
    for entry in entries {
        let path = entry.map_err(&io_error)?.path();
        let is_specification = path
            .extension()
            .is_some_and(|extension| extension == "json" || extension == "yaml");
        let text = is_specification
            .then(|| read_regular_text(&path, MAX_FILE_BYTES).ok())
            .flatten();
        let Some(text) = text else {
            continue;
        };
        let classes = has_boathook_file_name(&path)
            .then(|| find_hook_classes(&text))
            .flatten();
        let kind = match parse_json_kind(&text) {
            Some(kind) => Some(SpecFileKind::Known(kind)),
            None => read_yaml(text),
        };
        files.extend(kind.map(|kind| (path, SpecificationFile { kind, classes })));
    }
    Ok(files)
}

/// Writes a file that every user can read, and creates the directory if it is missing. The text is
/// written to a temporary file, which then replaces the file at `path`. Engines ignore the
/// temporary file, because they read only `*.json` and `*.yaml`.
fn write_file(directory: &Path, path: &Path, text: &str) -> Result<(), DirectoryError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    builder
        .create(directory)
        .map_err(io_error("create the directory", directory))?;
    replace_file(path, 0o644, text.as_bytes()).map_err(io_error("write", path))
}

#[cfg(test)]
mod tests;
