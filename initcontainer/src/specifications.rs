//! The CDI specifications of a host that Boathook has written.

use std::path::{Path, PathBuf};

use anyhow::Result;
use injection_plan::cdi::directory::is_generated;
use runtime_config::HostRoot;

/// Where engines read specifications. `/var/run` is a link to `/run`, except where it is
/// mounted into a container.
const DIRECTORIES: [&[&str]; 2] = [&["/run/cdi", "/var/run/cdi"], &["/etc/cdi"]];

/// How names of specifications of claims begin.
const OF_CLAIMS: &str = "boathook.dev-claim-";

/// Boathook's specifications: those of `boathook-plugin`, `boathook-dra` and `boathook cdi
/// generate`.
pub(crate) fn find(host: &HostRoot) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for names in DIRECTORIES {
        let Some(directory) = names.iter().map(Path::new).find(|path| host.is_dir(path)) else {
            continue;
        };
        for name in host.list(directory)? {
            let path = directory.join(&name);
            let name = name.to_string_lossy();
            let is_ours = |text: &String| name.starts_with(OF_CLAIMS) || is_generated(&name, text);
            // A file that cannot be read is another program's.
            if host
                .read(&path)
                .ok()
                .flatten()
                .as_ref()
                .is_some_and(is_ours)
            {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
