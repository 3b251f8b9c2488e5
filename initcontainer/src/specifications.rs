//! Finds the CDI specifications that Boathook has written on a host.

use std::path::{Path, PathBuf};

use anyhow::Result;
use injection_plan::cdi::directory::is_generated;

use crate::host::Host;

/// The directories that contain CDI specifications. Each entry lists alternative paths of one
/// directory: on a host `/var/run` is a link to `/run`, but in a container only one of the two may
/// be mounted.
const SPECIFICATION_DIRS: [&[&str]; 2] = [&["/run/cdi", "/var/run/cdi"], &["/etc/cdi"]];

/// The prefix of the file names of the CDI specifications that `boathook-dra` writes for claims.
const CLAIM_FILE_PREFIX: &str = "boathook.dev-claim-";

/// Returns the sorted paths of the CDI specifications that `boathook-plugin`, `boathook-dra` and
/// `boathook cdi generate` have written.
pub(crate) fn find_specifications(host: &Host) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for alternative_paths in SPECIFICATION_DIRS {
        let Some(directory) = alternative_paths
            .iter()
            .map(Path::new)
            .find(|path| host.is_dir(path))
        else {
            continue;
        };
        for name in host.list(directory)? {
            let path = directory.join(&name);
            let name = name.to_string_lossy();
            // A file that cannot be read as a text belongs to another program, so it is skipped.
            let Some(text) = host.read(&path).ok().flatten() else {
                continue;
            };
            if name.starts_with(CLAIM_FILE_PREFIX) || is_generated(&name, &text) {
                paths.push(path);
            }
        }
    }
    paths.sort();
    Ok(paths)
}
