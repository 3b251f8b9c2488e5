//! `private-host [ROOT [DIRECTORY...]]` creates mount, PID and network namespaces in which an
//! engine can run as on a separate machine.
//!
//! Files that are written there to /etc, /opt, /run, /tmp, /usr/local/bin, /var/lib and /dev/shm
//! are removed at the end. With ROOT, the directory of another root file system, that becomes the
//! root, and all changes to it are removed; only /var/tmp, cargo's output directory and each
//! DIRECTORY are those of the machine. The program prints the id of the process whose namespaces
//! nsenter(1) is to enter. When its standard input ends, it kills all processes in the namespaces.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

use std::fs::Permissions;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use harness::surroundings::leave_mount_namespace;
use harness::{binaries, exit};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::sys::wait::wait;
use nix::unistd::{chdir, pivot_root};

/// The argument that starts the first process in the namespaces.
const FIRST: &str = "--first";

/// The file that the first process creates when all mounts are complete.
const READY: &str = "/run/private-host";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.split_first() {
        Some((argument, layout)) if argument == FIRST => first(layout),
        _ => outside(&arguments),
    };
    exit::with("private-host", ran)
}

fn outside(layout: &[String]) -> Result<()> {
    // This process stays in the machine's mount namespace: a new /proc would not show it the
    // processes of the new PID namespace by its own ids.
    let new = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNET;
    unshare(new).context("cannot make namespaces")?;
    let mut command = Command::new("/proc/self/exe");
    let mut first = command
        .arg(FIRST)
        .args(layout)
        .stdin(Stdio::null())
        .spawn()?;
    let ready = format!("/proc/{}/root{READY}", first.id());
    while !Path::new(&ready).exists() {
        if let Some(status) = first.try_wait()? {
            bail!("the first process ended ({status})");
        }
        sleep(Duration::from_millis(5));
    }
    println!("{}", first.id());
    // The caller ends the namespaces by closing its end of the pipe or by dying.
    io::copy(&mut io::stdin().take(u64::MAX), &mut io::sink())?;
    first.kill()?;
    first.wait()?;
    Ok(())
}

/// Runs as the first process: mounts the private directories and reaps orphaned processes as init
/// does.
fn first(layout: &[String]) -> Result<()> {
    leave_mount_namespace()?;
    match layout.split_first() {
        None => {
            fresh("proc", "/proc", None)?;
            fresh("tmpfs", "/run", Some("mode=755"))?;
            // dockerd makes a containerd that does not answer write its stack traces to /tmp.
            cover("/tmp", &own_directories()?)?;
            // containerd creates /opt/containerd and podman /var/lib/containers/cache even if their
            // data are configured to be elsewhere. boathook-init creates links in /usr/local/bin.
            for (directory, written) in [
                ("/etc", "/run/etc"),
                ("/opt", "/run/opt"),
                ("/usr/local/bin", "/run/usr-local-bin"),
                ("/var/lib", "/run/var-lib"),
            ] {
                layered(directory, written, directory)?;
            }
        }
        Some((root, directories)) => enter(root, directories)?,
    }
    fresh("tmpfs", "/dev/shm", None)?;
    cover_null_device()?;
    std::fs::create_dir("/run/lock")?;
    std::fs::write(READY, "")?;
    loop {
        if wait() == Err(Errno::ECHILD) {
            sleep(Duration::from_millis(50));
        }
    }
}

/// Mounts a new node over /dev/null. conmon sets the mode of its standard streams to 0777, and they
/// are /dev/null: the mode of the machine's node would change. The new node stays in /run, because
/// runtimes cannot mount a file whose name was removed.
fn cover_null_device() -> Result<()> {
    const NULL: &str = "/dev/null";
    let node = Path::new("/run/null");
    let mode = Mode::from_bits_truncate(0o666);
    mknod(node, SFlag::S_IFCHR, mode, makedev(1, 3)).context("cannot make a node of /dev/null")?;
    std::fs::set_permissions(node, Permissions::from_mode(0o666))?;
    mount(
        Some(node),
        NULL,
        None::<&str>,
        MsFlags::MS_BIND,
        None::<&str>,
    )
    .with_context(|| format!("cannot mount a node at {NULL}"))
}

/// Returns the directories that programs of the tests read: the source tree, cargo's output, and
/// the programs under test if they are elsewhere.
fn own_directories() -> Result<Vec<PathBuf>> {
    let mut directories = vec![
        binaries::source_tree().to_owned(),
        binaries::target_directory()?,
    ];
    if let Ok(program) = binaries::program("boathook") {
        directories.extend(program.parent().map(Path::to_owned));
    }
    Ok(directories)
}

/// Mounts an empty tmpfs on `path`, but keeps the directories of `kept` below it visible, because a
/// clone of the project may be in /tmp.
fn cover(path: &str, kept: &[PathBuf]) -> Result<()> {
    let bind = |source: &Path, target: &Path| {
        std::fs::create_dir_all(target)?;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(source), target, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("cannot bind {}", source.display()))
    };
    let below: Vec<&PathBuf> = kept.iter().filter(|it| it.starts_with(path)).collect();
    let aside = |index: usize| PathBuf::from(format!("/run/kept-{index}"));
    for (index, directory) in below.iter().enumerate() {
        bind(directory, &aside(index))?;
    }
    fresh("tmpfs", path, Some("mode=1777"))?;
    for (index, directory) in below.iter().enumerate() {
        bind(&aside(index), directory)?;
        umount2(&aside(index), MntFlags::MNT_DETACH)?;
        std::fs::remove_dir(aside(index))?;
    }
    Ok(())
}

/// Makes `root` the root file system, with an overlay in memory for changes.
fn enter(root: &str, directories: &[String]) -> Result<()> {
    const NEW: &str = "/run/root";
    let target = binaries::target_directory()?;
    fresh("tmpfs", "/run", Some("mode=755"))?;
    std::fs::create_dir(NEW)?;
    layered(root, "/run/written", NEW)?;
    for directory in ["/sys", "/dev", "/var/tmp"]
        .map(Path::new)
        .into_iter()
        .chain([&*target])
        .chain(directories.iter().map(Path::new))
    {
        let inside = Path::new(NEW).join(directory.strip_prefix("/")?);
        std::fs::create_dir_all(&inside)?;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(directory), &inside, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("cannot bind {}", directory.display()))?;
    }
    fresh("proc", &format!("{NEW}/proc"), None)?;
    fresh("tmpfs", &format!("{NEW}/run"), Some("mode=755"))?;
    // Both roots are stacked on `/` by this call, and the unmount then removes the old one
    // (pivot_root(2)).
    chdir(NEW)?;
    pivot_root(".", ".").context("cannot change the root")?;
    umount2(".", MntFlags::MNT_DETACH).context("cannot leave the old root")?;
    chdir("/")?;
    Ok(())
}

/// Mounts an overlay on `target` that shows the directory `lower` and writes changes to `written`.
fn layered(lower: &str, written: &str, target: &str) -> Result<()> {
    let work = format!("{written}-work");
    for directory in [written, &work] {
        std::fs::create_dir(directory)?;
    }
    let layers = format!("lowerdir={lower},upperdir={written},workdir={work}");
    fresh("overlay", target, Some(&layers))
}

fn fresh(kind: &str, target: &str, options: Option<&str>) -> Result<()> {
    mount(Some(kind), target, Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("cannot mount {kind} on {target}"))
}
