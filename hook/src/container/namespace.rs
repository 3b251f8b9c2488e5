//! The way into a container's mount namespace.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use nix::fcntl::{OFlag, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat, umask};

use super::procfs::read_proc;
use super::{ContainerRoot, Error, IdMap, IdMapError, Owner, Procfs, Resolver, Result, RootDir};

/// What is read of an id map at most. The kernel allows 340 lines.
const MAP_CAP: u64 = 32 << 10;

/// A container's mount namespace, still seen from the host.
#[derive(Debug)]
pub struct ContainerNamespace {
    pid: i32,
    mounts: OwnedFd,
    owner: Owner,
    proc: Rc<Procfs>,
}

impl ContainerNamespace {
    /// Takes hold of the namespace of the container's first process, `pid` as
    /// the engine named it, and reads who its root user is.
    ///
    /// Everything is read through one handle on the process: if it ends and
    /// its number is given to another, the calls fail.
    ///
    /// # Errors
    /// [`Error::SameNamespace`] if the process has no namespace of its own;
    /// [`Error::IdMap`] if its user namespace has no root; otherwise
    /// [`Error::System`].
    pub fn of(pid: i32) -> Result<Self> {
        let proc = Procfs::open()?;
        let process = proc.process(pid)?;
        let mounts = open_mounts(&process, pid)?;
        if same_namespace(&mounts, &open_mounts(proc.this(), pid)?, pid)? {
            return Err(Error::SameNamespace { pid });
        }
        let uids = read_map(&process, pid, "uid_map")?;
        let gids = read_map(&process, pid, "gid_map")?;
        let owner =
            Owner::of(&uids, &gids).map_err(|(file, reason)| Error::IdMap { pid, file, reason })?;
        Ok(Self {
            pid,
            mounts,
            owner,
            proc: Rc::new(proc),
        })
    }

    /// Who files in the container are created as.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Moves this process into the namespace and opens the container's root
    /// there. `rootfs` is the engine's path of the root, before pivot_root:
    /// trusted, and resolved once.
    ///
    /// There is no way back. The umask becomes empty, so that modes are what
    /// they say, and as long as the root lives, files are created as the
    /// container's root.
    ///
    /// # Errors
    /// [`Error::Enter`] if the kernel refuses; it does so to a process with
    /// more than one thread.
    pub fn enter(self, rootfs: &Path, resolver: Resolver) -> Result<ContainerRoot> {
        setns(&self.mounts, CloneFlags::CLONE_NEWNS).map_err(|errno| Error::Enter {
            pid: self.pid,
            errno,
        })?;
        umask(Mode::empty());
        let root = RootDir::open(rootfs, resolver)?;
        ContainerRoot::new(root, self.owner, self.proc)
    }
}

fn open_mounts(process: impl AsFd, pid: i32) -> Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    openat(process, "ns/mnt", flags, Mode::empty()).map_err(|errno| Error::System {
        action: "open",
        path: format!("/proc/{pid}/ns/mnt").into(),
        errno,
    })
}

fn same_namespace(one: &OwnedFd, other: &OwnedFd, pid: i32) -> Result<bool> {
    let identity = |fd: &OwnedFd| match fstat(fd) {
        Ok(stat) => Ok((stat.st_dev, stat.st_ino)),
        Err(errno) => Err(Error::Enter { pid, errno }),
    };
    Ok(identity(one)? == identity(other)?)
}

fn read_map(process: &OwnedFd, pid: i32, file: &'static str) -> Result<IdMap> {
    let bytes = read_proc(process, file, MAP_CAP, || {
        format!("/proc/{pid}/{file}").into()
    })?;
    // What is not text has no line of three numbers either.
    let text = std::str::from_utf8(&bytes).map_err(|_| IdMapError::Line { line: 1 });
    text.and_then(IdMap::parse)
        .map_err(|reason| Error::IdMap { pid, file, reason })
}
