//! Nothing is created, changed or removed on a mount that is not the container's
//! own, whatever leads there.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use anyhow::{Result, bail, ensure};
use device_class::host::{DeviceKind, DeviceNumber};
use hook::container::{ContainerRoot, DeviceAccess, Error, FileKind};
use hook::mount::Attributes;
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};
use nix::unistd::{Gid, Uid};

use crate::container::Kind;
use crate::runner::Case;
use crate::scene::Scene;

pub(crate) const ALL: &[(&str, Case)] = &[
    (
        "nothing_is_created_in_a_volume",
        nothing_is_created_in_a_volume,
    ),
    (
        "nothing_is_created_in_a_tmpfs_of_the_host",
        nothing_is_created_in_a_tmpfs_of_the_host,
    ),
    (
        "what_a_volume_has_can_be_covered",
        what_a_volume_has_can_be_covered,
    ),
    ("a_host_directory_as_dev", a_host_directory_as_dev),
    ("the_containers_own_tmpfs", the_containers_own_tmpfs),
    (
        "a_volume_in_the_place_of_a_tmpfs",
        a_volume_in_the_place_of_a_tmpfs,
    ),
    ("a_volume_below_a_tmpfs", a_volume_below_a_tmpfs),
    (
        "a_link_to_a_volume_in_the_place_of_a_tmpfs",
        a_link_in_the_place_of_a_tmpfs,
    ),
    ("the_hosts_own_root", the_hosts_own_root),
    (
        "a_devices_mode_and_owner_stay",
        a_devices_mode_and_owner_stay,
    ),
];

const NONE: Option<&str> = None;
const DIRECTORY: Mode = Mode::from_bits_truncate(0o755);
const FILE: Mode = Mode::from_bits_truncate(0o644);
const NULL: DeviceNumber = DeviceNumber {
    kind: DeviceKind::Character,
    major: 1,
    minor: 3,
};

/// Ways from a container's root into the volume `data`, and what is in it.
const WAYS: [(&str, &str); 7] = [
    ("data", "direct"),
    ("absolute", "/data"),
    ("relative", "data"),
    ("usr/up", "../../../data"),
    ("chain", "/absolute/deep/.."),
    ("deep", "/data/deep"),
    ("usr/lib", "/data/deep"),
];

/// Links that lead into the volume `data`, in the image.
fn make_links(scene: &Scene) -> Result<()> {
    fs::remove_dir_all(scene.rootfs("usr/lib"))?;
    for (link, text) in WAYS.into_iter().skip(1) {
        symlink(text, scene.rootfs(link))?;
    }
    Ok(())
}

/// Mounts `source` at a path of the container whose mount namespace this process
/// is in, as the runtime did before the hook was called.
fn bind(source: &Path, scene: &Scene, path: &str) -> Result<()> {
    fs::create_dir_all(scene.rootfs(path))?;
    mount(
        Some(source),
        &scene.rootfs(path),
        NONE,
        MsFlags::MS_BIND,
        NONE,
    )?;
    mount(NONE, &scene.rootfs(path), NONE, MsFlags::MS_PRIVATE, NONE)?;
    Ok(())
}

fn new_tmpfs(point: &Path) -> Result<()> {
    fs::create_dir_all(point)?;
    mount(Some("tmpfs"), point, Some("tmpfs"), MsFlags::empty(), NONE)?;
    mount(NONE, point, NONE, MsFlags::MS_PRIVATE, NONE)?;
    Ok(())
}

/// Tries everything that creates or changes something at `path`.
fn create_everything(root: &ContainerRoot, path: &str) -> Vec<(&'static str, Result<(), Error>)> {
    let path = Path::new(path);
    let access = DeviceAccess {
        mode: Mode::from_bits_truncate(0o666),
        uid: Uid::from_raw(0),
        gid: Gid::from_raw(0),
    };
    let mount_point = |kind| root.open_or_create_mount_point(path, kind).map(drop);
    vec![
        ("file mount point", mount_point(FileKind::Regular)),
        ("directory mount point", mount_point(FileKind::Directory)),
        ("device mount point", mount_point(FileKind::CharDevice)),
        ("directory", root.create_dir_all(path, DIRECTORY).map(drop)),
        ("link", root.symlink(path, Path::new("x"))),
        ("device", root.create_device_node(path, NULL, access)),
        (
            "file",
            root.open_writable_file(path)
                .and_then(|file| file.replace(b"ours", FILE)),
        ),
    ]
}

