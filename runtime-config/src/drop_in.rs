//! Reads drop-in directories. Engines read the files of such a directory in the order of their
//! names.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::HostRoot;
use crate::snapshot::Snapshot;

/// The first line of a TOML file that only Boathook writes. An undo without a record recognizes the
/// file by this line.
pub(crate) const DROP_IN_HEADER: &str = "# Written by boathook-init, which also removes it.\n";

/// Reads into the snapshot the files of a directory whose names end with `suffix`. Hidden files and
/// subdirectories are skipped.
pub(crate) fn read_drop_ins(
    host: &HostRoot,
    dir: &Path,
    suffix: &str,
    snapshot: &mut Snapshot,
) -> Result<(), Error> {
    for name in host.list(dir)? {
        let path = dir.join(&name);
        let is_hidden = name.as_encoded_bytes().starts_with(b".");
        if is_hidden || !name.as_encoded_bytes().ends_with(suffix.as_bytes()) {
            continue;
        }
        if !host.is_dir(&path) {
            snapshot.read(host, &path)?;
        }
    }
    Ok(())
}

/// Returns the files of a snapshot in the order in which an engine reads them: first `main_paths`,
/// then the files in the drop-in directory `dir`, sorted by name. Files that do not exist are left
/// out.
pub(crate) fn list_files_in_load_order(
    snapshot: &Snapshot,
    main_paths: &[&str],
    dir: impl AsRef<Path>,
) -> Vec<PathBuf> {
    let main_paths = main_paths
        .iter()
        .map(PathBuf::from)
        .filter(|path| snapshot.get_text(path).is_some());
    let drop_ins = snapshot
        .existing_files()
        .map(|(path, _)| path)
        .filter(|path| path.parent() == Some(dir.as_ref()));
    main_paths.chain(drop_ins.map(Path::to_path_buf)).collect()
}
