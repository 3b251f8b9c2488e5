//! Parses the uid of a pod, which the API server, the kubelet and systemd write in three forms.

use std::fmt;
use std::path::{Component, Path};

/// The uid of a pod, as 32 lower-case hexadecimal digits. The API server writes uids with dashes.
/// The kubelet writes the uids of static pods without dashes. The names of systemd slices contain
/// underscores instead of dashes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodUid(String);

impl PodUid {
    /// Parses a uid with dashes, with underscores, or without separators. Returns `None` if it does
    /// not have 32 hexadecimal digits.
    pub(super) fn parse(uid_text: &str) -> Option<Self> {
        let digits: String = uid_text
            .chars()
            .filter(|c| !matches!(c, '-' | '_'))
            .collect();
        let is_uid = digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit());
        is_uid.then(|| PodUid(digits.to_ascii_lowercase()))
    }

    /// Returns the pod uid in a container's `linux.cgroupsPath`. The kubelet writes it as a path
    /// component `podUID`, or with the systemd cgroup driver as `…-podUID.slice` before the first
    /// colon. If the path contains several uids, returns the last one: the kubelet itself may run
    /// in a pod, whose uid comes first.
    pub(super) fn from_cgroups_path(cgroup_path: &str) -> Option<Self> {
        let cgroup_path = cgroup_path.split(':').next().unwrap_or_default();
        let mut uids = Path::new(cgroup_path).components().filter_map(|component| {
            let Component::Normal(name) = component else {
                return None;
            };
            let name = name.to_str()?;
            let stem = name.strip_suffix(".slice").unwrap_or(name);
            let (_, uid) = stem
                .rsplit_once("pod")
                .filter(|(before, _)| before.is_empty() || before.ends_with('-'))?;
            PodUid::parse(uid)
        });
        uids.next_back()
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_found_in_the_paths_of_both_cgroup_drivers() {
        for path in [
            "/kubepods/besteffort/pod7c7dd54d787e4d2a16bbd8e6ec744689/2f1de4e2",
            "/kubepods/pod7c7dd54d-787e-4d2a-16bb-d8e6ec744689/2f1de4e2",
            "kubepods-besteffort-pod7c7dd54d_787e_4d2a_16bb_d8e6ec744689.slice:cri-containerd:2f1d",
            "/kubelet/kubepods.slice/kubepods-pod7c7dd54d_787e_4d2a_16bb_d8e6ec744689.slice/x.scope",
            "/docker/2f1de4e2/kubelet/kubepods/burstable/pod7c7dd54d-787e-4d2a-16bb-d8e6ec744689/a",
            "/kubepods/pod00000000000000000000000000000000/a/kubelet.slice/kubelet-kubepods-pod7c7dd54d_787e_4d2a_16bb_d8e6ec744689.slice:cri-containerd:a",
        ] {
            let found = PodUid::from_cgroups_path(path).map(|uid| uid.to_string());
            let wanted = Some("7c7dd54d787e4d2a16bbd8e6ec744689");
            assert_eq!(found.as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn other_paths_have_none() {
        for path in [
            "machine.slice/machine-libpod_pod_7c7dd54d787e4d2a16bbd8e6ec744689.slice:libpod:a",
            "/docker/2f1de4e2",
            "system.slice:docker:2f1de4e2",
            "/kubepods/besteffort/podman",
            "",
        ] {
            let found = PodUid::from_cgroups_path(path).map(|uid| uid.to_string());
            assert_eq!(found, None, "{path}");
        }
    }
}
