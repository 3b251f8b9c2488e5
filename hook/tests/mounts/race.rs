//! Somebody exchanges parts of a path all the time while the hook works on it.
//!
//! The container has not started yet, but a volume in it may be another
//! container's too.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hook::container::{ContainerRoot, FileKind};
use hook::mount::{Attributes, MountSource, Mounter};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::Mode;

use crate::cases::OPTIONS;
use crate::container::Kind;
use crate::runner::Case;
use crate::scene::{Mount, Scene, mounts};

pub(crate) const ALL: &[(&str, Case)] = &[
    (
        "race_reaches_the_host_by_path",
        race_reaches_the_host_by_path,
    ),
    ("race_on_a_directory", race_on_a_directory),
    ("race_on_a_directory_absolute", race_on_a_directory_absolute),
    ("race_on_the_leaf", race_on_the_leaf),
    ("race_with_another_mount", race_with_another_mount),
];

/// How long a race lasts.
const DURATION: Duration = Duration::from_secs(2);

/// How many mounts are made in a race at most: they stay until its end.
const MOUNTS: u32 = 500;

const DIRECTORY: Mode = Mode::from_bits_truncate(0o755);
const FILE: Mode = Mode::from_bits_truncate(0o644);

/// The race itself is tried first: work on path strings loses it, even with a check
/// before each use. On a busy machine it may not within the time; then the races below
/// prove less, and the test says so.
fn race_reaches_the_host_by_path(scene: &Scene) -> Result<()> {
    let _swapper = exchanged_directory(scene, &scene.base.join("outside"))?;
    let end = Instant::now() + DURATION * 5;
    while Instant::now() < end {
        let path = scene.rootfs("vol/d/x");
        match fs::canonicalize(scene.rootfs("vol/d")) {
            Ok(parent) if parent.starts_with(scene.rootfs("")) => {
                let _ = fs::write(&path, "");
                let _ = fs::remove_file(scene.rootfs("vol/l/x"));
            }
            _ => continue,
        }
        if scene.base.join("outside/x").exists() {
            return Ok(());
        }
    }
    println!(" (inconclusive: nothing was reached by a path either)");
    Ok(())
}

fn race_on_a_directory(scene: &Scene) -> Result<()> {
    let swapper = exchanged_directory(scene, Path::new("../../outside"))?;
    race(scene, swapper)
}

fn race_on_a_directory_absolute(scene: &Scene) -> Result<()> {
    let swapper = exchanged_directory(scene, &scene.base.join("outside"))?;
    race(scene, swapper)
}

/// The names that are worked on are links to the host half of the time.
fn race_on_the_leaf(scene: &Scene) -> Result<()> {
    let directory = scene.rootfs("vol/d");
    fs::create_dir_all(directory.join("t0"))?;
    fs::write(directory.join("m0"), "inside")?;
    let mut swappers = Vec::new();
    let outside = Path::new("../../../outside");
    for name in ["file", "m0"] {
        swappers.push(Swapper::replace(
            &directory.join(name),
            &outside.join("file"),
        )?);
    }
    symlink(outside.join("deep"), directory.join("t0-link"))?;
    swappers.push(Swapper::exchange(
        &directory.join("t0"),
        &directory.join("t0-link"),
    )?);
    race(scene, swappers)
}

/// The name that something is mounted on leads to another mount half of the
/// time, which must not be restricted in the place of the new one.
fn race_with_another_mount(scene: &Scene) -> Result<()> {
    let (name, other) = (scene.rootfs("vol/name"), scene.rootfs("vol/other"));
    fs::create_dir_all(scene.rootfs("vol"))?;
    fs::write(&name, "")?;
    fs::write(&other, "")?;
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let sources: Result<Vec<MountSource>> = (0..MOUNTS)
        .map(|_| host.source("lib.so", Attributes::FILE))
        .collect();
    // Renaming a mount point takes a namespace in which it is none.
    let swapper = Swapper::exchange(&name, &other)?;
    let (root, mut mounter) = scene.enter(&container, &host)?;
    let (none, library) = (None::<&str>, scene.base.join("host/lib.so"));
    mount(Some(&library), &other, none, MsFlags::MS_BIND, none)?;
    let at = |mount: &Mount| mount.point == name || mount.point == other;
    let theirs = mounts("self")?
        .into_iter()
        .find(at)
        .context("nothing was mounted")?;

    let (mut done, mut refused) = (0, 0);
    for source in sources? {
        let target = root.open_or_create_mount_point(Path::new("vol/name"), source.kind())?;
        match mounter.attach(source, &target) {
            Ok(()) => done += 1,
            Err(_) => refused += 1,
        }
    }
    drop(swapper);
    ensure!(done > 0, "nothing was mounted, {refused} refused");
    let now = mounts("self")?
        .into_iter()
        .find(|mount| mount.id == theirs.id);
    let options = now.map(|mount| mount.options);
    ensure!(
        options.as_ref() == Some(&theirs.options),
        "the other mount is now {options:?}"
    );
    print!(" ({done} done, {refused} refused)");
    Ok(())
}

