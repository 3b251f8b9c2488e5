//! Reads drop-in directories. Engines read the files of such a directory sorted by name.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::HostRoot;
use crate::snapshot::Snapshot;

/// The first line of a TOML file that only Boathook writes.
pub(crate) const HEADER: &str = "# Written by boathook-init, which also removes it.\n";

/// Reads the files of a directory whose names end with `suffix` into the snapshot. Hidden files
/// and directories are skipped.
pub(crate) fn read_dir(
    host: &HostRoot,
    dir: &Path,
    suffix: &str,
    snapshot: &mut Snapshot,
) -> Result<(), Error> {
    for name in host.list(dir)? {
        let path = dir.join(&name);
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if hidden || !name.as_encoded_bytes().ends_with(suffix.as_bytes()) {
            continue;
        }
        if !host.is_dir(&path) {
            snapshot.read(host, &path)?;
        }
    }
    Ok(())
}

/// Returns the files of a snapshot in the order in which an engine reads them: the files of
/// `mains` in their order, and then the files of the directory `dir` sorted by name.
pub(crate) fn in_order(base: &Snapshot, mains: &[&str], dir: impl AsRef<Path>) -> Vec<PathBuf> {
    let mains = mains
        .iter()
        .map(PathBuf::from)
        .filter(|p| base.text(p).is_some());
    let drop_ins = base
        .present()
        .map(|(path, _)| path)
        .filter(|p| p.parent() == Some(dir.as_ref()));
    mains.chain(drop_ins.map(Path::to_path_buf)).collect()
}
