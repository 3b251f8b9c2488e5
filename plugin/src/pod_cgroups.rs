//! Finds out from cgroups whether a pod runs. The plugin has its own PID namespace and cannot see
//! the processes of other pods, but the process counts in cgroup files do not depend on a
//! namespace.

use std::fs;
use std::path::{Path, PathBuf};

use rooted_path::read_regular_text;

/// The maximum size, in bytes, of a cgroup file that is read.
const MAX_FILE_SIZE: u64 = 4096;

/// The cgroup hierarchies that are searched for pods: the one of cgroup v2, and one of cgroup v1.
const HIERARCHIES: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/pids"];

/// The maximum number of directories between a hierarchy and the cgroup of a pod: `kubepods`, the
/// quality of service class, and a parent in some installations of Kubernetes.
const MAX_DEPTH: usize = 3;

/// The cgroups of the pods on a host.
#[derive(Debug, Clone)]
pub(crate) struct PodCgroups {
    hierarchies: Vec<PathBuf>,
}

impl PodCgroups {
    pub(crate) fn new(root: &Path) -> Self {
        let hierarchies = HIERARCHIES.map(|hierarchy| root.join(hierarchy));
        PodCgroups {
            hierarchies: hierarchies.into(),
        }
    }

    /// Returns whether a container of the pod runs besides the sandbox. Returns false if no cgroup
    /// of the pod is found. The cgroup is named after the pod's uid, with `_` for `-` if systemd
    /// manages it.
    pub(crate) fn has_running_container(&self, pod_uid: &str) -> bool {
        let found = self.find_pod(pod_uid);
        found.into_iter().any(|pod| has_container(&pod))
    }

    /// Returns false only if the pod has certainly ended: the host has cgroups of pods, and none
    /// is this pod's.
    pub(crate) fn may_exist(&self, pod_uid: &str) -> bool {
        // A kubelet with its own root cgroup has them below any directory. The cgroup of the
        // kubelet's own service says nothing about pods.
        let has_pods_somewhere = |hierarchy: &PathBuf| {
            let mut below = subdirectories(hierarchy).into_iter();
            has_pod_cgroups(hierarchy) || below.any(|directory| has_kubepods(&directory))
        };
        !self.hierarchies.iter().any(has_pods_somewhere) || !self.find_pod(pod_uid).is_empty()
    }

    /// Returns the cgroup of a pod in each hierarchy.
    fn find_pod(&self, pod_uid: &str) -> Vec<PathBuf> {
        let is_uid = |c: char| c.is_ascii_hexdigit() || c == '-';
        if pod_uid.len() < 32 || pod_uid.len() > 36 || !pod_uid.chars().all(is_uid) {
            return Vec::new();
        }
        let names = [
            format!("pod{pod_uid}"),
            format!("pod{}.slice", pod_uid.replace('-', "_")),
        ];
        let hierarchies = self.hierarchies.iter();
        let found = hierarchies.filter_map(|path| {
            // A kubelet with its own root cgroup has them below any directory. On cgroup v1 the
            // first directory is not a hierarchy.
            let is_hierarchy = path.join("cgroup.procs").exists();
            let searches_all = is_hierarchy && !has_pod_cgroups(path);
            find_cgroup(path, &names, searches_all, MAX_DEPTH)
        });
        found.collect()
    }
}

/// Returns whether the kubelet's cgroups are directly in this hierarchy.
fn has_pod_cgroups(hierarchy: &Path) -> bool {
    let children = subdirectories(hierarchy);
    let mut names = children.iter().map(|child| file_name(child));
    names.any(|name| name.contains("kubepods") || name.starts_with("kubelet"))
}

