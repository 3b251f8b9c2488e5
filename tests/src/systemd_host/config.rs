//! The config.json of the container in which a host runs. It permits everything that a host may do,
//! and has namespaces of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{PROGRAMS, RELEASED};
use crate::binaries;
use crate::bundle::config::capabilities;
use crate::cgroup_view::CgroupView;

/// The capabilities that systemd and the runtimes need. CAP_SYS_RESOURCE is left out, because a
/// machine that is itself a container often lacks it.
const CAPABILITIES: &str = "AUDIT_WRITE BPF CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID \
    IPC_LOCK KILL MKNOD NET_ADMIN NET_BIND_SERVICE NET_RAW PERFMON SETFCAP SETGID SETPCAP SETUID \
    SYS_ADMIN SYS_BOOT SYS_CHROOT SYS_NICE SYS_PTRACE SYSLOG";

/// The directories of the host that can be written to. They are not part of its root file system.
pub(super) const CONFIGURED: [&str; 2] = ["etc/boathook", "etc/containerd"];

/// Returns the config.json of a container that boots the distribution in `root`, which is not
/// changed, with this view of cgroups. The programs are at [`PROGRAMS`] and [`RELEASED`], and the
/// [`CONFIGURED`] directories are in `configuration`.
pub(super) fn spec(view: CgroupView, root: &Path, configuration: &Path) -> Result<Value> {
    let mut args = vec!["/lib/systemd/systemd", "--unit=basic.target"];
    if view == CgroupView::V1 {
        // In a container systemd reads options of the kernel's command line from its arguments
        // (kernel-command-line(7)). The option avoids a hybrid hierarchy, which crun refuses.
        args.push("systemd.legacy_systemd_cgroup_controller=1");
    }
    let namespaces = ["pid", "mount", "ipc", "uts", "network", "cgroup"];
    Ok(json!({
        "ociVersion": "1.0.2",
        "root": {"path": root, "readonly": true},
        "hostname": "boathook-host",
        "process": {
            "terminal": false,
            "user": {"uid": 0, "gid": 0},
            "args": args,
            "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "container=oci"],
            "cwd": "/",
            "capabilities": capabilities(CAPABILITIES),
            "noNewPrivileges": true,
        },
        "mounts": mounts(configuration)?,
        "linux": {
            "namespaces": namespaces.map(|kind| json!({"type": kind})),
            "resources": {"devices": [{"allow": true, "access": "rwm"}]},
        },
    }))
}

/// Returns the mounts of the container. /var/tmp is that of the machine, so that the paths of
/// bundles and demo hosts are the same in the host.
fn mounts(configuration: &Path) -> Result<Vec<Value>> {
    let (programs, released) = (directory_of("probe")?, directory_of("boathook")?);
    let configured = CONFIGURED.map(|directory| {
        let target = Path::new("/").join(directory);
        mount("none", &configuration.join(directory), &target, &["bind"])
    });
    let mounts = [
        ("proc", Path::new("proc"), "/proc", &[][..]),
        ("tmpfs", Path::new("dev"), "/dev", &["nosuid", "mode=755"]),
        (
            "devpts",
            Path::new("devpts"),
            "/dev/pts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666"],
        ),
        ("tmpfs", Path::new("shm"), "/dev/shm", &["nosuid", "nodev"]),
        ("tmpfs", Path::new("run"), "/run", &["nosuid", "mode=755"]),
        ("tmpfs", Path::new("tmp"), "/tmp", &["nosuid", "mode=1777"]),
        ("sysfs", Path::new("sysfs"), "/sys", &["nosuid", "nodev"]),
        ("cgroup", Path::new("cgroup"), "/sys/fs/cgroup", &["rw"]),
        ("none", Path::new("/var/tmp"), "/var/tmp", &["bind"]),
        ("none", &programs, PROGRAMS, &["bind", "ro"]),
        ("none", &released, RELEASED, &["bind", "ro"]),
    ]
    .into_iter()
    .map(|(kind, source, target, options)| mount(kind, source, Path::new(target), options));
    Ok(mounts.chain(configured).collect())
}

fn directory_of(program: &str) -> Result<PathBuf> {
    let program = binaries::program(program)?;
    let directory = program.parent().context("a program without a directory")?;
    Ok(directory.to_path_buf())
}

fn mount(kind: &str, source: &Path, target: &Path, options: &[&str]) -> Value {
    json!({"type": kind, "source": source, "destination": target, "options": options})
}
