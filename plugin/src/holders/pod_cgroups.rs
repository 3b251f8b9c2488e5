//! Finds out by cgroups whether a pod runs. The plugin has a PID namespace of its own, in which
//! it sees no processes of other pods, but the numbers in these files are the same everywhere.

use std::fs;
use std::path::{Path, PathBuf};

use rooted_path::read_regular_text;

/// The maximum size in bytes of the files that are read.
const MAX: u64 = 4096;

/// The hierarchies in which pods have their cgroups: that of cgroup v2, and one of cgroup v1.
const HIERARCHIES: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/pids"];

/// How many directories lie between a hierarchy and the cgroup of a pod: `kubepods`, the class
/// of service, and with some installations of Kubernetes a parent.
const DEPTH: usize = 3;

/// The cgroups of the pods on a host.
#[derive(Debug)]
pub(super) struct PodCgroups {
    hierarchies: Vec<PathBuf>,
}

impl PodCgroups {
    pub(super) fn new(root: &Path) -> Self {
        let hierarchies = HIERARCHIES.map(|hierarchy| root.join(hierarchy));
        PodCgroups {
            hierarchies: hierarchies.into(),
        }
    }

    /// Returns whether a container of the pod runs, in addition to the sandbox. The cgroup of a
    /// pod is named after its uid, with `_` for `-` if systemd manages it. If no cgroup of the pod
    /// is found, the answer is no.
    pub(super) fn has_running_container(&self, pod_uid: &str) -> bool {
        let is_uid = |c: char| c.is_ascii_hexdigit() || c == '-';
        if pod_uid.len() < 32 || pod_uid.len() > 36 || !pod_uid.chars().all(is_uid) {
            return false;
        }
        let names = [
            format!("pod{pod_uid}"),
            format!("pod{}.slice", pod_uid.replace('-', "_")),
        ];
        let found = self
            .hierarchies
            .iter()
            .filter_map(|hierarchy| find_pod(hierarchy, &names, DEPTH));
        found.map(|pod| count_running(&pod)).max().unwrap_or(0) > 1
    }
}

/// Searches for the cgroup of a pod below `directory`.
fn find_pod(directory: &Path, names: &[String; 2], depth: usize) -> Option<PathBuf> {
    let children = subdirectories(directory);
    let name_of = |path: &PathBuf| path.file_name().unwrap_or_default().to_owned();
    let is_pod = |path: &&PathBuf| {
        let name = name_of(path).to_string_lossy().into_owned();
        names.iter().any(|wanted| name.ends_with(wanted.as_str()))
    };
    if let Some(pod) = children.iter().find(is_pod) {
        return Some(pod.clone());
    }
    let may_have_pods = |path: &&PathBuf| {
        let name = name_of(path).to_string_lossy().into_owned();
        let is_pod = name.starts_with("pod") || name.contains("-pod");
        !is_pod && name.contains("kube") || ["burstable", "besteffort"].contains(&name.as_str())
    };
    let depth = depth.checked_sub(1)?;
    let parents = children.iter().filter(may_have_pods);
    parents
        .filter_map(|parent| find_pod(parent, names, depth))
        .next()
}

/// Counts the cgroups of a pod's containers that have a process.
fn count_running(pod: &Path) -> usize {
    let has_process = |container: &PathBuf| {
        let read = |name: &str| read_regular_text(&container.join(name), MAX).unwrap_or_default();
        let events = read("cgroup.events");
        let tasks: u64 = read("pids.current").trim().parse().unwrap_or(0);
        events.lines().any(|line| line == "populated 1") || tasks > 0
    };
    let containers = subdirectories(pod);
    containers.iter().filter(|path| has_process(path)).count()
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}