/// Returns whether a directory has the cgroup of all pods (`kubepods`, `kubepods.slice`).
fn has_kubepods(directory: &Path) -> bool {
    let children = subdirectories(directory);
    let mut names = children.iter().map(|child| file_name(child));
    names.any(|name| name.contains("kubepods"))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Searches for the cgroup of a pod below `directory`. With `searches_all`, directories of any
/// name are searched.
fn find_cgroup(
    directory: &Path,
    names: &[String; 2],
    searches_all: bool,
    depth: usize,
) -> Option<PathBuf> {
    let children = subdirectories(directory);
    let is_pod = |path: &&PathBuf| {
        let name = file_name(path);
        names.iter().any(|wanted| name.ends_with(wanted.as_str()))
    };
    if let Some(pod) = children.iter().find(is_pod) {
        return Some(pod.clone());
    }
    let may_have_pods = |path: &&PathBuf| {
        let name = file_name(path);
        let is_pod = name.starts_with("pod") || name.contains("-pod");
        let is_class_of_service = ["burstable", "besteffort"].contains(&name.as_str());
        !is_pod && (searches_all || name.contains("kube") || is_class_of_service)
    };
    let depth = depth.checked_sub(1)?;
    let parents = children.iter().filter(may_have_pods);
    parents
        .filter_map(|parent| find_cgroup(parent, names, searches_all, depth))
        .next()
}

/// Returns whether a container of a pod has a process besides the sandbox. The sandbox of CRI-O
/// has none by default (`drop_infra_ctr`).
fn has_container(pod: &Path) -> bool {
    let has_process = |container: &PathBuf| {
        let read = |name: &str| {
            read_regular_text(&container.join(name), MAX_FILE_SIZE).unwrap_or_default()
        };
        let events = read("cgroup.events");
        let tasks: u64 = read("pids.current").trim().parse().unwrap_or(0);
        events.lines().any(|line| line == "populated 1") || tasks > 0
    };
    let mut running = subdirectories(pod);
    // CRI-O's container monitor has its own cgroup, which is not a container.
    running.retain(|path| has_process(path) && !file_name(path).starts_with("crio-conmon-"));
    let is_of_crio = |path: &PathBuf| file_name(path).starts_with("crio-");
    running.len() > 1 || running.iter().any(is_of_crio)
}

fn subdirectories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_runs_if_a_container_has_a_process_besides_the_sandbox() {
        let cases: [(&[(&str, u8)], bool); 8] = [
            (&[], false),
            (&[("cri-containerd-a.scope", 1)], false),
            (
                &[("cri-containerd-a.scope", 1), ("cri-containerd-b.scope", 0)],
                false,
            ),
            (
                &[("cri-containerd-a.scope", 1), ("cri-containerd-b.scope", 1)],
                true,
            ),
            (&[("crio-a.scope", 1)], true),
            (&[("crio-a", 1), ("crio-conmon-a", 1)], true),
            (&[("crio-a.scope", 0), ("crio-conmon-a.scope", 1)], false),
            (&[("crio-conmon-a", 1), ("crio-conmon-b", 1)], false),
        ];
        let uid = "0f3f3a0e-5f0e-4a53-9f55-3c0a2f3f7a11";
        for (cgroups, wanted) in cases {
            let root = tempfile::tempdir().unwrap();
            let pod = root.path().join("sys/fs/cgroup/kubepods");
            let pod = pod.join(format!("pod{uid}"));
            for (name, populated) in cgroups {
                let cgroup = pod.join(name);
                fs::create_dir_all(&cgroup).unwrap();
                let events = format!("populated {populated}\n");
                fs::write(cgroup.join("cgroup.events"), events).unwrap();
            }
            let pods = PodCgroups::new(root.path());
            assert_eq!(pods.has_running_container(uid), wanted, "{cgroups:?}");
        }
    }

    #[test]
    fn a_pod_has_ended_if_others_have_cgroups_and_it_has_none() {
        let [uid, other] = [
            "0f3f3a0e-5f0e-4a53-9f55-3c0a2f3f7a11",
            "7d1c52c4-1c1f-4f0e-8f0e-2f1f0a5b9c22",
        ];
        for (hierarchy, parent) in [
            ("sys/fs/cgroup", "kubepods"),
            ("sys/fs/cgroup/pids", "kubepods/burstable"),
            ("sys/fs/cgroup", "of-the-kubelet/kubepods/burstable"),
            ("sys/fs/cgroup/pids", "of-the-kubelet/kubepods"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let hierarchy = root.path().join(hierarchy);
            fs::create_dir_all(&hierarchy).unwrap();
            fs::write(hierarchy.join("cgroup.procs"), "").unwrap();
            fs::create_dir_all(hierarchy.join("system.slice/kubelet.service")).unwrap();
            let pods = PodCgroups::new(root.path());
            assert!(pods.may_exist(uid), "{parent}: no pod has a cgroup");
            let parent = hierarchy.join(parent);
            fs::create_dir_all(parent.join(format!("pod{other}"))).unwrap();
            assert!(!pods.may_exist(uid), "{}", parent.display());
            fs::create_dir(parent.join(format!("pod{uid}"))).unwrap();
            assert!(pods.may_exist(uid), "{}", parent.display());
        }
    }
}
