//! What is made in a container with a user namespace belongs to its root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use anyhow::{Result, ensure};
use hook::container::{FileKind, Name};
use hook::mount::Attributes;
use nix::sys::stat::Mode;

use crate::cases::OPTIONS;
use crate::container::{FIRST_ID, Kind};
use crate::runner::Case;
use crate::scene::Scene;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("user_namespace", user_namespace),
    (
        "user_namespace_on_the_hosts_file_system",
        on_the_hosts_file_system,
    ),
];

/// The root is on a file system of the container's user namespace: the host's
/// root has no id there.
fn user_namespace(scene: &Scene) -> Result<()> {
    inject(scene, Kind::UserNamespace)
}

/// The root is on a file system of the host, with the ids of the container.
fn on_the_hosts_file_system(scene: &Scene) -> Result<()> {
    let own = (Some(FIRST_ID), Some(FIRST_ID));
    chown(scene.rootfs(""), own.0, own.1)?;
    // A directory that not even its owner may write to: the host's root may.
    fs::create_dir(scene.rootfs("closed"))?;
    chown(scene.rootfs("closed"), own.0, own.1)?;
    fs::set_permissions(scene.rootfs("closed"), fs::Permissions::from_mode(0o555))?;
    inject(scene, Kind::UserNamespaceOnHost)
}

fn inject(scene: &Scene, kind: Kind) -> Result<()> {
    let container = scene.container(kind)?;
    let host = scene.host()?;
    let library = host.source("lib.so", Attributes::FILE)?;
    let in_tmpfs = host.source("lib.so", Attributes::FILE)?;
    let device = host.source("null0", Attributes::DEVICE)?;
    let file = Mode::from_bits_truncate(0o644);
    let directory = Mode::from_bits_truncate(0o755);

    {
        let (root, mut mounter) = scene.enter(&container, &host)?;
        ensure!((root.owner().uid(), root.owner().gid()) == (FIRST_ID, FIRST_ID));
        root.create_dir_all(Path::new("closed/made"), directory)?;
        root.create_dir_all(Path::new("a/b"), directory)?;
        root.symlink(Path::new("a/link"), Path::new("b"))?;
        root.replace_file(Path::new("a/file"), b"text", file)?;
        ensure!(root.read_file(Path::new("a/file"), 10)?.as_deref() == Some(&b"text"[..]));
        let target = root.mount_point(Path::new("a/lib.so"), library.kind())?;
        owned(&scene.rootfs("a/lib.so"))?;
        mounter.attach(library, &target)?;
        let target = root.mount_point(Path::new("dev/null0"), device.kind())?;
        mounter.attach(device, &target)?;

        let target = root.mount_point(Path::new("a/v"), FileKind::Directory)?;
        let tmpfs = mounter.tmpfs(target, &OPTIONS)?.attach(&mut mounter)?;
        tmpfs
            .directory()
            .symlink(Name::new("libv.so")?, Path::new("libv.so.1"))?;
        let target = tmpfs
            .directory()
            .mount_point(Name::new("libv.so.1")?, in_tmpfs.kind())?;
        owned(&scene.rootfs("a/v/libv.so.1"))?;
        mounter.attach(in_tmpfs, &target)?;
        tmpfs.set_read_only(&mounter)?;
    }

    for made in [
        "closed/made",
        "a",
        "a/b",
        "a/link",
        "a/file",
        "a/v",
        "a/v/libv.so",
    ] {
        owned(&scene.rootfs(made))?;
    }
    scene
        .mount_at("a/lib.so")?
        .expect(&["ro", "nosuid", "nodev"])?;
    scene.mount_at("dev/null0")?.expect(&["nosuid", "noexec"])?;
    scene.mount_at("a/v")?.expect(&["ro", "nosuid", "nodev"])?;
    ensure!(fs::read_to_string(scene.rootfs("a/v/libv.so"))? == "a library");
    fs::write(scene.rootfs("dev/null0"), "x")?;

    // With the root gone, files are the host's again.
    fs::write(scene.base.join("host/after"), "")?;
    ensure!(fs::metadata(scene.base.join("host/after"))?.uid() == 0);
    Ok(())
}

fn owned(path: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(path)?;
    let owner = (meta.uid(), meta.gid());
    ensure!(
        owner == (FIRST_ID, FIRST_ID),
        "{} belongs to {owner:?}",
        path.display()
    );
    Ok(())
}
