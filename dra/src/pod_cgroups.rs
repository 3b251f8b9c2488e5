//! Finds the pods that run on the node by their cgroups.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

/// The maximum depth at which cgroups of pods are searched. Five levels occur with systemd and a
/// kubelet that has its own root cgroup.
const MAX_DEPTH: usize = 8;

/// The driver's own pod.
#[derive(Debug, Clone)]
pub struct OwnPod {
    pub name: String,
    pub uid: String,
}

/// The cgroups of the pods of this node.
#[derive(Debug, Clone)]
pub(crate) struct PodCgroups {
    root: PathBuf,
    /// The driver's own pod. Without it no list of pods counts as complete.
    own_pod: Option<PodUid>,
}

impl PodCgroups {
    /// Takes the path at which this process sees the host's root directory, and the driver's own
    /// pod.
    pub(crate) fn new(host: &Path, own_pod: Option<&OwnPod>) -> Self {
        Self {
            root: host.join("sys/fs/cgroup"),
            own_pod: own_pod.map(|pod| PodUid::new(&pod.uid)),
        }
    }

    /// Returns the pods that have a cgroup. Returns `None` if the driver's own pod is not found,
    /// because other pods may be missing then as well.
    pub(crate) async fn list_pods(&self) -> Option<BTreeSet<PodUid>> {
        let own_pod = self.own_pod.as_ref()?;
        let root = self.root.clone();
        let search = move || {
            let mut pods = BTreeSet::new();
            add_pods_below(&root, MAX_DEPTH, &mut pods);
            pods
        };
        let pods = spawn_blocking(search).await.ok()?;
        pods.contains(own_pod).then_some(pods)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

/// The uid of a pod, with `_` for each `-` as in the names of systemd slices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PodUid(String);

impl PodUid {
    pub(crate) fn new(uid: &str) -> Self {
        Self(uid.replace('-', "_"))
    }

    /// Returns the uid of the pod to which a cgroup belongs. The cgroup is named `podUID` or
    /// `…-podUID.slice` (Kubernetes, pkg/kubelet/cm/cgroup_manager_linux.go).
    fn from_cgroup_name(name: &str) -> Option<Self> {
        match name.strip_suffix(".slice") {
            Some(slice) => slice.rsplit_once("-pod").map(|(_, uid)| Self::new(uid)),
            None => name.strip_prefix("pod").map(Self::new),
        }
    }
}

/// Adds the pods that have a cgroup in `directory` or, up to `depth`, below it.
fn add_pods_below(directory: &Path, depth: usize, pods: &mut BTreeSet<PodUid>) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|file_type| file_type.is_dir()))
    {
        match entry
            .file_name()
            .to_str()
            .and_then(PodUid::from_cgroup_name)
        {
            Some(pod) => _ = pods.insert(pod),
            None if depth > 1 => add_pods_below(&entry.path(), depth - 1, pods),
            None => {}
        }
    }
}
