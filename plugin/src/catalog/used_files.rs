//! Finds the CDI specifications of which containers on this node still have devices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::name::ResourceName;
use injection_plan::cdi::SpecificationOwner;
use injection_plan::cdi::directory::specification_file;
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;

use crate::pod_cgroups::PodCgroups;

/// The kubelet's record of allocations, and the pods that run.
#[derive(Debug, Clone)]
pub(crate) struct PodAllocations {
    checkpoint: PathBuf,
    cgroups: PodCgroups,
}

impl PodAllocations {
    /// The allocations of the kubelet with this checkpoint, on the host below `root`.
    pub(crate) fn new(checkpoint: PathBuf, root: &Path) -> Self {
        PodAllocations {
            checkpoint,
            cgroups: PodCgroups::new(root),
        }
    }

    /// Returns the names of the files that describe devices of pods. The kubelet removes a pod
    /// that has ended from its record only when it next allocates something, so that a pod
    /// without a cgroup does not count. Returns `None` if the record cannot be read: then any
    /// file may have such devices.
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
