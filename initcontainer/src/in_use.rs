//! Which containers still need what is installed.
//!
//! An engine keeps a directory for each container that runs: the OCI bundle,
//! with `config.json` and, of containerd, `runtime` or `options.json`, which
//! name the program that stops and deletes the container. A version that is
//! named in one of these is in use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use runtime_config::{Engine, Error as HostError, HostRoot};

use crate::error::Error;
use crate::layout::ROOT;

/// The files that name the runtime which must stop the container.
const RUNTIME_FILES: [&str; 2] = ["runtime", "options.json"];
/// The files that may name a version.
const ALL_FILES: [&str; 3] = ["config.json", "runtime", "options.json"];

/// The versions that a container's bundle names.
///
/// # Errors
/// A directory of bundles can't be read.
pub fn versions(host: &HostRoot) -> Result<BTreeSet<String>, Error> {
    let prefix = format!("{ROOT}/");
    let mut found = BTreeSet::new();
    for bundle in bundles(host)? {
        for file in ALL_FILES {
            let text = text(host, &bundle.join(file));
            let names = text
                .split(&prefix)
                .skip(1)
                .filter_map(|rest| rest.split(['/', '"']).next().map(str::to_owned));
            found.extend(names);
        }
    }
    Ok(found)
}

/// The ids of the containers that only the wrapper runtime can stop.
///
/// # Errors
/// A directory of bundles can't be read.
pub fn wrapped(host: &HostRoot) -> Result<Vec<String>, Error> {
    let prefix = format!("{ROOT}/");
    let mut ids = Vec::new();
    for bundle in bundles(host)? {
        let named = |file: &&str| text(host, &bundle.join(file)).contains(&prefix);
        if RUNTIME_FILES.iter().any(named) {
            ids.push(
                bundle
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
    }
    Ok(ids)
}

fn bundles(host: &HostRoot) -> Result<Vec<PathBuf>, HostError> {
    let mut all = Vec::new();
    for pattern in Engine::ALL.iter().flat_map(|engine| engine.facts().bundles) {
        let mut found = vec![PathBuf::from("/")];
        for name in pattern.split('/').skip(1) {
            let mut next = Vec::new();
            for dir in found {
                if name == "*" {
                    next.extend(host.list(&dir)?.iter().map(|entry| dir.join(entry)));
                } else {
                    next.push(dir.join(name));
                }
            }
            found = next;
        }
        all.extend(found);
    }
    Ok(all)
}

/// The text of a container's file. One that is gone, for its container has
/// just ended, names nothing.
fn text(host: &HostRoot, path: &Path) -> String {
    host.read(path).ok().flatten().unwrap_or_default()
}
