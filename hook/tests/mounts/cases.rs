//! What is mounted in a container without a user namespace.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use device_class::host::{DeviceKind, DeviceNumber};
use hook::container::{FileKind, FileName};
use hook::mount::{Attributes, Error, MountDepth, SyscallSupport, TmpfsOptions};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;

use crate::container::Kind;
use crate::hidden::Calls;
use crate::runner::Case;
use crate::scene::Scene;

pub(crate) const ALL: &[(&str, Case)] = &[
    ("calls_are_probed", calls_are_probed),
    ("device_node", device_node),
    ("library", library),
    ("restrictions_are_only_added", restrictions_are_only_added),
    ("directory_with_mounts_below", directory_with_mounts_below),
    ("tmpfs_of_libraries", tmpfs_of_libraries),
    ("twice", twice),
];

pub(crate) const OPTIONS: TmpfsOptions<'_> = TmpfsOptions {
    size_bytes: 64 << 10,
    mode: Mode::from_bits_truncate(0o755),
    label: None,
};

fn calls_are_probed(scene: &Scene) -> Result<()> {
    let syscall_support = scene.host()?.syscall_support;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(str::parse::<u32>);
    let mut next = || numbers.next().context("no version")?.context("no number");
    let version = (next()?, next()?);
    let (all, some) = (
        scene.syscall_support == Calls::Kernel,
        scene.syscall_support.detached(),
    );
    let expected = SyscallSupport {
        openat2: all && version >= (5, 6),
        open_tree: some && version >= (5, 2),
        move_mount: some && version >= (5, 2),
        mount_setattr: some && version >= (5, 12),
        fsopen: some && version >= (5, 2),
        statmount: all && version >= (6, 8),
        has_private_namespace: false,
    };
    ensure!(syscall_support == expected, "{syscall_support:?}");
    Ok(())
}

fn device_node(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let file = host.root.open_file_without_links(Path::new("null0"))?;
    let null = DeviceNumber {
        kind: DeviceKind::Character,
        major: 1,
        minor: 3,
    };
    file.expect_device_number(null)?;
    ensure!(
        file.expect_device_number(DeviceNumber { minor: 7, ..null })
            .is_err()
    );
    let new = host.source("null0", Attributes::DEVICE)?;
    let over = host.source("null0", Attributes::DEVICE)?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    // A new node, and one that the container has already: its /dev/zero.
    for (source, path) in [(new, "dev/v/null0"), (over, "dev/zero")] {
        let target = root.open_or_create_mount_point(Path::new(path), source.kind())?;
        mounter.attach(source, &target)?;
        let meta = fs::metadata(scene.rootfs(path))?;
        ensure!(
            meta.file_type().is_char_device() && meta.rdev() == 0x103,
            "{path}"
        );
        scene.expect(path, &["ro", "nosuid", "noexec"])?;
        // It works as a device, and not as a file.
        fs::OpenOptions::new()
            .write(true)
            .open(scene.rootfs(path))?
            .write_all(b"x")?;
    }
    scene.host_is_untouched()
}

fn library(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let new = host.source("lib.so", Attributes::FILE)?;
    let over = host.source("lib.so", Attributes::FILE)?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    for (source, path, real) in [
        (new, "/lib/v/lib.so", "usr/lib/v/lib.so"),
        (over, "/usr/lib/existing.so", "usr/lib/existing.so"),
    ] {
        let target = root.open_or_create_mount_point(Path::new(path), source.kind())?;
        mounter.attach(source, &target)?;
        ensure!(fs::read_to_string(scene.rootfs(real))? == "a library");
        scene.expect(real, &["ro", "nosuid", "nodev"])?;
        let error = fs::write(scene.rootfs(real), "changed").err();
        let errno = error.and_then(|error| error.raw_os_error());
        ensure!(errno == Some(libc::EROFS), "{errno:?}");
    }
    scene.host_is_untouched()
}

fn restrictions_are_only_added(scene: &Scene) -> Result<()> {
    let strict = scene.base.join("host/strict");
    fs::create_dir(&strict)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC | MsFlags::MS_NOATIME;
    mount(Some("tmpfs"), &strict, Some("tmpfs"), flags, None::<&str>)?;
    fs::write(strict.join("file"), "text")?;
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let source = host.source(
        "strict/file",
        Attributes {
            read_only: true,
            ..Attributes::default()
        },
    )?;
    let bare = host.source("strict/file", Attributes::default())?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    for (source, path) in [(source, "ro"), (bare, "bare")] {
        let target = root.open_or_create_mount_point(Path::new(path), source.kind())?;
        mounter.attach(source, &target)?;
        let options = scene.mount_at(path)?.options;
        ensure!(options.contains(&"noatime".to_owned()), "{options:?}");
    }
    scene.expect("ro", &["ro", "nosuid", "noexec"])?;
    scene.expect("bare", &["nosuid", "noexec"])?;
    scene.host_is_untouched()
}

