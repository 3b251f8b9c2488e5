//! Finds the pods that run on the node by their cgroups.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

/// The maximum depth of the search for the cgroups of pods. If systemd manages the cgroups and the
/// kubelet has its own root cgroup, the cgroups of pods are at the fifth level.
const MAX_SEARCH_DEPTH: usize = 8;

/// The pod in which the driver runs, as the options `--pod-name` and `--pod-uid` name it.
#[derive(Debug, Clone)]
pub struct DriverPod {
    pub name: String,
    pub uid: String,
}

/// Finds the pods of this node by their cgroups on the host.
#[derive(Debug, Clone)]
pub(crate) struct PodCgroupFinder {
    cgroup_root: PathBuf,
    /// The uid of the pod in which the driver runs. A list of pods is complete only if it contains
    /// this pod.
    driver_pod_uid: Option<PodUid>,
}

impl PodCgroupFinder {
    /// `host_root` is the path at which this process sees the host's root directory.
    pub(crate) fn new(host_root: &Path, driver_pod: Option<&DriverPod>) -> Self {
        Self {
            cgroup_root: host_root.join("sys/fs/cgroup"),
            driver_pod_uid: driver_pod.map(|pod| PodUid::new(&pod.uid)),
        }
    }

    /// Returns the pods that have a cgroup. Returns `None` if the driver's own pod is not among
    /// them, because then other pods may also be missing from the list.
    pub(crate) async fn list_pods(&self) -> Option<BTreeSet<PodUid>> {
        let driver_pod_uid = self.driver_pod_uid.as_ref()?;
        let cgroup_root = self.cgroup_root.clone();
        let find_pods = move || {
            let mut pods = BTreeSet::new();
            add_descendant_pods(&cgroup_root, MAX_SEARCH_DEPTH, &mut pods);
            pods
        };
        let pods = spawn_blocking(find_pods).await.ok()?;
        pods.contains(driver_pod_uid).then_some(pods)
    }

    pub(crate) fn cgroup_root(&self) -> &Path {
        &self.cgroup_root
    }
}

/// The uid of a pod. Each `-` is replaced by `_`, as in the names of systemd slices, so that uids
/// from all sources can be compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodUid(String);

impl PodUid {
    pub(crate) fn new(uid: &str) -> Self {
        Self(uid.replace('-', "_"))
    }

    /// Returns the uid of the pod whose cgroup has this name: `podUID`, or with systemd
    /// `…-podUID.slice` (Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go).
    fn from_cgroup_name(name: &str) -> Option<Self> {
        match name.strip_suffix(".slice") {
            Some(slice) => slice.rsplit_once("-pod").map(|(_, uid)| Self::new(uid)),
            None => name.strip_prefix("pod").map(Self::new),
        }
    }
}

/// Adds the pods whose cgroups are in `directory` or below it, at most `max_depth` levels deep.
fn add_descendant_pods(directory: &Path, max_depth: usize, pods: &mut BTreeSet<PodUid>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|file_type| file_type.is_dir()))
    {
        match entry
            .file_name()
            .to_str()
            .and_then(PodUid::from_cgroup_name)
        {
            Some(pod) => _ = pods.insert(pod),
            None if max_depth > 1 => add_descendant_pods(&entry.path(), max_depth - 1, pods),
            None => {}
        }
    }
}
