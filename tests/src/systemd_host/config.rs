//! The config.json of the host's container: everything that a host has, but
//! namespaces of its own.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oci_spec::runtime::{
    Capability, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxDeviceCgroupBuilder,
    LinuxNamespaceBuilder, LinuxNamespaceType, LinuxResourcesBuilder, Mount, Process,
    ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
};

use super::{PROGRAMS, RELEASED};
use crate::binaries;
use crate::cgroup_view::CgroupView;

/// What systemd and the runtimes in it need. Not CAP_SYS_RESOURCE, which a
/// machine that is itself a container often lacks.
const CAPABILITIES: [Capability; 24] = [
    Capability::AuditWrite,
    Capability::Bpf,
    Capability::Chown,
    Capability::DacOverride,
    Capability::DacReadSearch,
    Capability::Fowner,
    Capability::Fsetid,
    Capability::IpcLock,
    Capability::Kill,
    Capability::Mknod,
    Capability::NetAdmin,
    Capability::NetBindService,
    Capability::NetRaw,
    Capability::Perfmon,
    Capability::Setfcap,
    Capability::Setgid,
    Capability::Setpcap,
    Capability::Setuid,
    Capability::SysAdmin,
    Capability::SysBoot,
    Capability::SysChroot,
    Capability::SysNice,
    Capability::SysPtrace,
    Capability::Syslog,
];

/// Directories of the host that are not those of its root: one can write there.
pub(super) const CONFIGURED: [&str; 2] = ["etc/boathook", "etc/containerd"];

/// The container that boots `root`, which stays as it is, on this view of
/// cgroups, with the programs at [`PROGRAMS`] and [`RELEASED`], and its
/// [`CONFIGURED`] directories in `configuration`.
pub(super) fn spec(view: CgroupView, root: &Path, configuration: &Path) -> Result<Spec> {
    let root = RootBuilder::default().path(root).readonly(true).build()?;
    let spec = SpecBuilder::default()
        .version("1.0.2")
        .root(root)
        .hostname("boathook-host")
        .process(process(view)?)
        .mounts(mounts(configuration)?);
    let everything = LinuxDeviceCgroupBuilder::default()
        .allow(true)
        .access("rwm")
        .build()?;
    let resources = LinuxResourcesBuilder::default().devices(vec![everything]);
    let mut linux = LinuxBuilder::default()
        .resources(resources.build()?)
        .build()?;
    let mut namespaces = Vec::new();
    for kind in [
        LinuxNamespaceType::Pid,
        LinuxNamespaceType::Mount,
        LinuxNamespaceType::Ipc,
        LinuxNamespaceType::Uts,
        LinuxNamespaceType::Network,
        LinuxNamespaceType::Cgroup,
    ] {
        namespaces.push(LinuxNamespaceBuilder::default().typ(kind).build()?);
    }
    linux
        .set_namespaces(Some(namespaces))
        .set_masked_paths(None)
        .set_readonly_paths(None);
    Ok(spec.linux(linux).build()?)
}

fn process(view: CgroupView) -> Result<Process> {
    let mut args = vec!["/lib/systemd/systemd", "--unit=basic.target"];
    if view == CgroupView::V1 {
        // In a container systemd reads options of the kernel's command line
        // here (kernel-command-line(7)). crun refuses a hybrid hierarchy.
        args.push("systemd.legacy_systemd_cgroup_controller=1");
    }
    let all = || CAPABILITIES.into_iter().collect::<HashSet<_>>();
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(all())
        .effective(all())
        .permitted(all())
        .inheritable(HashSet::new())
        .ambient(HashSet::new())
        .build()?;
    let mut process = ProcessBuilder::default()
        .terminal(false)
        .user(UserBuilder::default().uid(0_u32).gid(0_u32).build()?)
        .args(args.into_iter().map(str::to_string).collect::<Vec<_>>())
        .env(
            ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "container=oci"]
                .map(str::to_string)
                .to_vec(),
        )
        .cwd("/")
        .capabilities(capabilities)
        .build()?;
    process.set_rlimits(None);
    Ok(process)
}

/// Bundles and demo hosts are in /var/tmp, so it is the machine's own: paths
/// mean the same inside.
fn mounts(configuration: &Path) -> Result<Vec<Mount>> {
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

fn mount(kind: &str, source: &Path, target: &Path, options: &[&str]) -> Mount {
    let mut mount = Mount::default();
    mount
        .set_typ(Some(kind.to_string()))
        .set_source(Some(source.to_path_buf()))
        .set_destination(target.to_path_buf())
        .set_options(Some(options.iter().map(ToString::to_string).collect()));
    mount
}
