//! The engine of a node: containerd of Debian's next release, or CRI-O.

use std::fs;

use anyhow::{Context, Result};

use super::daemons::Daemon;

/// The engine that runs the containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Containerd,
    /// Its programs, crio and pinns, are beside Kubernetes'.
    CriO,
}

impl Engine {
    pub(super) fn daemon(self) -> Daemon {
        match self {
            Self::Containerd => Daemon::Containerd,
            Self::CriO => Daemon::CriO,
        }
    }

    /// Returns whether a privileged container can be started on this machine.
    pub(super) fn can_run_privileged_containers(self) -> Result<bool> {
        Ok(self == Self::Containerd || has_all_capabilities()?)
    }

    /// The program that waits for the end of one container. Its process outlives the engine.
    pub(super) fn shim_program(self) -> &'static str {
        match self {
            Self::Containerd => "containerd-shim-runc-v2",
            Self::CriO => "conmon",
        }
    }

    pub(super) fn socket(self) -> &'static str {
        match self {
            Self::Containerd => "/run/containerd/containerd.sock",
            Self::CriO => "/run/crio/crio.sock",
        }
    }

    /// The path and text of its file.
    pub(super) fn configuration(self) -> (&'static str, &'static str) {
        match self {
            Self::Containerd => ("/etc/containerd/config.toml", CONTAINERD),
            Self::CriO => ("/etc/crio/crio.conf", CRI_O),
        }
    }

    /// Returns the settings that it needs beside the file.
    pub(super) fn preparation(self) -> &'static str {
        match self {
            Self::Containerd => "",
            Self::CriO => RUNC_FOR_CRI_O,
        }
    }

    /// A script that prints the name of the image of sandboxes.
    pub(super) fn pause(self) -> &'static str {
        match self {
            Self::Containerd => {
                "containerd config default | sed -n \"s/^ *sandbox = '\\(.*\\)'/\\1/p\""
            }
            Self::CriO => "sed -n 's/^pause_image = \"\\(.*\\)\"/\\1/p' /etc/crio/crio.conf",
        }
    }

    /// A command that imports an archive as the image of this name.
    pub(super) fn import(self, archive: &str, name: &str) -> String {
        match self {
            Self::Containerd => format!("ctr --namespace k8s.io images import {archive}"),
            Self::CriO => format!("{SKOPEO} oci-archive:{archive} containers-storage:{name}"),
        }
    }

    /// A command that gives an image another name.
    pub(super) fn tag(self, image: &str, name: &str) -> String {
        match self {
            Self::Containerd => format!("ctr --namespace k8s.io images tag {image} {name}"),
            Self::CriO => {
                format!("{SKOPEO} containers-storage:{image} containers-storage:{name}")
            }
        }
    }
}

/// The reason why a privileged container cannot be started.
pub(super) const WITHOUT_ALL_CAPABILITIES: &str =
    "CRI-O gives a privileged container all capabilities, and this machine lacks some";

/// Returns whether this machine has all capabilities that its kernel knows. Many virtual machines and
/// containers of CI lack some.
fn has_all_capabilities() -> Result<bool> {
    let last: u32 = fs::read_to_string("/proc/sys/kernel/cap_last_cap")?
        .trim()
        .parse()?;
    let status = fs::read_to_string("/proc/self/status")?;
    let bounding_set = status
        .lines()
        .find_map(|line| line.strip_prefix("CapBnd:"))
        .context("a line CapBnd")?;
    let bounding_set = u64::from_str_radix(bounding_set.trim(), 16)?;
    Ok(bounding_set.count_ones() == last + 1)
}

const SKOPEO: &str = "skopeo --insecure-policy copy --quiet";

/// Lowering a score takes CAP_SYS_RESOURCE, which a test machine may lack.
const CONTAINERD: &str = "version = 3
imports = ['/etc/containerd/conf.d/*.toml']
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
";

const CRI_O: &str = r#"[crio.image]
pause_image = "docker.io/library/pause:1"
pause_command = ""
[crio.runtime]
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
default_runtime = "runc"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
[crio.metrics]
enable_metrics = false
"#;

/// As containerd's `restrict_oom_score_adj`, which CRI-O does not have, and its
/// `tolerate_missing_hugetlb_controller`. Manifests name images without a registry.
const RUNC_FOR_CRI_O: &str = r#"
    mkdir -p /etc/containers/registries.conf.d
    echo 'unqualified-search-registries = ["docker.io"]' >/etc/containers/registries.conf.d/test.conf
    mv /usr/sbin/runc /usr/sbin/runc.distribution
    cat >/usr/sbin/runc <<'END'
#!/bin/bash
previous=
for argument; do
    case $previous in
        --bundle | -b)
            sed --null-data --in-place 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/
                s/"hugepageLimits": *\[[^]]*\]/"hugepageLimits":[]/' "$argument/config.json"
            ;;
    esac
    previous=$argument
done
exec /usr/sbin/runc.distribution "$@"
END
    chmod 755 /usr/sbin/runc
"#;
