//! What is refused, and how.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use hook::container::{ContainerNamespace, Error as RootError, FileKind};
use hook::mount::{Attributes, Error};
use nix::errno::Errno;
use nix::sys::stat::Mode;

use crate::cases::OPTIONS;
use crate::container::Kind;
use crate::runner::Case;
use crate::scene::Scene;

pub(crate) const ALL: &[(&str, Case)] = &[
    (
        "shared_propagation_is_refused",
        shared_propagation_is_refused,
    ),
    ("read_only_root", read_only_root),
    ("source_replaced_on_the_way", source_replaced_on_the_way),
    ("source_removed_on_the_way", source_removed_on_the_way),
    ("own_namespace_is_refused", own_namespace_is_refused),
    ("another_root_is_refused", another_root_is_refused),
    (
        "a_process_that_has_ended_is_in_no_cgroup",
        a_process_that_has_ended_is_in_no_cgroup,
    ),
    (
        "a_root_mounted_over_is_refused",
        a_root_mounted_over_is_refused,
    ),
    ("threads_are_refused", threads_are_refused),
];

fn shared_propagation_is_refused(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Shared)?;
    let host = scene.host()?;
    let source = host.source("lib.so", Attributes::FILE)?;
    let again = host.source("lib.so", Attributes::FILE)?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    let target = root.open_or_create_mount_point(Path::new("lib.so"), source.kind())?;
    let refused = mounter.attach(source, &target);
    ensure!(matches!(refused, Err(Error::Shared { .. })), "{refused:?}");
    // Also where the target was there before.
    let target = root.open_or_create_mount_point(Path::new("lib.so"), again.kind())?;
    let refused = mounter.attach(again, &target);
    ensure!(matches!(refused, Err(Error::Shared { .. })), "{refused:?}");
    let target = root.open_or_create_mount_point(Path::new("v"), FileKind::Directory)?;
    let refused = mounter.create_tmpfs(target, &OPTIONS);
    ensure!(matches!(refused, Err(Error::Shared { .. })), "{refused:?}");
    scene.host_is_untouched()
}

fn read_only_root(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::ReadOnly)?;
    let host = scene.host()?;
    let source = host.source("lib.so", Attributes::FILE)?;
    let device = host.source("null0", Attributes::DEVICE)?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    let refused = root.open_or_create_mount_point(Path::new("usr/lib/new.so"), source.kind());
    ensure!(
        matches!(refused, Err(RootError::ReadOnly { .. })),
        "{refused:?}"
    );
    let refused = root.create_dir_all(Path::new("usr/v"), Mode::from_bits_truncate(0o755));
    ensure!(
        matches!(refused, Err(RootError::ReadOnly { .. })),
        "{refused:?}"
    );
    // What is there can be mounted on, and /dev is a file system of its own.
    let target =
        root.open_or_create_mount_point(Path::new("usr/lib/existing.so"), source.kind())?;
    mounter.attach(source, &target)?;
    let target = root.open_or_create_mount_point(Path::new("dev/null0"), device.kind())?;
    mounter.attach(device, &target)?;
    scene.host_is_untouched()
}

fn source_replaced_on_the_way(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let source = host.source("lib.so", Attributes::FILE)?;
    let file = scene.base.join("host/lib.so");
    fs::rename(&file, file.with_extension("old"))?;
    fs::write(&file, "another")?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    let target = root.open_or_create_mount_point(Path::new("usr/lib/lib.so"), source.kind())?;
    let attached = mounter.attach(source, &target);
    if scene.syscall_support.detached() {
        // What was checked is what is mounted.
        attached?;
        ensure!(fs::read_to_string(scene.rootfs("usr/lib/lib.so"))? == "a library");
        return Ok(());
    }
    ensure!(
        matches!(attached, Err(Error::Changed { .. })),
        "{attached:?}"
    );
    ensure!(scene.mounts_at("usr/lib/lib.so")?.is_empty());
    Ok(())
}

fn source_removed_on_the_way(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let source = host.source("lib.so", Attributes::FILE)?;
    fs::remove_file(scene.base.join("host/lib.so"))?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    let target = root.open_or_create_mount_point(Path::new("usr/lib/lib.so"), source.kind())?;
    match (
        mounter.attach(source, &target),
        scene.syscall_support.detached(),
    ) {
        (Err(Error::Removed { .. }), true) | (Err(Error::Missing { .. }), false) => Ok(()),
        (other, _) => bail!("{other:?}"),
    }
}

fn own_namespace_is_refused(scene: &Scene) -> Result<()> {
    let host = scene.host()?;
    for pid in [
        std::process::id().cast_signed(),
        std::os::unix::process::parent_id().cast_signed(),
    ] {
        let found =
            ContainerNamespace::from_pid(pid, &scene.rootfs(""), host.syscall_support.resolver());
        // The parent is in the host's namespace, which this process has left.
        let own = pid == std::process::id().cast_signed();
        let refused = matches!(found, Err(RootError::SameNamespace { .. }));
        ensure!(refused == own, "{pid}: {found:?}");
    }
    Ok(())
}

/// Nothing is read by the number, which another process may have by now.
fn a_process_that_has_ended_is_in_no_cgroup(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    scene.host()?;
    let namespace = scene.namespace(&container)?;
    ensure!(!namespace.read_cgroup_file()?.is_empty());
    drop(container);
    match namespace.read_cgroup_file() {
        Err(RootError::File(error)) if error.errno() == Errno::ESRCH => Ok(()),
        other => bail!("{other:?}"),
    }
}

/// The name of the root is given to a link to the host while the hook works.
fn another_root_is_refused(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let namespace = scene.namespace(&container)?;
    let rootfs = scene.base.join("rootfs");
    fs::rename(&rootfs, scene.base.join("moved"))?;
    symlink("outside", &rootfs)?;
    let entered = namespace.enter(&[], host.syscall_support.resolver());
    ensure!(
        matches!(entered, Err(RootError::RootChanged { .. })),
        "{entered:?}"
    );
    scene.host_is_untouched()
}

/// Before anything is changed: the device rules are set between the namespace's
/// being opened and its being entered.
fn a_root_mounted_over_is_refused(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::MountedOver)?;
    let host = scene.host()?;
    let resolver = host.syscall_support.resolver();
    let found = ContainerNamespace::from_pid(container.pid(), &scene.rootfs(""), resolver);
    ensure!(
        matches!(found, Err(RootError::RootChanged { .. })),
        "{found:?}"
    );
    Ok(())
}

fn threads_are_refused(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv());
    let Err(error) = scene.enter(&container, &host) else {
        bail!("a process with two threads was let in");
    };
    drop(end);
    let _ = thread.join();
    match error.downcast_ref() {
        Some(RootError::Enter {
            errno: Errno::EINVAL,
            ..
        }) => Ok(()),
        _ => bail!("{error:#}"),
    }
}
