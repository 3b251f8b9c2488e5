//! Finds the CDI specifications that containers on this node still need.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use device_class::name::ResourceName;
use injection_plan::cdi::SpecificationOwner;
use injection_plan::cdi::directory::specification_file;
use injection_plan::kubelet_checkpoint::KubeletCheckpoint;

use crate::pod_cgroups::PodCgroups;

/// Finds the devices of running pods: the kubelet checkpoint lists the allocations, and a pod runs
/// only while it has a cgroup.
#[derive(Debug, Clone)]
pub(crate) struct PodAllocations {
    checkpoint_path: PathBuf,
    cgroups: PodCgroups,
}

impl PodAllocations {
    pub(crate) fn new(checkpoint_path: PathBuf, host_root: &Path) -> Self {
        PodAllocations {
            checkpoint_path,
            cgroups: PodCgroups::new(host_root),
        }
    }

    /// Returns the names of the CDI specification files that describe devices of running pods. A
    /// pod without a cgroup is ignored, because an ended pod stays in the checkpoint until the
    /// kubelet's next allocation. Returns `None` if the checkpoint cannot be read, so that the
    /// caller keeps all files.
    pub(super) fn read_used_files(&self) -> Option<BTreeSet<String>> {
        let checkpoint = match KubeletCheckpoint::read(&self.checkpoint_path) {
            Ok(checkpoint) => checkpoint,
            Err(error) if error.is_absent() => return Some(BTreeSet::new()),
            Err(_) => return None,
        };
        let allocations = checkpoint.allocations();
        let running_allocations =
            allocations.filter(|allocation| self.cgroups.may_pod_exist(allocation.pod_uid));
        let files = running_allocations.filter_map(|allocation| {
            let resource = ResourceName::try_from(allocation.resource.to_owned()).ok()?;
            Some(specification_file(
                &SpecificationOwner::Plugin.kind(&resource),
            ))
        });
        Some(files.collect())
    }
}
