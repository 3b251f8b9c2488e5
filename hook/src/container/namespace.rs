//! Enters a container's mount namespace.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat, fstatat, stat, umask};

use super::procfs::read_proc;
use super::root::RootFacts;
use super::{
    ContainerRoot, Error, HANDLE, Handle, IdMap, IdMapError, Identity, Owner, Procfs, Reader,
    Resolver, Result, RootDir,
};

/// The size limit of an id map. The kernel allows 340 lines.
const MAP_CAP: u64 = 32 << 10;

/// The size limit of a process's `cgroup`: a line per hierarchy, each shorter than a path.
const MEMBERSHIP_CAP: u64 = 256 << 10;

/// The inode number of the initial user namespace (`USER_NS_INIT_INO` of
/// include/uapi/linux/nsfs.h).
pub(crate) const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// A container's mount namespace, before it is entered.
#[derive(Debug)]
pub struct ContainerNamespace {
    pid: i32,
    /// The process's directory in `/proc`.
    process: OwnedFd,
    mounts: OwnedFd,
    rootfs: PathBuf,
    /// The root directory on the host.
    root: Handle,
    facts: RootFacts,
    /// Whether its user namespace is below the host's.
    has_own_users: bool,
    proc: Rc<Procfs>,
}

impl ContainerNamespace {
    /// Opens the namespace of the container's first process, `pid`, which the
    /// engine passed, and reads the ids of its root user. `rootfs` is the
    /// engine's path of the container's root.
    ///
    /// Everything is read through one handle on the process: if it ends and its
    /// number is reused, the calls fail.
    ///
    /// # Errors
    /// [`Error::SameNamespace`] if the process has no namespace of its own;
    /// [`Error::IdMap`] if its user namespace has no root; [`Error::RootChanged`]
    /// if `rootfs` is another directory there than on the host; otherwise
    /// [`Error::File`].
    pub fn of(pid: i32, rootfs: &Path, resolver: Resolver) -> Result<Self> {
        let proc = Procfs::open()?;
        let process = proc.process(pid)?;
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mounts = openat(&process, "ns/mnt", flags, Mode::empty())
            .map_err(|errno| system(format!("/proc/{pid}/ns/mnt").into(), errno))?;
        let own_mounts = namespace(proc.this(), pid, "ns/mnt")?;
        if fstat(&mounts).is_ok_and(|stat| Identity::of(&stat) == own_mounts) {
            return Err(Error::SameNamespace { pid });
        }
        let users = namespace(&process, pid, "ns/user")?;
        let own_users = namespace(proc.this(), pid, "ns/user")?;
        let has_own_users = own_users.is_inode(INITIAL_USER_NAMESPACE) && users != own_users;
        let reader = if users == own_users {
            Reader::Inside
        } else {
            Reader::Outside
        };
        let uids = read_map(&process, pid, "uid_map")?;
        let gids = read_map(&process, pid, "gid_map")?;
        let owner = Owner::of(&uids, &gids, reader).map_err(|(file, reason)| Error::IdMap {
            pid,
            file,
            reason,
        })?;
        let root = RootDir::open(rootfs, Resolver::Walk)?.into_handle(rootfs)?;
        check_root(&process, rootfs, resolver, root.identity())?;
        let host_root = stat("/").map_err(|errno| system("/".into(), errno))?;
        let facts = RootFacts {
            owner,
            can_make_devices: users.is_inode(INITIAL_USER_NAMESPACE),
            is_host_root: root.identity() == Identity::of(&host_root),
            tmpfs: Vec::new(),
        };
        Ok(Self {
            pid,
            process,
            mounts,
            rootfs: rootfs.to_owned(),
            root,
            facts,
            has_own_users,
            proc: Rc::new(proc),
        })
    }

