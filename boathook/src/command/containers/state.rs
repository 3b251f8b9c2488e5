//! Finds containers through the state files of OCI runtimes, such as /run/runc/ID/state.json.

use std::path::{Path, PathBuf};

use hook::oci::read_json;
use serde::Deserialize;

use super::Container;
use super::bundles::{find_matching_paths, read_directory};

/// The patterns of the directories in which runtimes store the state of a container by default. The
/// paths are relative to /run or /run/user/UID.
const STATE_DIR_PATTERNS: [&str; 5] = [
    "runc/*",
    "crun/*",
    "youki/*",
    "containerd/runc/*/*",
    "docker/runtime-*/*/*",
];

/// The fields that this module needs from the state files of runc (state.json), crun (status) and
/// youki (state.json).
#[derive(Deserialize)]
struct RuntimeState {
    #[serde(alias = "init_process_pid")]
    pid: Option<i32>,
    #[serde(
        rename = "started",
        alias = "init_process_start",
        alias = "process-start-time"
    )]
    start_time: Option<u64>,
    bundle: Option<PathBuf>,
    config: Option<RuncConfig>,
}

#[derive(Deserialize)]
struct RuncConfig {
    labels: Option<Vec<String>>,
}

/// Returns the containers in the default state directories of runtimes. If `state_root` is given,
/// also returns the containers in this state directory.
pub(super) fn find_containers(state_root: Option<PathBuf>, host_root: &Path) -> Vec<Container> {
    let host_run_dir = host_root.join("run");
    // The state directories of other users are not trusted, so only those of root and this user are
    // read.
    let user_run_dir =
        hook::process::host_uid().map(|uid| host_run_dir.join(format!("user/{uid}")));
    let run_dirs: Vec<PathBuf> = [host_run_dir].into_iter().chain(user_run_dir).collect();
    let find_state_dirs = |run_dir| {
        STATE_DIR_PATTERNS
            .iter()
            .flat_map(move |pattern| find_matching_paths(run_dir, pattern))
    };
    let root_state_dirs = state_root
        .iter()
        .flat_map(|state_root| read_directory(state_root));
    let directories = run_dirs
        .iter()
        .flat_map(|run_dir| find_state_dirs(run_dir))
        .chain(root_state_dirs);
    directories
        .filter_map(|path| read_container(&path))
        .collect()
}

fn read_container(state_dir: &Path) -> Option<Container> {
    let id = state_dir.file_name()?.to_str()?.to_owned();
    let mut state_file_names = ["state.json", "status"].iter();
    let state: RuntimeState = state_file_names.find_map(|name| read_json(&state_dir.join(name)))?;
    let labels = state.config.and_then(|config| config.labels);
    let labels = labels.unwrap_or_default();
    // runc converts each annotation to a label, and an image may set annotations. runc appends its
    // own labels at the end (libcontainer/specconv), so the last label `bundle=` is from runc.
    let mut labels = labels.iter().rev();
    let bundle_label = labels.find_map(|text| text.strip_prefix("bundle="));
    Some(Container {
        id,
        state_root: state_dir.parent().map(Path::to_owned),
        pid: state.pid.filter(|pid| *pid > 0),
        start_time: state.start_time,
        bundle: state.bundle.or_else(|| bundle_label.map(PathBuf::from)),
        ..Container::default()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Each line has a directory below /run, and the content of the state file in it.
    const STATES: &str = r#"
runc/a {"id":"a","init_process_pid":7,"config":{"labels":["x=y","bundle=/of/an/annotation","bundle=/b/a"]}}
crun/c {"pid":8,"bundle":"/b/c","cgroup-path":"/x"}
docker/runtime-boathook/moby/d {"init_process_pid":9,"config":{"labels":["bundle=/b/d"]}}
youki/y {"pid":null,"bundle":"/b/y"}
user/$USER/docker/runtime-runc/moby/u {"init_process_pid":5,"config":{"labels":["bundle=/b/u"]}}
user/$OTHER/runc/other {"init_process_pid":5,"config":{"labels":["bundle=/b/o"]}}
runc/broken {
"#;

    #[test]
    fn the_state_of_each_runtime_is_understood() {
        let host = tempfile::tempdir().unwrap();
        let user = hook::process::host_uid().unwrap();
        let states = STATES.trim().replace("$OTHER", &(user + 1).to_string());
        let states = states.replace("$USER", &user.to_string());
        for (path, text) in states.lines().map(|line| line.split_once(' ').unwrap()) {
            let name = if path == "crun/c" {
                "status"
            } else {
                "state.json"
            };
            let file = host.path().join("run").join(path).join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let mut containers: Vec<_> = find_containers(None, host.path())
            .into_iter()
            .map(|container| {
                (
                    container.id,
                    container.pid,
                    container.bundle.unwrap().display().to_string(),
                )
            })
            .collect();
        containers.sort();
        let expected = [
            ("a", Some(7), "/b/a"),
            ("c", Some(8), "/b/c"),
            ("d", Some(9), "/b/d"),
            ("u", Some(5), "/b/u"),
            ("y", None, "/b/y"),
        ];
        let expected = expected.map(|(id, pid, bundle)| (id.into(), pid, bundle.into()));
        assert_eq!(containers, expected);
    }
}
