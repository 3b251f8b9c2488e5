//! The directory from which engines read specifications.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{FILE_PREFIX, Generated, Omission, Specification};

/// The largest specification file that is read, in bytes: that of another vendor may
/// have thousands of devices.
const MAX_FILE: u64 = 16 << 20;

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot {action} {}", path.display())]
    Io {
        /// Words before a path.
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Wrote {
        path: PathBuf,
        kind: String,
        /// How many names they have.
        devices: usize,
    },
    /// It was removed: its devices are gone.
    Removed(PathBuf),
    /// A kind was not written, because the other file describes devices of it.
    Conflict { kind: String, other: PathBuf },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Wrote {
                path,
                kind,
                devices,
            } => write!(f, "wrote {}: {devices} devices of {kind}", path.display()),
            Change::Removed(path) => write!(
                f,
                "removed {}: no such devices, or not enabled",
                path.display()
            ),
            Change::Conflict { kind, other } => write!(
                f,
                "{kind} is left out: {} describes devices of this kind, and engines refuse a \
                 device that two files describe; remove the file, or name other classes",
                other.display()
            ),
        }
    }
}

/// Makes the files in `directory` those that were generated; a file that is right is
/// not written again. Files of ours for other kinds are removed if `is_old` has their
/// names, unless a class could not be used: its devices are not known to be gone.
pub fn update(
    directory: &Path,
    generated: &Generated,
    is_old: impl Fn(&str) -> bool,
) -> Result<Vec<Change>, DirectoryError> {
    let mut changes = Vec::new();
    let kinds = read_kinds(directory)?;
    let mut kept = BTreeSet::new();
    for specification in &generated.specifications {
        let name = specification.file_name();
        let path = directory.join(&name);
        let mut others = kinds.iter().filter(|(file, kind)| {
            **kind == specification.kind && file.file_name() != Some(OsStr::new(&name))
        });
        if let Some((other, kind)) = others.next() {
            changes.push(Change::Conflict {
                kind: kind.clone(),
                other: other.clone(),
            });
            continue;
        }
        changes.extend(put(directory, &path, specification)?);
        kept.insert(path);
    }
    if !generated.omissions.iter().any(Omission::is_error) {
        let old = kinds.into_keys();
        let is_old = |path: &Path| is_ours(path) && is_old(&name_of(path));
        for path in old.filter(|path| is_old(path) && !kept.contains(path)) {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
            changes.push(Change::Removed(path));
        }
    }
    Ok(changes)
}

/// Writes a specification, unless the file has it already.
pub fn put(
    directory: &Path,
    path: &Path,
    specification: &Specification,
) -> Result<Option<Change>, DirectoryError> {
    let text = format!("{}\n", serde_json::to_string_pretty(specification)?);
    if fs::read_to_string(path).is_ok_and(|present| present == text) {
        return Ok(None);
    }
    write(directory, path, &text)?;
    Ok(Some(Change::Wrote {
        path: path.to_owned(),
        kind: specification.kind.clone(),
        devices: specification.devices.len(),
    }))
}

/// Whether a file is a specification that this module has written, by its name and text.
pub fn is_generated(name: &str, text: &str) -> bool {
    kind_in(text).is_some_and(|kind| super::file_name(&kind) == name)
}

fn name_of(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn is_ours(path: &Path) -> bool {
    let name = name_of(path);
    name.starts_with(FILE_PREFIX) && name.ends_with(".json")
}

/// The specification files in a directory, with their kinds. A file that cannot be
/// read as one concerns the engines alone.
fn read_kinds(directory: &Path) -> Result<BTreeMap<PathBuf, String>, DirectoryError> {
    let mut kinds = BTreeMap::new();
    let failed = failed("read the directory", directory);
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(kinds),
        entries => entries.map_err(&failed)?,
    };
    for entry in entries {
        let path = entry.map_err(&failed)?.path();
        let is_specification = path
            .extension()
            .is_some_and(|extension| extension == "json" || extension == "yaml");
        // A pipe would be waited for.
        let is_file = fs::metadata(&path).is_ok_and(|it| it.is_file() && it.len() <= MAX_FILE);
        let kind = (is_specification && is_file)
            .then(|| fs::read_to_string(&path).ok())
            .flatten()
            .and_then(|text| kind_in(&text));
        kinds.extend(kind.map(|kind| (path, kind)));
    }
    Ok(kinds)
}

/// What is read of a specification in JSON, which may be large.
#[derive(Deserialize)]
struct Json {
    kind: String,
}

/// The value of the key `kind` of a specification in JSON or YAML.
fn kind_in(text: &str) -> Option<String> {
    if let Ok(Json { kind }) = serde_json::from_str(text) {
        return Some(kind);
    }
    let mut values = text.lines().filter_map(|line| line.strip_prefix("kind:"));
    let value = values.next()?.trim().trim_matches(['"', '\'']);
    Some(value.to_owned())
}

/// Creates a file that every engine can read. What is left of an earlier run is
/// removed; a link that somebody else made there is not followed.
fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            options.open(path)
        }
        file => file,
    };
    file?.write_all(text.as_bytes())
}

/// Replaces a file as a whole. Engines read only `*.json` and `*.yaml`, so that they
/// do not see the temporary one.
fn write(directory: &Path, path: &Path, text: &str) -> Result<(), DirectoryError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    builder
        .create(directory)
        .map_err(failed("create the directory", directory))?;
    let temporary = path.with_extension("tmp");
    let written = create(&temporary, text).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // A half-written file would stay behind.
        let _ = fs::remove_file(&temporary);
        failed("write", path)(error)
    })
}

#[cfg(test)]
mod tests;