fn refuses_everything(root: &ContainerRoot, path: &str) -> Result<()> {
    for (what, result) in create_everything(root, path) {
        let refused = matches!(result, Err(Error::NotWritable { .. }));
        ensure!(refused, "{what} at {path}: {result:?}");
    }
    Ok(())
}

fn nothing_is_created_in_a_volume(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    make_links(scene)?;
    let host = scene.host()?;
    let (root, _) = scene.enter(&container, &host)?;
    bind(&scene.base.join("outside"), scene, "data")?;
    for (way, _) in WAYS {
        for name in ["new", "new/below", "./new", "../data/new"] {
            refuses_everything(&root, &format!("{way}/{name}"))?;
        }
        scene.host_is_untouched()?;
    }
    // The place is held by a handle: a name beside the volume is still writable.
    root.create_dir_all(Path::new("data/../beside"), DIRECTORY)?;
    // A file that exists there is not replaced either, and links to it neither.
    symlink("/data/file", scene.rootfs("leaf"))?;
    for path in ["data/file", "absolute/file", "leaf"] {
        let file = root.open_writable_file(Path::new(path));
        ensure!(
            matches!(file, Err(Error::NotWritable { .. })),
            "{path}: {file:?}"
        );
    }
    scene.host_is_untouched()
}

/// A tmpfs is no sign of a directory of the container's own.
fn nothing_is_created_in_a_tmpfs_of_the_host(scene: &Scene) -> Result<()> {
    let (root, _container) = scene.entered(Kind::Plain)?;
    new_tmpfs(&scene.rootfs("srv"))?;
    refuses_everything(&root, "srv/new")?;
    // A new tmpfs, but not on the container's root file system itself.
    new_tmpfs(&scene.rootfs("dev/shm"))?;
    refuses_everything(&root, "dev/shm/new")?;
    ensure!(fs::read_dir(scene.rootfs("srv"))?.next().is_none());
    ensure!(fs::read_dir(scene.rootfs("dev/shm"))?.next().is_none());
    Ok(())
}

/// A mount on something in a volume changes nothing in the volume.
fn what_a_volume_has_can_be_covered(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    make_links(scene)?;
    let host = scene.host()?;
    let direct = host.source("lib.so", Attributes::FILE)?;
    let linked = host.source("lib.so", Attributes::FILE)?;
    let (root, mut mounter) = scene.enter(&container, &host)?;
    bind(&scene.base.join("outside"), scene, "data")?;
    for (source, path) in [(direct, "data/file"), (linked, "absolute/file")] {
        let target = root.open_or_create_mount_point(Path::new(path), source.kind())?;
        ensure!(!target.is_newly_created());
        mounter.attach(source, &target)?;
        ensure!(fs::read_to_string(scene.rootfs("data/file"))? == "a library");
    }
    let target = root.open_or_create_mount_point(Path::new("data/deep"), FileKind::Directory)?;
    ensure!(!target.is_newly_created());
    scene.host_is_untouched()
}

/// `-v /dev:/dev`: nodes that are there are used, and none is made.
fn a_host_directory_as_dev(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let source = host.source("null0", Attributes::DEVICE)?;
    let (root, _) = scene.enter(&container, &host)?;
    bind(&scene.base.join("host"), scene, "dev")?;
    let before = fs::metadata(scene.base.join("host/null0"))?;
    refuses_everything(&root, "dev/npu0")?;
    refuses_everything(&root, "dev/npu/0")?;
    // The device has its node there already.
    let path = Path::new("dev/null0");
    let target = root.open_or_create_mount_point(path, FileKind::CharDevice)?;
    ensure!(target.has_identity(source.identity()));
    let access = DeviceAccess {
        mode: Mode::from_bits_truncate(0o600),
        uid: Uid::from_raw(1),
        gid: Gid::from_raw(1),
    };
    root.create_device_node(path, NULL, access)?;
    let other = root.create_device_node(path, DeviceNumber { minor: 5, ..NULL }, access);
    ensure!(matches!(other, Err(Error::NotWritable { .. })), "{other:?}");
    let after = fs::metadata(scene.base.join("host/null0"))?;
    ensure!((before.mode(), before.uid()) == (after.mode(), after.uid()));
    ensure!(fs::read_dir(scene.base.join("host"))?.count() == 2);
    Ok(())
}

