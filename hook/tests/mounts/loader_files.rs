//! Files that are read and replaced: through one resolution, and on the
//! container's root file system only.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hook::container::{ContainerRoot, Error};
use host_files::rooted_path;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;

use crate::container::Kind;
use crate::race::Swapper;
use crate::runner::Case;
use crate::scene::Scene;

pub(crate) const ALL: &[(&str, Case)] = &[
    (
        "a_file_behind_links_of_the_image",
        behind_links_of_the_image,
    ),
    ("a_file_that_is_mounted_on", a_file_that_is_mounted_on),
    ("a_read_only_file_system", a_read_only_file_system),
    ("race_of_links_to_two_files", race_of_links_to_two_files),
];

const NONE: Option<&str> = None;
const FILE: Mode = Mode::from_bits_truncate(0o644);
const CAP: usize = 4096;

/// How often a file is read and replaced while links are exchanged.
const ROUNDS: usize = 3000;

/// Adds a line to the file, as the hook does with a loader's configuration.
fn add_line(root: &ContainerRoot, path: &str) -> hook::container::Result<()> {
    let file = root.open_writable_file(Path::new(path))?;
    let mut text = b"ours\n".to_vec();
    text.extend(file.read(CAP)?.unwrap_or_default());
    text.truncate(CAP);
    file.replace(&text, FILE)
}

/// The file is replaced where the image has it, with its owner and permissions.
fn behind_links_of_the_image(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    fs::create_dir_all(scene.rootfs("usr/etc"))?;
    for (link, text) in [
        ("etc/relative", "../usr/etc/real"),
        ("etc/absolute", "/usr/etc/real"),
        ("etc/up", "../../../usr/etc/real"),
        ("etc/chain", "absolute"),
        ("linked", "usr/etc"),
    ] {
        symlink(text, scene.rootfs(link))?;
    }
    let host = scene.host()?;
    let (root, _) = scene.enter(&container, &host)?;
    let real = scene.rootfs("usr/etc/real");
    for path in [
        "etc/relative",
        "etc/absolute",
        "etc/up",
        "etc/chain",
        "linked/real",
        "usr/etc/real",
        "usr/../usr/etc/real",
    ] {
        fs::write(&real, "image\n")?;
        chown(&real, Some(12), Some(34))?;
        fs::set_permissions(&real, fs::Permissions::from_mode(0o6640))?;
        add_line(&root, path)?;
        ensure!(fs::read_to_string(&real)? == "ours\nimage\n", "{path}");
        let meta = fs::symlink_metadata(&real)?;
        // Set-user-id bits do not come along: the content is partly the image's.
        let found = (meta.mode(), meta.uid(), meta.gid());
        ensure!(found == (0o100_640, 12, 34), "{path}: {found:?}");
    }
    ensure!(scene.rootfs("etc/chain").is_symlink() && scene.rootfs("etc/absolute").is_symlink());
    add_line(&root, "etc/ld.so.conf.d/new/file")?;
    ensure!(fs::read_to_string(scene.rootfs("etc/ld.so.conf.d/new/file"))? == "ours\n");
    // A magic link is not followed.
    symlink("/proc/self/root/etc/x", scene.rootfs("etc/magic"))?;
    mount(
        Some("proc"),
        &make_directory(scene, "proc")?,
        Some("proc"),
        MsFlags::empty(),
        NONE,
    )?;
    ensure!(matches!(
        add_line(&root, "etc/magic"),
        Err(Error::File(rooted_path::Error::TooManyLinks { .. }))
    ));
    scene.host_is_untouched()
}

fn make_directory(scene: &Scene, path: &str) -> Result<std::path::PathBuf> {
    let path = scene.rootfs(path);
    fs::create_dir_all(&path)?;
    Ok(path)
}

fn a_file_that_is_mounted_on(scene: &Scene) -> Result<()> {
    let container = scene.container(Kind::Plain)?;
    let cache = scene.rootfs("etc/cache");
    fs::write(&cache, "image")?;
    symlink("cache", scene.rootfs("etc/link"))?;
    let host = scene.host()?;
    let (root, _) = scene.enter(&container, &host)?;
    let volume = scene.base.join("outside/file");
    mount(Some(&volume), &cache, NONE, MsFlags::MS_BIND, NONE)?;
    for path in ["etc/cache", "etc/link"] {
        let added = add_line(&root, path);
        ensure!(
            matches!(added, Err(Error::NotWritable { .. })),
            "{path}: {added:?}"
        );
    }
    ensure!(fs::read_dir(scene.rootfs("etc"))?.count() == 2);
    scene.host_is_untouched()
}

fn a_read_only_file_system(scene: &Scene) -> Result<()> {
    let (root, _container) = scene.entered(Kind::ReadOnly)?;
    for path in ["etc/new", "etc/new/below", "usr/lib/existing.so"] {
        let added = add_line(&root, path);
        ensure!(
            matches!(added, Err(Error::ReadOnly { .. })),
            "{path}: {added:?}"
        );
    }
    Ok(())
}

/// Somebody exchanges two links, one to a file that only root may read, and one
/// to a file of his own. Neither's content ever gets into the other.
fn race_of_links_to_two_files(scene: &Scene) -> Result<()> {
    let shared = scene.rootfs("shared");
    fs::create_dir_all(&shared)?;
    let (secret, own) = (shared.join("secret"), shared.join("own"));
    fs::write(&secret, "secret\n")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    fs::write(&own, "own\n")?;
    chown(&own, Some(1000), Some(1000))?;
    symlink("secret", shared.join("cache"))?;
    symlink("own", shared.join("other"))?;
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let swapper = Swapper::exchange(&shared.join("cache"), &shared.join("other"))?;
    let (root, _) = scene.enter(&container, &host)?;
    let mut changed = [0, 0];
    for _ in 0..ROUNDS {
        add_line(&root, "shared/cache").context("cannot add a line")?;
        for (file, text, foreign, uid, count) in [
            (&secret, "secret\n", "own", 0, 0),
            (&own, "own\n", "secret", 1000, 1),
        ] {
            let found = fs::read_to_string(file)?;
            ensure!(!found.contains(foreign), "{}: {found:?}", file.display());
            ensure!(fs::metadata(file)?.uid() == uid, "{}", file.display());
            if found != text {
                changed[count] += 1;
                fs::write(file, text)?;
            }
        }
    }
    drop(swapper);
    ensure!(
        changed.iter().all(|count| *count > 0),
        "no race: {changed:?}"
    );
    print!(" ({changed:?} of {ROUNDS})");
    Ok(())
}
