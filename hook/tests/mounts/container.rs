//! A container's first process as the hook meets it: in its own mount
//! namespace, with its mounts made, before pivot_root.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{Gid, Uid, setgid, setuid};

/// How the container is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As engines do it by default.
    Plain,
    /// With its mounts shared with the host, as `rootfsPropagation: shared` does.
    Shared,
    /// With its root file system mounted read-only.
    ReadOnly,
    /// In a user namespace, with a tmpfs of that namespace at `/dev` and `/run`.
    UserNamespace,
    /// In a user namespace, with all of it on a file system of the host.
    UserNamespaceOnHost,
    /// With something else mounted over its root.
    MountedOver,
    /// In the user namespace of the hook, as with rootless engines.
    Rootless,
}

/// Where ids of a container with a user namespace begin on the host.
pub(crate) const FIRST_ID: u32 = 100_000;

const NONE: Option<&str> = None;

/// A running container. It ends with the value.
pub(crate) struct Container {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Container {
    pub(crate) fn start(base: &Path, kind: Kind) -> Result<Self> {
        let mut container = Self::spawn(&["--as-container", path(base)?, &kind.to_string()])?;
        if kind.has_user_namespace() {
            container.expect("unshared")?;
            let map = format!("0 {FIRST_ID} 65536\n");
            for file in ["uid_map", "gid_map"] {
                std::fs::write(format!("/proc/{}/{file}", container.child.id()), &map)?;
            }
            container
                .child
                .stdin
                .as_mut()
                .context("no stdin")?
                .write_all(b"mapped\n")?;
        }
        container.expect("ready")?;
        Ok(container)
    }

    /// A process that only stays where it was started, to look at that mount
    /// namespace from another.
    pub(crate) fn witness() -> Result<Self> {
        let mut witness = Self::spawn(&["--as-witness"])?;
        witness.expect("ready")?;
        Ok(witness)
    }

    /// A process that stays outside the user namespace which this process is
    /// about to make, and writes its maps.
    pub(crate) fn mapper(ids: u32) -> Result<Self> {
        let pid = std::process::id().to_string();
        Self::spawn(&["--as-mapper", &pid, &ids.to_string()])
    }

    /// Has the maps written.
    pub(crate) fn map(&mut self) -> Result<()> {
        let input = self.child.stdin.as_mut().context("no stdin")?;
        input.write_all(b"map\n")?;
        self.expect("mapped")
    }

    fn spawn(args: &[&str]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("no stdout")?);
        Ok(Self { child, output })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(
            line.trim_end() == word,
            "the container says {line:?}, and not {word}"
        );
        Ok(())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// What the container's process does.
pub(crate) fn run(base: &str, kind: &str) -> Result<()> {
    let kind = Kind::named(kind)?;
    if kind.has_user_namespace() {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        println!("unshared");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        ensure!(line == "mapped\n", "no maps were written");
        setgid(Gid::from_raw(0))?;
        setuid(Uid::from_raw(0))?;
    } else {
        unshare(CloneFlags::CLONE_NEWNS)?;
    }
    if kind != Kind::Shared {
        mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    }
    make_root(&Path::new(base).join("rootfs"), kind).context("cannot make the root")?;
    wait_for_end()
}

/// What the mapper's process does: maps `ids` ids of process `pid`.
pub(crate) fn map(pid: &str, ids: &str) -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    for file in ["uid_map", "gid_map"] {
        std::fs::write(
            format!("/proc/{pid}/{file}"),
            format!("0 {FIRST_ID} {ids}\n"),
        )?;
    }
    println!("mapped");
    Ok(())
}

/// Says that all is set up and waits until the input ends.
pub(crate) fn wait_for_end() -> Result<()> {
    println!("ready");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest)?;
    Ok(())
}

fn make_root(rootfs: &Path, kind: Kind) -> Result<()> {
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    match kind {
        // Nothing of its own: what is mounted goes to the mount of the base.
        Kind::Shared => return Ok(()),
        _ => mount(Some(rootfs), rootfs, NONE, bind, NONE)?,
    }
    for directory in ["dev", "etc", "usr/lib"] {
        std::fs::create_dir_all(rootfs.join(directory))?;
    }
    std::fs::write(rootfs.join("usr/lib/existing.so"), "the image's own")?;
    symlink("usr/lib", rootfs.join("lib"))?;
    if matches!(kind, Kind::UserNamespace | Kind::Rootless) {
        for directory in ["dev", "run"] {
            let point = rootfs.join(directory);
            std::fs::create_dir_all(&point)?;
            mount(Some("tmpfs"), &point, Some("tmpfs"), MsFlags::empty(), NONE)?;
        }
    }
    if kind.has_user_namespace() || kind == Kind::Rootless {
        return Ok(());
    }
    let dev = rootfs.join("dev");
    mount(Some("tmpfs"), &dev, Some("tmpfs"), MsFlags::MS_NOSUID, NONE)?;
    let mode = Mode::from_bits_truncate(0o666);
    mknod(&dev.join("zero"), SFlag::S_IFCHR, mode, makedev(1, 5))?;
    if kind == Kind::MountedOver {
        mount(Some("tmpfs"), rootfs, Some("tmpfs"), MsFlags::empty(), NONE)?;
    }
    if kind == Kind::ReadOnly {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
        mount(NONE, rootfs, NONE, flags, NONE)?;
    }
    Ok(())
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Plain,
        Self::Shared,
        Self::ReadOnly,
        Self::UserNamespace,
        Self::UserNamespaceOnHost,
        Self::MountedOver,
        Self::Rootless,
    ];

    fn has_user_namespace(self) -> bool {
        matches!(self, Self::UserNamespace | Self::UserNamespaceOnHost)
    }

    fn named(name: &str) -> Result<Self> {
        match Self::ALL.into_iter().find(|kind| kind.to_string() == name) {
            Some(kind) => Ok(kind),
            None => bail!("no such kind of container: {name}"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not text")
}
