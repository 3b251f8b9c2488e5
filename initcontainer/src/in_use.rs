//! Finds the containers that still need an installed version or the wrapper runtime.
//!
//! The bundle of a container names the runtime that stops and deletes the container. The name is in
//! `config.json` or, with containerd, in `runtime` or `options.json`. Bundles are searched in the
//! default directories of the engines. If an engine uses other directories or belongs to another
//! user, its bundles are found through the processes that monitor its containers: the working
//! directory of a containerd shim is a bundle, and the command line of conmon contains the runtime.
//!
//! Links to a bundle, or to a file in it, are not followed. The number and the size of users'
//! bundles are limited, so that no user can keep the installer busy.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use device_class::name::shorten_container_id;
use runtime_config::{
    Engine, Error, HostEntry, Process, RUNTIME_HANDLER_NAME, find_docker_config_path,
    find_processes,
};
use serde_json::Value;

use crate::host::Host;

/// The files of a bundle in which containerd names the container's runtime.
const BUNDLE_RUNTIME_FILES: [&str; 2] = ["runtime", "options.json"];
/// The files of a bundle that may contain the path of an installed version.
const BUNDLE_VERSION_FILES: [&str; 3] = ["config.json", "runtime", "options.json"];

/// The maximum number of bundles that are read for one user, who could otherwise keep the installer
/// busy. Further bundles are ignored.
const MAX_USER_BUNDLES: usize = 256;
/// The maximum size in bytes of a file in a user's bundle. A larger file is not read, so that no
/// user can exhaust the installer's memory.
const MAX_USER_FILE_BYTES: i64 = 256 << 10;

/// Returns the installed versions that running containers still need. The bundle of such a
/// container contains the path of the version, whose programs stop and delete the container.
pub fn find_used_versions(host: &Host) -> Result<BTreeSet<String>, Error> {
    let prefix = format!("{}/", host.programs_dir().display());
    let mut versions = BTreeSet::new();
    for bundle in find_bundles(host, &find_monitor_processes(host))? {
        for text in BUNDLE_VERSION_FILES
            .iter()
            .filter_map(|file| bundle.read_file(file))
        {
            let named_versions = text
                .split(&prefix)
                .skip(1)
                .filter_map(|tail| tail.split(['/', '"']).next().map(str::to_owned));
            versions.extend(named_versions);
        }
    }
    Ok(versions)
}

/// Returns the ids of the containers that only `boathook-runtime` can stop. Their bundles, or the
/// processes that monitor them, name it as their runtime.
pub fn find_containers_of_boathook_runtime(host: &Host) -> Result<BTreeSet<String>, Error> {
    let prefix = format!("{}/", host.programs_dir().display());
    let monitor_processes = find_monitor_processes(host);
    let conmon_container_ids = monitor_processes
        .iter()
        .filter_map(|process| find_conmon_container_id(host, process));
    let bundles = find_bundles(host, &monitor_processes)?;
    let bundles_with_runtime = bundles.iter().filter(|bundle| {
        let mut texts = BUNDLE_RUNTIME_FILES
            .iter()
            .filter_map(|file| bundle.read_file(file));
        texts.any(|text| text.contains(&prefix))
    });
    Ok(bundles_with_runtime
        .map(Bundle::container_id)
        .chain(conmon_container_ids)
        .collect())
}

/// Returns a label of each container for messages: Docker's name with the shortened id, as
/// `NAME (ID)`, or only the shortened id for a container of another engine.
pub fn describe_containers(host: &Host, ids: &BTreeSet<String>) -> BTreeSet<String> {
    let containers_dir = find_docker_containers_dir(host);
    let labels = ids.iter().map(|id| {
        let short_id = shorten_container_id(id);
        // The id may come from the command line of a user's conmon process, which can be any text.
        // An id with a slash would lead to another directory.
        let name = (!id.contains('/'))
            .then(|| read_docker_name(host, &containers_dir.join(id)))
            .flatten();
        match name {
            Some(name) => format!("{name} ({short_id})"),
            None => short_id,
        }
    });
    labels.collect()
}

fn find_docker_containers_dir(host: &Host) -> PathBuf {
    let daemon_config = read_json(host, &find_docker_config_path(host)).unwrap_or_default();
    let data_root = daemon_config["data-root"].as_str();
    Path::new(data_root.unwrap_or("/var/lib/docker")).join("containers")
}

fn read_docker_name(host: &Host, container_dir: &Path) -> Option<String> {
    let config = read_json(host, &container_dir.join("config.v2.json"))?;
    let name = config["Name"].as_str()?.trim_start_matches('/');
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

fn read_json(host: &Host, path: &Path) -> Option<Value> {
    serde_json::from_str(&host.read(path).ok()??).ok()
}

/// Returns the names of the Docker containers that are configured with `boathook-runtime`. Docker
/// cannot start them after that program is removed.
pub fn find_wrapped_docker_containers(host: &Host) -> Vec<String> {
    let daemon_config = read_json(host, &find_docker_config_path(host)).unwrap_or_default();
    let containers_dir = find_docker_containers_dir(host);
    let boathook_runtimes: Vec<&str> = daemon_config["runtimes"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, entry)| entry["path"].as_str().map(Path::new) == Some(&host.runtime_path()))
        .map(|(name, _)| name.as_str())
        .collect();
    let find_container_name = |id: &OsString| {
        let container_dir = containers_dir.join(id);
        let host_config = read_json(host, &container_dir.join("hostconfig.json"))?;
        let runtime = host_config["Runtime"].as_str().unwrap_or_default();
        let has_boathook_runtime =
            runtime == RUNTIME_HANDLER_NAME || boathook_runtimes.contains(&runtime);
        has_boathook_runtime.then_some(())?;
        let name = read_docker_name(host, &container_dir);
        Some(name.unwrap_or_else(|| shorten_container_id(&id.to_string_lossy())))
    };
    let ids = host.list(&containers_dir).unwrap_or_default();
    ids.iter().filter_map(find_container_name).collect()
}

