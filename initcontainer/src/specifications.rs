//! Finds the CDI specifications that Boathook has written on a host.

use std::path::{Path, PathBuf};

use anyhow::Result;
use injection_plan::cdi::directory::is_generated;
use runtime_config::HostRoot;

/// The directories in which engines read CDI specifications, with alternative paths of the same
/// directory. On a host `/var/run` is a link to `/run`; in a container only one of the two may be
/// mounted.
const DIRECTORIES: [&[&str]; 2] = [&["/run/cdi", "/var/run/cdi"], &["/etc/cdi"]];

/// The prefix of the file names of specifications for claims.
const CLAIM_PREFIX: &str = "boathook.dev-claim-";

/// Returns the paths of the specifications that `boathook-plugin`, `boathook-dra` and `boathook
/// cdi generate` have written, sorted.
pub(crate) fn find(host: &HostRoot) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for names in DIRECTORIES {
        let Some(directory) = names.iter().map(Path::new).find(|path| host.is_dir(path)) else {
            continue;
        };
        for name in host.list(directory)? {
            let path = directory.join(&name);
            let name = name.to_string_lossy();
            // A file that cannot be read was written by another program.
            let Some(text) = host.read(&path).ok().flatten() else {
                continue;
            };
            if name.starts_with(CLAIM_PREFIX) || is_generated(&name, &text) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