    /// The owner of files that are created in the container.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.facts.owner
    }

    /// Whether the container is in a user namespace, and this process in none: the engine
    /// keeps it from the host's users, as a rootless one does not.
    #[must_use]
    pub fn has_own_users(&self) -> bool {
        self.has_own_users
    }

    /// In which cgroup of each hierarchy the process is: its `/proc/PID/cgroup`, of the
    /// same process whose namespace this is.
    pub fn cgroups(&self) -> Result<Vec<u8>> {
        let path = || PathBuf::from(format!("/proc/{}/cgroup", self.pid));
        let bytes = read_proc(&self.process, "cgroup", MEMBERSHIP_CAP + 1, path)?;
        // A path that is cut short names another cgroup.
        if bytes.len() as u64 > MEMBERSHIP_CAP {
            return Err(Error::system("read", path(), Errno::EFBIG));
        }
        Ok(bytes)
    }

    /// Moves this process into the namespace and opens the container's root
    /// there, as it is before pivot_root. `tmpfs` are the paths at which the
    /// runtime mounts a new tmpfs, by config.json.
    ///
    /// A handle from the host leads to the host's mounts, so the path is
    /// resolved again. The result is accepted only if it is the same directory as
    /// on the host, on which a handle is kept. [`Self::of`] has checked that too,
    /// before anything was changed; what happened since is found here.
    ///
    /// The namespace cannot be left again. The umask is cleared, so that modes
    /// apply exactly, and until the root is dropped, files are created as the
    /// container's root.
    ///
    /// # Errors
    /// [`Error::Enter`] if the kernel refuses; it does so to a process with
    /// more than one thread. [`Error::RootChanged`].
    pub fn enter(self, tmpfs: &[PathBuf], resolver: Resolver) -> Result<ContainerRoot> {
        setns(&self.mounts, CloneFlags::CLONE_NEWNS).map_err(|errno| Error::Enter {
            pid: self.pid,
            errno,
        })?;
        umask(Mode::empty());
        let root = RootDir::open(&self.rootfs, resolver)?;
        let there = fstat(&root).map_err(|errno| system(self.rootfs.clone(), errno))?;
        if Identity::of(&there) != self.root.identity() {
            return Err(Error::RootChanged { path: self.rootfs });
        }
        let facts = RootFacts {
            tmpfs: tmpfs.to_vec(),
            ..self.facts
        };
        ContainerRoot::new(root, facts, self.proc)
    }
}

/// Checks that `rootfs` is the directory `expected` in the mount namespace of
/// `process`, without entering it.
fn check_root(
    process: &OwnedFd,
    rootfs: &Path,
    resolver: Resolver,
    expected: Identity,
) -> Result<()> {
    let top = openat(process, "root", HANDLE, Mode::empty())
        .map_err(|errno| system(rootfs.to_owned(), errno))?;
    let there = RootDir::new(top, resolver).lookup(rootfs)?;
    match there {
        Some(there) if there.identity() == expected => Ok(()),
        _ => Err(Error::RootChanged {
            path: rootfs.to_owned(),
        }),
    }
}

fn namespace(process: impl AsFd, pid: i32, file: &str) -> Result<Identity> {
    match fstatat(process, file, AtFlags::empty()) {
        Ok(stat) => Ok(Identity::of(&stat)),
        Err(errno) => Err(system(format!("/proc/{pid}/{file}").into(), errno)),
    }
}

fn system(path: PathBuf, errno: Errno) -> Error {
    Error::system("open", path, errno)
}

fn read_map(process: &OwnedFd, pid: i32, file: &'static str) -> Result<IdMap> {
    let bytes = read_proc(process, file, MAP_CAP, || {
        format!("/proc/{pid}/{file}").into()
    })?;
    // Invalid UTF-8 is an invalid first line.
    let text = std::str::from_utf8(&bytes).map_err(|_| IdMapError::Line { line: 1 });
    text.and_then(IdMap::parse)
        .map_err(|reason| Error::IdMap { pid, file, reason })
}
