//! Finds the CDI specifications that containers on this node still need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::name::ResourceName;
use injection_plan::cdi::SpecificationOwner;
use injection_plan::cdi::directory::specification_file;
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;

use crate::pod_cgroups::PodCgroups;

/// The kubelet checkpoint with its allocations, and the cgroups of running pods.
#[derive(Debug, Clone)]
pub(crate) struct PodAllocations {
    checkpoint: PathBuf,
    cgroups: PodCgroups,
}

impl PodAllocations {
    /// Takes the path of the kubelet checkpoint and the host's root directory.
    pub(crate) fn new(checkpoint: PathBuf, root: &Path) -> Self {
        PodAllocations {
            checkpoint,
            cgroups: PodCgroups::new(root),
        }
    }

    /// Returns the names of the files that describe devices of pods. The kubelet removes an ended
    /// pod from its checkpoint only at its next allocation, so a pod without a cgroup does not
    /// count. Returns `None` if the checkpoint cannot be read, so that any file may be needed.
    pub(super) fn read_used_files(&self) -> Option<BTreeSet<String>> {
        let checkpoint = match KubeletCheckpoint::read(&self.checkpoint) {
            Ok(checkpoint) => checkpoint,
            Err(error) if error.is_absent() => return Some(BTreeSet::new()),
            Err(_) => return None,
        };
        let allocations = checkpoint.allocations();
        let alive = allocations.filter(|one| self.cgroups.may_exist(one.pod_uid));
        let files = alive.filter_map(|one| {
            let resource = ResourceName::try_from(one.resource.to_owned()).ok()?;
            Some(specification_file(
                &SpecificationOwner::Plugin.kind(&resource),
            ))
        });
        Some(files.collect())
    }
}
