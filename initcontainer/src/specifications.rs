//! Finds the CDI specifications that Boathook has written on a host.

use std::path::{Path, PathBuf};

use anyhow::Result;
use injection_plan::cdi::directory::is_generated;

use crate::host::Host;

/// The directories of CDI specifications, each with its alternative paths. On a host `/var/run` is
/// a link to `/run`, but a container may have mounted only one of the two.
const SPECIFICATION_DIRS: [&[&str]; 2] = [&["/run/cdi", "/var/run/cdi"], &["/etc/cdi"]];

/// The prefix of the file names of CDI specifications for DRA claims.
const CLAIM_FILE_PREFIX: &str = "boathook.dev-claim-";

/// Returns the paths of the specifications that `boathook-plugin`, `boathook-dra` and `boathook
/// cdi generate` wrote, sorted.
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
            // A file that cannot be read as a text is from another program than Boathook.
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
