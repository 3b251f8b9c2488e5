//! Which containers still need what is installed.
//!
//! A container's bundle (`config.json` and, of containerd, `runtime` or
//! `options.json`) names the program that stops and deletes it. Bundles are
//! found in the engines' default directories and, of engines that were given
//! other ones and of other users' engines, by the processes that watch over a
//! container: a containerd shim works in a bundle beside those of its other
//! containers; conmon has the runtime on its command line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use runtime_config::{Engine, Error, HostRoot, Process, processes};

use crate::layout::ROOT;

/// The files that name the runtime which must stop the container.
const RUNTIME_FILES: [&str; 2] = ["runtime", "options.json"];
/// The files that may name a version.
const ALL_FILES: [&str; 3] = ["config.json", "runtime", "options.json"];

/// The versions that a container's bundle names.
pub fn versions(host: &HostRoot) -> Result<BTreeSet<String>, Error> {
    let prefix = format!("{ROOT}/");
    let mut found = BTreeSet::new();
    for bundle in bundles(host, &processes(host))? {
        for text in ALL_FILES.iter().filter_map(|file| bundle.text(file)) {
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
pub fn wrapped(host: &HostRoot) -> Result<BTreeSet<String>, Error> {
    let prefix = format!("{ROOT}/");
    let running = processes(host);
    let watched = running.iter().filter_map(watched_by_conmon);
    let bundles = bundles(host, &running)?;
    let named = bundles.iter().filter(|bundle| {
        let mut texts = RUNTIME_FILES.iter().filter_map(|file| bundle.text(file));
        texts.any(|text| text.contains(&prefix))
    });
    Ok(named.map(Bundle::id).chain(watched).collect())
}

/// The container that a conmon runs by our runtime.
fn watched_by_conmon(process: &Process) -> Option<String> {
    let runtime = process.option(&["-r", "--runtime"])?;
    if !process.name.starts_with("conmon") || !Path::new(runtime).starts_with(ROOT) {
        return None;
    }
    let id = process.option(&["-c", "--cid"]).map(str::to_owned);
    Some(id.unwrap_or_else(|| format!("process {}", process.pid)))
}

/// A bundle: a directory under a root.
struct Bundle {
    root: HostRoot,
    dir: PathBuf,
}

impl Bundle {
    fn id(&self) -> String {
        let name = match self.dir.file_name() {
            // podman's and CRI-O's bundles are ID/userdata.
            Some(name) if name == "userdata" => self.dir.parent().and_then(Path::file_name),
            name => name,
        };
        name.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A file's text. One that is gone, because the container has just ended,
    /// names nothing.
    fn text(&self, file: &str) -> Option<String> {
        self.root.read(&self.dir.join(file)).ok()?
    }
}

fn bundles(host: &HostRoot, running: &[Process]) -> Result<Vec<Bundle>, Error> {
    let mut all = Vec::new();
    for pattern in Engine::ALL.iter().flat_map(|engine| engine.facts().bundles) {
        let dirs = matching(host, pattern)?.into_iter();
        all.extend(dirs.map(|dir| Bundle {
            root: host.clone(),
            dir,
        }));
    }
    let shims = running
        .iter()
        .filter(|process| process.name.starts_with("containerd-shim"));
    for root in shims.filter_map(|shim| shim.above_working_dir(host)) {
        let names = root.list(Path::new("/")).unwrap_or_default();
        all.extend(names.into_iter().map(|name| Bundle {
            root: root.clone(),
            dir: Path::new("/").join(name),
        }));
    }
    Ok(all)
}

/// The directories that a pattern with `*` for whole names means.
fn matching(host: &HostRoot, pattern: &str) -> Result<Vec<PathBuf>, Error> {
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
    Ok(found)
}