/// What config.json has the runtime make is written to.
fn the_containers_own_tmpfs(scene: &Scene) -> Result<()> {
    let (root, _container) = scene.entered(Kind::Plain)?;
    new_tmpfs(&scene.rootfs("run"))?;
    symlink("/run", scene.rootfs("var-run"))?;
    for path in ["dev/a/new", "run/new", "var-run/b/new"] {
        root.open_or_create_mount_point(Path::new(path), FileKind::Regular)?;
        ensure!(
            scene.rootfs(path).exists() || path.starts_with("var-run"),
            "{path}"
        );
    }
    ensure!(scene.rootfs("run/b/new").exists());
    scene.host_is_untouched()
}

/// Another mount is on top of the one that config.json has: an image can have a
/// link that leads a volume there.
fn a_volume_in_the_place_of_a_tmpfs(scene: &Scene) -> Result<()> {
    let (root, _container) = scene.entered(Kind::Plain)?;
    for tmpfs in ["dev", "run"] {
        let volume = scene.base.join("outside/deep");
        // The volume is a tmpfs too: only its place tells it apart.
        new_tmpfs(&volume)?;
        if tmpfs == "run" {
            new_tmpfs(&scene.rootfs(tmpfs))?;
        }
        bind(&volume, scene, tmpfs)?;
        refuses_everything(&root, &format!("{tmpfs}/new"))?;
        ensure!(fs::read_dir(&volume)?.next().is_none());
    }
    Ok(())
}

/// The volume was mounted first. The tmpfs is on top, but not on the root file
/// system: refused, as it cannot be determined from the case before.
fn a_volume_below_a_tmpfs(scene: &Scene) -> Result<()> {
    let (root, _container) = scene.entered(Kind::Plain)?;
    bind(&scene.base.join("outside"), scene, "run")?;
    new_tmpfs(&scene.rootfs("run"))?;
    refuses_everything(&root, "run/new")?;
    scene.host_is_untouched()
}

fn a_link_in_the_place_of_a_tmpfs(scene: &Scene) -> Result<()> {
    let (root, _container) = scene.entered(Kind::Plain)?;
    new_tmpfs(&scene.rootfs("srv"))?;
    symlink("srv", scene.rootfs("run"))?;
    refuses_everything(&root, "run/new")?;
    refuses_everything(&root, "srv/new")?;
    ensure!(fs::read_dir(scene.rootfs("srv"))?.next().is_none());
    Ok(())
}

/// `podman run --rootfs /`.
fn the_hosts_own_root(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let name = format!("boathook-test-{}", std::process::id());
    let resolver = host.syscall_support.resolver();
    let namespace =
        hook::container::ContainerNamespace::from_pid(container.pid(), Path::new("/"), resolver)?;
    let root = namespace.enter(&[], resolver)?;
    refuses_everything(&root, &name)?;
    refuses_everything(&root, &format!("{name}/below"))?;
    ensure!(!Path::new("/").join(name).exists());
    Ok(())
}

/// The node is the host's, and other containers have it too.
fn a_devices_mode_and_owner_stay(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let source = host.source("null0", Attributes::DEVICE)?;
    let (root, mut mounter) = scene.enter(&container, &host)?;
    let target = root.open_or_create_mount_point(Path::new("dev/null0"), source.kind())?;
    mounter.attach(source, &target)?;
    let node = scene.rootfs("dev/null0");
    let chmod = fchmodat(
        AT_FDCWD,
        &node,
        Mode::from_bits_truncate(0o777),
        FchmodatFlags::FollowSymlink,
    );
    let chown = nix::unistd::chown(&node, Some(Uid::from_raw(7)), Some(Gid::from_raw(7)));
    if (chmod, chown) != (Err(Errno::EROFS), Err(Errno::EROFS)) {
        bail!("{chmod:?}, {chown:?}");
    }
    let meta = fs::metadata(scene.base.join("host/null0"))?;
    ensure!(
        (meta.mode() & 0o777, meta.uid()) == (0o644, 0),
        "{:o}",
        meta.mode()
    );
    // The device itself is as it was: opened as a shell's `>` does, and for both.
    fs::write(&node, "x")?;
    let mut both = fs::OpenOptions::new().read(true).write(true).open(&node)?;
    ensure!(std::io::copy(&mut both, &mut std::io::sink())? == 0);
    Ok(())
}