fn directory_with_mounts_below(scene: &Scene) -> Result<()> {
    let upper = scene.base.join("host/tree");
    let lower = upper.join("lower");
    fs::create_dir_all(&lower)?;
    let none = None::<&str>;
    mount(Some("tmpfs"), &lower, Some("tmpfs"), MsFlags::empty(), none)?;
    fs::write(lower.join("file"), "below")?;
    fs::create_dir(scene.base.join("host/flat"))?;

    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let source = |path, attributes, depth| host.source_of(path, attributes, depth);
    let single = source("tree", Attributes::FILE, MountDepth::Single)?;
    let flat = source("flat", Attributes::FILE, MountDepth::Recursive)?;
    let free = source("tree", Attributes::default(), MountDepth::Recursive)?;
    let whole = source("tree", Attributes::FILE, MountDepth::Recursive)?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    for (source, path) in [(single, "single"), (flat, "flat"), (free, "free")] {
        let target = root.open_or_create_mount_point(Path::new(path), source.kind())?;
        mounter.attach(source, &target)?;
    }
    scene.expect("single", &["ro", "nosuid", "nodev"])?;
    ensure!(!scene.rootfs("single/lower/file").exists());
    scene.expect("flat", &["ro", "nosuid", "nodev"])?;
    scene.expect("free/lower", &[])?;

    let target = root.open_or_create_mount_point(Path::new("whole"), FileKind::Directory)?;
    let attached = mounter.attach(whole, &target);
    if scene.syscall_support.detached() {
        attached?;
        scene.expect("whole/lower", &["ro", "nosuid", "nodev"])?;
        return Ok(());
    }
    // An older kernel would leave what is below writable.
    ensure!(
        matches!(attached, Err(Error::Submounts { .. })),
        "{attached:?}"
    );
    ensure!(scene.mounts_at("whole")?.is_empty() && scene.mounts_at("whole/lower")?.is_empty());
    Ok(())
}

fn tmpfs_of_libraries(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let early = host.source("lib.so", Attributes::FILE)?;
    let late = host.source("lib.so", Attributes::FILE)?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    let target = root.open_or_create_mount_point(Path::new("/usr/lib/v"), FileKind::Directory)?;
    let staged = mounter.create_tmpfs(target, &OPTIONS)?;
    let directory = staged.directory().clone();
    directory.symlink(FileName::new("libv.so")?, Path::new("libv.so.1"))?;
    directory.create_dir(FileName::new("sub")?, Mode::from_bits_truncate(0o755))?;
    let before = directory.open_or_create_mount_point(FileName::new("libv.so.1")?, early.kind())?;
    let tmpfs = staged.attach(&mut mounter)?;
    mounter.attach(early, &before)?;
    let after = tmpfs
        .directory()
        .open_or_create_mount_point(FileName::new("libv.so.2")?, late.kind())?;
    mounter.attach(late, &after)?;
    tmpfs.set_read_only(&mounter)?;

    scene.expect("usr/lib/v", &["ro", "nosuid", "nodev"])?;
    ensure!(scene.mount_at("usr/lib/v")?.fs_type == "tmpfs");
    let meta = fs::metadata(scene.rootfs("usr/lib/v"))?;
    ensure!((meta.mode() & 0o7777, meta.uid(), meta.gid()) == (0o755, 0, 0));
    for library in [
        "usr/lib/v/libv.so",
        "usr/lib/v/libv.so.1",
        "lib/v/libv.so.2",
    ] {
        ensure!(
            fs::read_to_string(scene.rootfs(library))? == "a library",
            "{library}"
        );
    }
    scene.expect("usr/lib/v/libv.so.1", &["ro", "nosuid", "nodev"])?;
    let error = fs::write(scene.rootfs("usr/lib/v/more"), "").err();
    let errno = error.and_then(|error| error.raw_os_error());
    ensure!(errno == Some(libc::EROFS), "{errno:?}");
    // The image's own directory has only the mount point.
    scene.host_is_untouched()
}

fn twice(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let first = host.source("lib.so", Attributes::FILE)?;
    let second = host.source("lib.so", Attributes::FILE)?;
    let third = host.source("null0", Attributes::DEVICE)?;

    let (root, mut mounter) = scene.enter(&container, &host)?;
    let path = Path::new("usr/lib/lib.so");
    let target = root.open_or_create_mount_point(path, first.kind())?;
    ensure!(target.is_newly_created() && !target.has_identity(first.identity()));
    mounter.attach(first, &target)?;
    // What is there can be recognised, and mounting it again does no harm.
    let target = root.open_or_create_mount_point(path, second.kind())?;
    ensure!(!target.is_newly_created() && target.has_identity(second.identity()));
    ensure!(!target.has_identity(third.identity()));
    mounter.attach(second, &target)?;
    ensure!(fs::read_to_string(scene.rootfs("usr/lib/lib.so"))? == "a library");
    scene.host_is_untouched()
}
