//! Finds the containers that still need an installed version or the wrapper runtime.
//!
//! The bundle of a container names the runtime that stops and deletes the container, in
//! `config.json` or, with containerd, in `runtime` or `options.json`. The default directories of
//! the engines are searched for bundles. Engines with other directories, and engines of other
//! users, are found by the processes that monitor their containers: the working directory of a
//! containerd shim is a bundle, and conmon has the runtime on its command line.
//!
//! Links to a bundle, or to a file in it, are not followed. The number and the size of users'
//! bundles are limited, so that no user can keep the installer busy.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use runtime_config::{Engine, Error, HANDLER, Place, Process, find_docker_config, find_processes};
use serde_json::Value;

use crate::host::Host;

/// The files of a bundle that name the container's runtime.
const RUNTIME_FILES: [&str; 2] = ["runtime", "options.json"];
/// The files of a bundle that may name an installed version.
const ALL_FILES: [&str; 3] = ["config.json", "runtime", "options.json"];

/// The maximum number of bundles that are read for the engines of one user.
const MAX_BUNDLES_OF_USER: usize = 256;
/// The maximum size, in bytes, of a file in a user's bundle that is read.
const MAX_FILE_SIZE_OF_USER: i64 = 256 << 10;

/// Returns the installed versions that the bundles of containers name.
pub fn find_used_versions(host: &Host) -> Result<BTreeSet<String>, Error> {
    let prefix = format!("{}/", host.programs().display());
    let mut found = BTreeSet::new();
    for bundle in find_bundles(host, &find_monitors(host))? {
        for text in ALL_FILES.iter().filter_map(|file| bundle.read_file(file)) {
            let names = text
                .split(&prefix)
                .skip(1)
                .filter_map(|rest| rest.split(['/', '"']).next().map(str::to_owned));
            found.extend(names);
        }
    }
    Ok(found)
}

/// Returns the ids of the containers that only the wrapper runtime can stop.
pub fn find_wrapped_containers(host: &Host) -> Result<BTreeSet<String>, Error> {
    let prefix = format!("{}/", host.programs().display());
    let running = find_monitors(host);
    let watched = running
        .iter()
        .filter_map(|process| find_conmon_container(host, process));
    let bundles = find_bundles(host, &running)?;
    let named = bundles.iter().filter(|bundle| {
        let mut texts = RUNTIME_FILES
            .iter()
            .filter_map(|file| bundle.read_file(file));
        texts.any(|text| text.contains(&prefix))
    });
    Ok(named.map(Bundle::id).chain(watched).collect())
}

/// Returns the names of the containers that Docker would start with the wrapper runtime.
pub fn find_docker_containers(host: &Host) -> Vec<String> {
    let json =
        |path: &Path| -> Option<Value> { serde_json::from_str(&host.read(path).ok()??).ok() };
    let daemon = json(&find_docker_config(host)).unwrap_or_default();
    let data = daemon["data-root"].as_str().unwrap_or("/var/lib/docker");
    let containers = Path::new(data).join("containers");
    let own_runtimes: Vec<&str> = daemon["runtimes"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, entry)| entry["path"].as_str().map(Path::new) == Some(&host.runtime()))
        .map(|(name, _)| name.as_str())
        .collect();
    let name = |id: &OsString| {
        let container = containers.join(id);
        let config = json(&container.join("hostconfig.json"))?;
        let runtime = config["Runtime"].as_str().unwrap_or_default();
        let is_own = runtime == HANDLER || own_runtimes.contains(&runtime);
        is_own.then_some(())?;
        let config = json(&container.join("config.v2.json")).unwrap_or_default();
        let name = config["Name"].as_str().unwrap_or_default();
        Some(match name.trim_start_matches('/') {
            "" => id.to_string_lossy().into_owned(),
            name => name.to_owned(),
        })
    };
    let ids = host.list(&containers).unwrap_or_default();
    ids.iter().filter_map(name).collect()
}

const CONMON: &str = "conmon";
const SHIM: &str = "containerd-shim";

/// Returns the processes that monitor containers: containerd shims and conmon.
fn find_monitors(host: &Host) -> Vec<Process> {
    find_processes(host, |program| {
        program.starts_with(CONMON) || program.starts_with(SHIM)
    })
}

/// Returns the id of the container that a conmon process monitors, if the container has the
/// wrapper runtime.
fn find_conmon_container(host: &Host, process: &Process) -> Option<String> {
    let runtime = process.option(&["-r", "--runtime"])?;
    if !process.program.starts_with(CONMON) || !Path::new(runtime).starts_with(host.programs()) {
        return None;
    }
    let id = process.option(&["-c", "--cid"]).unwrap_or("?");
    Some(match process.uid {
        0 => id.to_owned(),
        uid => format!("{id} (process {} of user {uid})", process.pid),
    })
}

/// A path where a bundle is expected. It need not be a directory.
struct Bundle {
    dir: Place,
    is_of_user: bool,
}

impl Bundle {
    fn id(&self) -> String {
        let above = self.dir.parent();
        let name = match &above {
            // The bundles of podman and CRI-O are named `ID/userdata`.
            Some(above) if self.dir.name() == "userdata" => above.name(),
            _ => self.dir.name(),
        };
        name.to_string_lossy().into_owned()
    }

    /// Reads a file of the bundle. Returns `None` if the file does not exist, for example because
    /// the container has just ended.
    fn read_file(&self, file: &str) -> Option<String> {
        let file = self.dir.child(file).ok()?;
        let is_small = || Some(file.stat().ok()??.st_size <= MAX_FILE_SIZE_OF_USER);
        if self.is_of_user && !is_small()? {
            return None;
        }
        file.read().ok()?
    }
}

fn find_bundles(host: &Host, running: &[Process]) -> Result<Vec<Bundle>, Error> {
    let mut all = Vec::new();
    for pattern in Engine::ALL.iter().flat_map(|engine| engine.facts().bundles) {
        let dirs = expand_pattern(host, pattern)?;
        all.extend(dirs.iter().filter_map(|dir| host.reach(dir)).map(|dir| {
            let is_of_user = false;
            Bundle { dir, is_of_user }
        }));
    }
    // Shims with the same parent directory lead to the same bundles, which are read once.
    let mut seen = BTreeSet::new();
    let mut of_users = BTreeMap::<u32, usize>::new();
    for shim in running.iter().filter(|one| one.program.starts_with(SHIM)) {
        let Some(above) = shim.above_working_dir(host) else {
            continue;
        };
        let top = above.stat(Path::new("/"));
        if !seen.insert(top.map(|stat| (stat.st_dev, stat.st_ino))) {
            continue;
        }
        let is_of_user = shim.uid != 0;
        let count = of_users.entry(shim.uid).or_default();
        let limit = if is_of_user {
            MAX_BUNDLES_OF_USER - *count
        } else {
            usize::MAX
        };
        let names = above
            .reach(Path::new("/"))
            .and_then(|place| place.first_names(limit).ok())
            .unwrap_or_default();
        *count += names.len();
        let dirs = names.iter().filter_map(|name| above.reach(Path::new(name)));
        all.extend(dirs.map(|dir| Bundle { dir, is_of_user }));
    }
    Ok(all)
}

/// Returns the directories that match a pattern. A component `*` matches any name.
fn expand_pattern(host: &Host, pattern: &str) -> Result<Vec<PathBuf>, Error> {
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
