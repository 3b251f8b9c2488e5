//! What is made in a container with a user namespace belongs to its root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use anyhow::{Result, ensure};
use hook::container::{FileKind, FileName};
use hook::mount::Attributes;
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, setgid, setuid};

use crate::cases::OPTIONS;
use crate::container::{Container, FIRST_ID, Kind};
use crate::runner::Case;
use crate::scene::Scene;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("user_namespace", user_namespace),
    (
        "user_namespace_on_the_hosts_file_system",
        on_the_hosts_file_system,
    ),
    ("user_namespace_of_the_hook", rootless),
    ("user_namespace_below_the_hooks", nested),
];

/// The directory is a tmpfs of the container's user namespace: the host's root
/// has no id there.
fn user_namespace(scene: &Scene) -> Result<()> {
    belongs_to_the_container(scene)?;
    inject(scene, Kind::UserNamespace, "run", FIRST_ID)
}

/// The root is on a file system of the host, with the ids of the container.
fn on_the_hosts_file_system(scene: &Scene) -> Result<()> {
    belongs_to_the_container(scene)?;
    // A directory that not even its owner may write to: the host's root may.
    let closed = scene.rootfs("closed");
    fs::create_dir(&closed)?;
    chown(&closed, Some(FIRST_ID), Some(FIRST_ID))?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555))?;
    inject(scene, Kind::UserNamespaceOnHost, "closed", FIRST_ID)
}

/// A rootless engine: its container's root is the root of the namespace that the
/// hook is in, although the map names another id.
fn rootless(scene: &Scene) -> Result<()> {
    enter_user_namespace(scene, 65536)?;
    inject(scene, Kind::Rootless, "", 0)
}

/// The container has a user namespace below that of the hook, which is itself
/// not the initial one.
fn nested(scene: &Scene) -> Result<()> {
    enter_user_namespace(scene, 2 * 65536 + FIRST_ID)?;
    belongs_to_the_container(scene)?;
    inject(scene, Kind::UserNamespace, "run", FIRST_ID)
}

fn belongs_to_the_container(scene: &Scene) -> Result<()> {
    Ok(chown(scene.rootfs(""), Some(FIRST_ID), Some(FIRST_ID))?)
}

/// Enters a user namespace with `ids` ids, to which the scene belongs then.
fn enter_user_namespace(scene: &Scene, ids: u32) -> Result<()> {
    for path in ["", "host", "host/lib.so", "host/null0", "rootfs", "outside"] {
        chown(scene.base.join(path), Some(FIRST_ID), Some(FIRST_ID))?;
    }
    let mut mapper = Container::mapper(ids)?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
    mapper.map()?;
    setgid(Gid::from_raw(0))?;
    setuid(Uid::from_raw(0))?;
    Ok(())
}

/// Puts one of everything into the directory `at`, and checks that all of it
/// belongs to the container's root, which is `id` here.
fn inject(scene: &Scene, kind: Kind, at: &str, id: u32) -> Result<()> {
    let at = |path: &str| format!("{at}/{path}").trim_start_matches('/').to_owned();
    let container = scene.container(kind)?;
    let host = scene.host()?;
    let library = host.source("lib.so", Attributes::FILE)?;
    let in_tmpfs = host.source("lib.so", Attributes::FILE)?;
    let device = host.source("null0", Attributes::DEVICE)?;
    let file = Mode::from_bits_truncate(0o644);
    let directory = Mode::from_bits_truncate(0o755);

    {
        let (root, mut mounter) = scene.enter(&container, &host)?;
        ensure!((root.owner().uid(), root.owner().gid()) == (id, id));
        ensure!(!root.can_create_device_nodes());
        root.create_dir_all(at("a/b").as_ref(), directory)?;
        root.symlink(at("a/link").as_ref(), Path::new("b"))?;
        root.open_writable_file(at("a/file").as_ref())?
            .replace(b"text", file)?;
        ensure!(root.read_file(at("a/file").as_ref(), 10)?.as_deref() == Some(&b"text"[..]));
        let target = root.open_or_create_mount_point(at("a/lib.so").as_ref(), library.kind())?;
        owned(&scene.rootfs(&at("a/lib.so")), id)?;
        mounter.attach(library, &target)?;
        let target = root.open_or_create_mount_point(Path::new("dev/null0"), device.kind())?;
        mounter.attach(device, &target)?;

        let target = root.open_or_create_mount_point(at("a/v").as_ref(), FileKind::Directory)?;
        let tmpfs = mounter
            .create_tmpfs(target, &OPTIONS)?
            .attach(&mut mounter)?;
        tmpfs
            .directory()
            .symlink(FileName::new("libv.so")?, Path::new("libv.so.1"))?;
        let target = tmpfs
            .directory()
            .open_or_create_mount_point(FileName::new("libv.so.1")?, in_tmpfs.kind())?;
        owned(&scene.rootfs(&at("a/v/libv.so.1")), id)?;
        mounter.attach(in_tmpfs, &target)?;
        tmpfs.set_read_only(&mounter)?;
    }

    for made in ["a", "a/b", "a/link", "a/file", "a/v", "a/v/libv.so"] {
        owned(&scene.rootfs(&at(made)), id)?;
    }
    scene.expect(&at("a/lib.so"), &["ro", "nosuid", "nodev"])?;
    scene.expect("dev/null0", &["ro", "nosuid", "noexec"])?;
    scene.expect(&at("a/v"), &["ro", "nosuid", "nodev"])?;
    ensure!(fs::read_to_string(scene.rootfs(&at("a/v/libv.so")))? == "a library");
    fs::write(scene.rootfs("dev/null0"), "x")?;

    // With the root gone, files are the host's again.
    fs::write(scene.base.join("host/after"), "")?;
    ensure!(fs::metadata(scene.base.join("host/after"))?.uid() == 0);
    Ok(())
}

fn owned(path: &Path, id: u32) -> Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let owner = (meta.uid(), meta.gid());
    ensure!(owner == (id, id), "{} belongs to {owner:?}", path.display());
    Ok(())
}