fn replace(root: &ContainerRoot, path: &str) -> hook::container::Result<()> {
    root.open_writable_file(path.as_ref())?
        .replace(b"inside", FILE)
}

/// Works below `vol/d` while the swappers run, and checks that all of it
/// stayed in the root.
fn race<S>(scene: &Scene, swappers: S) -> Result<()> {
    let leaf = scene.rootfs("vol/d/m0").exists();
    let container = scene.container(Kind::Plain)?;
    let host = scene.host()?;
    let sources: Result<Vec<MountSource>> = (0..MOUNTS)
        .map(|_| host.source("lib.so", Attributes::FILE))
        .collect();
    let mut sources = sources?.into_iter();
    let (root, mut mounter) = scene.enter(&container, &host)?;

    let start = Instant::now();
    let (mut done, mut refused) = (0, 0);
    let mut turn = 0;
    while start.elapsed() < DURATION {
        turn += 1;
        // At the leaf it is always the same names that are fought over.
        let number = if leaf { 0 } else { turn };
        let due = start.elapsed() > DURATION / MOUNTS * (MOUNTS - sources.len() as u32);
        let source = due.then(|| sources.next()).flatten();
        for worked in work(&root, &mut mounter, number, turn, source) {
            match worked {
                Ok(()) => done += 1,
                Err(_) => refused += 1,
            }
        }
        if let Ok(Some(read)) = root.read_file(Path::new("vol/d/file"), 100) {
            ensure!(read != b"outside", "a file of the host was read");
        }
    }
    drop(swappers);
    scene.host_is_untouched()?;
    ensure!(
        done > 0 && refused > 0,
        "no race: {done} done, {refused} refused"
    );
    print!(" ({done} done, {refused} refused)");
    Ok(())
}

/// One of everything. Most of it may fail, but none of it may go elsewhere.
fn work(
    root: &ContainerRoot,
    mounter: &mut Mounter,
    number: u32,
    turn: u32,
    source: Option<MountSource>,
) -> Vec<Result<()>> {
    let path = |name: &str| format!("vol/d/{name}{number}");
    let back = format!("vol/d/../d/b{number}");
    let mut worked = vec![
        root.create_dir_all(path("a").as_ref(), DIRECTORY).map(drop),
        root.create_dir_all(back.as_ref(), DIRECTORY).map(drop),
        root.symlink(path("l").as_ref(), Path::new("file")),
        replace(root, "vol/d/file"),
    ];
    let mut worked: Vec<Result<()>> = worked
        .drain(..)
        .map(|result| result.map_err(Into::into))
        .collect();
    if let Some(source) = source {
        let target = root.open_or_create_mount_point(path("m").as_ref(), source.kind());
        worked.push(
            target
                .map_err(Into::into)
                .and_then(|target| Ok(mounter.attach(source, &target)?)),
        );
    }
    if turn.is_multiple_of(200) {
        worked.push(tmpfs(root, mounter, path("t").as_ref()));
    }
    worked
}

fn tmpfs(root: &ContainerRoot, mounter: &mut Mounter, path: &Path) -> Result<()> {
    let target = root.open_or_create_mount_point(path, FileKind::Directory)?;
    let tmpfs = mounter.create_tmpfs(target, &OPTIONS)?.attach(mounter)?;
    Ok(tmpfs.set_read_only(mounter)?)
}

/// `vol/d` in the container's root, a directory at one moment and a link to
/// `target` at the next.
fn exchanged_directory(scene: &Scene, target: &Path) -> Result<Swapper> {
    let volume = scene.rootfs("vol");
    fs::create_dir_all(volume.join("d"))?;
    symlink(target, volume.join("l"))?;
    Swapper::exchange(&volume.join("d"), &volume.join("l"))
}

/// A process that changes names until it is dropped.
pub(crate) struct Swapper(Child);

impl Swapper {
    /// Exchanges two names.
    pub(crate) fn exchange(one: &Path, other: &Path) -> Result<Self> {
        Self::start("exchange", one, other)
    }

    /// Makes `name` a file, a link to `target`, a file, ...
    fn replace(name: &Path, target: &Path) -> Result<Self> {
        Self::start("replace", name, target)
    }

    fn start(how: &str, one: &Path, other: &Path) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args(["--as-swapper", how])
            .args([one, other])
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the swapper's process does, until it is killed or left alone.
pub(crate) fn swap(how: &str, one: &str, other: &str) -> Result<()> {
    let spare = format!("{one}-spare");
    let parent = parent_id();
    while parent_id() == parent {
        if how == "exchange" {
            renameat2(AT_FDCWD, one, AT_FDCWD, other, RenameFlags::RENAME_EXCHANGE)?;
            continue;
        }
        symlink(other, &spare)?;
        fs::rename(&spare, one)?;
        fs::write(&spare, "inside")?;
        fs::rename(&spare, one)?;
    }
    Ok(())
}