const CONMON_PREFIX: &str = "conmon";
const SHIM_PREFIX: &str = "containerd-shim";

/// Returns the processes that monitor containers: the shims of containerd, and conmon, which podman
/// and CRI-O use.
fn find_monitor_processes(host: &Host) -> Vec<Process> {
    find_processes(host, |program| {
        program.starts_with(CONMON_PREFIX) || program.starts_with(SHIM_PREFIX)
    })
}

/// Returns the id of the container that a conmon process monitors, if that container uses
/// `boathook-runtime`. If another user than root started the container, the text also names the
/// process and the user.
fn find_conmon_container_id(host: &Host, process: &Process) -> Option<String> {
    let runtime_path = process.get_option_value(&["-r", "--runtime"])?;
    if !process.program_name.starts_with(CONMON_PREFIX)
        || !Path::new(runtime_path).starts_with(host.programs_dir())
    {
        return None;
    }
    let id = process.get_option_value(&["-c", "--cid"]).unwrap_or("?");
    Some(match process.uid {
        0 => id.to_owned(),
        uid => format!("{id} (process {} of user {uid})", process.pid),
    })
}

/// A path at which an engine may have the bundle of a container. The path need not exist.
struct Bundle {
    dir: HostEntry,
    /// Whether a user other than root runs the engine, so that the user can change the bundle.
    is_rootless: bool,
}

impl Bundle {
    /// Returns the id of the container. It is the name of the bundle's directory, or of the parent
    /// of that directory.
    fn container_id(&self) -> String {
        let parent = self.dir.parent();
        let name = match &parent {
            // The bundles of podman and CRI-O are named `ID/userdata`.
            Some(parent) if self.dir.name() == "userdata" => parent.name(),
            _ => self.dir.name(),
        };
        name.to_string_lossy().into_owned()
    }

    /// Reads a file of the bundle. Returns `None` if the file does not exist, for example because
    /// the container has just ended. Also returns `None` if a user owns the bundle and the file is
    /// too large.
    fn read_file(&self, name: &str) -> Option<String> {
        let entry = self.dir.child(name).ok()?;
        let is_small = || Some(entry.stat().ok()??.st_size <= MAX_USER_FILE_BYTES);
        if self.is_rootless && !is_small()? {
            return None;
        }
        entry.read().ok()?
    }
}

/// Finds the bundles in the engines' default directories, and in the parent directories of the
/// shims' working directories.
fn find_bundles(host: &Host, monitor_processes: &[Process]) -> Result<Vec<Bundle>, Error> {
    let mut bundles = Vec::new();
    for pattern in Engine::ALL
        .iter()
        .flat_map(|engine| engine.properties().bundle_patterns)
    {
        let dirs = expand_pattern(host, pattern)?;
        let entries = dirs.iter().filter_map(|dir| host.find_entry(dir));
        bundles.extend(entries.map(|dir| Bundle {
            dir,
            is_rootless: false,
        }));
    }
    // Shims with the same parent directory lead to the same bundles. These bundles are read only
    // once.
    let mut seen_parents = BTreeSet::new();
    let mut bundle_counts = BTreeMap::<u32, usize>::new();
    for shim in monitor_processes
        .iter()
        .filter(|process| process.program_name.starts_with(SHIM_PREFIX))
    {
        let Some(parent_dir) = shim.open_parent_of_working_dir(host) else {
            continue;
        };
        let parent_stat = parent_dir.stat(Path::new("/"));
        if !seen_parents.insert(parent_stat.map(|stat| (stat.st_dev, stat.st_ino))) {
            continue;
        }
        let is_rootless = shim.uid != 0;
        let bundle_count = bundle_counts.entry(shim.uid).or_default();
        let max_bundles = if is_rootless {
            MAX_USER_BUNDLES - *bundle_count
        } else {
            usize::MAX
        };
        let names = parent_dir
            .find_entry(Path::new("/"))
            .and_then(|entry| entry.list_limited(max_bundles).ok())
            .unwrap_or_default();
        *bundle_count += names.len();
        let dirs = names
            .iter()
            .filter_map(|name| parent_dir.find_entry(Path::new(name)));
        bundles.extend(dirs.map(|dir| Bundle { dir, is_rootless }));
    }
    Ok(bundles)
}

/// Returns the paths that match a pattern such as
/// `/run/containerd/io.containerd.runtime.v2.task/*/*`. A component `*` matches any name.
fn expand_pattern(host: &Host, pattern: &str) -> Result<Vec<PathBuf>, Error> {
    let mut paths = vec![PathBuf::from("/")];
    for component in pattern.split('/').skip(1) {
        let mut next_paths = Vec::new();
        for path in paths {
            if component == "*" {
                next_paths.extend(host.list(&path)?.iter().map(|entry| path.join(entry)));
            } else {
                next_paths.push(path.join(component));
            }
        }
        paths = next_paths;
    }
    Ok(paths)
}
