//! Determines from cgroups whether a pod runs. The plugin has its own PID namespace and cannot see
//! the processes of other pods. However, the process counts in cgroup files do not depend on a
//! namespace.

use std::fs;
use std::path::{Path, PathBuf};

use host_files::rooted_path::read_regular_text;

/// The maximum number of bytes that are read from a cgroup file such as `pids.current`, which has
/// one line.
const MAX_CGROUP_FILE_BYTES: u64 = 4096;

/// The cgroup hierarchies that are searched for pods, relative to the host's root directory: the
/// hierarchy of cgroup v2, and that of the controller `pids` of cgroup v1.
const HIERARCHY_PATHS: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/pids"];

/// The maximum number of directories between the root of a hierarchy and the cgroup of a pod. These
/// are `kubepods`, the quality of service class, and in some installations of Kubernetes another
/// parent.
const MAX_SEARCH_DEPTH: usize = 3;

/// Finds the cgroups of pods in the cgroup hierarchies of a host.
#[derive(Debug, Clone)]
pub(crate) struct PodCgroups {
    hierarchies: Vec<PathBuf>,
}

impl PodCgroups {
    pub(crate) fn new(host_root: &Path) -> Self {
        let hierarchies = HIERARCHY_PATHS.map(|hierarchy| host_root.join(hierarchy));
        PodCgroups {
            hierarchies: hierarchies.into(),
        }
    }

    /// Returns whether the pod has a running container other than its sandbox. Returns false if the
    /// pod has no cgroup. The name of the cgroup contains the pod's uid, with `_` instead of `-` if
    /// systemd manages the cgroup.
    pub(crate) fn has_running_container(&self, pod_uid: &str) -> bool {
        let cgroups = self.find_pod_cgroups(pod_uid);
        cgroups.into_iter().any(|pod| has_populated_container(&pod))
    }

    /// Returns false only if the pod has certainly ended: the host has cgroups of pods, but none of
    /// this pod.
    pub(crate) fn may_pod_exist(&self, pod_uid: &str) -> bool {
        // If the kubelet has its own root cgroup (`--cgroup-root`), the pods' cgroups are below a
        // directory that can have any name. The cgroup of the kubelet's service does not count,
        // because it exists even without pods.
        let has_any_pods = |hierarchy: &PathBuf| {
            let mut children = list_subdirectories(hierarchy).into_iter();
            has_pod_cgroups(hierarchy) || children.any(|directory| has_kubepods(&directory))
        };
        !self.hierarchies.iter().any(has_any_pods) || !self.find_pod_cgroups(pod_uid).is_empty()
    }

    /// Returns the paths of a pod's cgroups: one path for each hierarchy in which the pod has a
    /// cgroup. Returns an empty list if `pod_uid` is not a uid.
    fn find_pod_cgroups(&self, pod_uid: &str) -> Vec<PathBuf> {
        let is_uid_char = |c: char| c.is_ascii_hexdigit() || c == '-';
        if pod_uid.len() < 32 || pod_uid.len() > 36 || !pod_uid.chars().all(is_uid_char) {
            return Vec::new();
        }
        let suffixes = [
            format!("pod{pod_uid}"),
            format!("pod{}.slice", pod_uid.replace('-', "_")),
        ];
        let hierarchies = self.hierarchies.iter();
        let cgroups = hierarchies.filter_map(|path| {
            // If the kubelet has its own root cgroup (`--cgroup-root`), the pods' cgroups are below
            // a directory that can have any name. On a host with cgroup v1, `sys/fs/cgroup` itself
            // is not a hierarchy.
            let is_hierarchy = path.join("cgroup.procs").exists();
            let searches_all_dirs = is_hierarchy && !has_pod_cgroups(path);
            find_cgroup(path, &suffixes, searches_all_dirs, MAX_SEARCH_DEPTH)
        });
        cgroups.collect()
    }
}

/// Returns whether the kubelet's cgroups are direct children of this hierarchy's root.
fn has_pod_cgroups(hierarchy: &Path) -> bool {
    let children = list_subdirectories(hierarchy);
    let mut names = children.iter().map(|child| file_name(child));
    names.any(|name| name.contains("kubepods") || name.starts_with("kubelet"))
}

/// Returns whether a directory contains the parent cgroup of all pods (`kubepods` or
/// `kubepods.slice`).
fn has_kubepods(directory: &Path) -> bool {
    let children = list_subdirectories(directory);
    let mut names = children.iter().map(|child| file_name(child));
    names.any(|name| name.contains("kubepods"))
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Searches `directory` for the cgroup of a pod whose name ends with one of `suffixes`, at most
/// `max_depth` levels deep. Only directories that may belong to the kubelet are entered, unless
/// `searches_all_dirs` is set.
fn find_cgroup(
    directory: &Path,
    suffixes: &[String; 2],
    searches_all_dirs: bool,
    max_depth: usize,
) -> Option<PathBuf> {
    let children = list_subdirectories(directory);
    let is_pod = |path: &&PathBuf| {
        let name = file_name(path);
        suffixes
            .iter()
            .any(|suffix| name.ends_with(suffix.as_str()))
    };
    if let Some(pod) = children.iter().find(is_pod) {
        return Some(pod.clone());
    }
    let may_have_pods = |path: &&PathBuf| {
        let name = file_name(path);
        let is_pod = name.starts_with("pod") || name.contains("-pod");
        let is_class_of_service = ["burstable", "besteffort"].contains(&name.as_str());
        !is_pod && (searches_all_dirs || name.contains("kube") || is_class_of_service)
    };
    let remaining_depth = max_depth.checked_sub(1)?;
    let parents = children.iter().filter(may_have_pods);
    parents
        .filter_map(|parent| find_cgroup(parent, suffixes, searches_all_dirs, remaining_depth))
        .next()
}

/// Returns whether a container of the pod, other than the sandbox, has a process. The sandbox also
/// has a process, except with CRI-O (`drop_infra_ctr`). Therefore another engine's pod needs two
/// cgroups with processes.
fn has_populated_container(pod_cgroup: &Path) -> bool {
    let has_process = |container: &PathBuf| {
        let read_file = |name: &str| {
            read_regular_text(&container.join(name), MAX_CGROUP_FILE_BYTES).unwrap_or_default()
        };
        let events = read_file("cgroup.events");
        let task_count: u64 = read_file("pids.current").trim().parse().unwrap_or(0);
        events.lines().any(|line| line == "populated 1") || task_count > 0
    };
    let mut populated_cgroups = list_subdirectories(pod_cgroup);
    // The cgroup of CRI-O's container monitor (conmon) is left out, because it does not belong to a
    // container.
    populated_cgroups
        .retain(|path| has_process(path) && !file_name(path).starts_with("crio-conmon-"));
    let is_crio_container = |path: &PathBuf| file_name(path).starts_with("crio-");
    populated_cgroups.len() > 1 || populated_cgroups.iter().any(is_crio_container)
}

fn list_subdirectories(directory: &Path) -> Vec<PathBuf> {
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
            assert!(pods.may_pod_exist(uid), "{parent}: no pod has a cgroup");
            let parent = hierarchy.join(parent);
            fs::create_dir_all(parent.join(format!("pod{other}"))).unwrap();
            assert!(!pods.may_pod_exist(uid), "{}", parent.display());
            fs::create_dir(parent.join(format!("pod{uid}"))).unwrap();
            assert!(pods.may_pod_exist(uid), "{}", parent.display());
        }
    }
}
