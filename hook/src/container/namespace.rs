//! Enters a container's mount namespace.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat, fstatat, stat, umask};
use rooted_path::split_leaf;

use super::process::{living_thread_of_ended_leader, parent, start_time};
use super::procfs::read_proc;
use super::root::RootFacts;
use super::{
    ContainerRoot, Directory, Error, FileKind, HANDLE, Handle, IdMap, IdMapError, Identity, Owner,
    Procfs, Reader, Resolver, Result, RootDir,
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
    /// The directory of another thread, if the first one has ended and others go on: only
    /// a thread that lives has namespaces, a root and a working directory.
    thread: Option<OwnedFd>,
    mounts: OwnedFd,
    place: Place,
    root: Handle,
    facts: RootFacts,
    /// Whether its user namespace is below the host's.
    has_own_users: bool,
    proc: Rc<Procfs>,
}

/// Where the container's root is in its mount namespace.
#[derive(Debug)]
enum Place {
    /// While it is being created: where the engine has it.
    Path(PathBuf),
    /// Of a container that runs: the root of its first process.
    Root(RootDir),
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
    pub fn from_pid(pid: i32, rootfs: &Path, resolver: Resolver) -> Result<Self> {
        let proc = Procfs::open()?;
        let process = proc.process(pid)?;
        Self::open(proc, process, None, pid, rootfs, |_, process, root| {
            check_root(process, rootfs, resolver, root)?;
            Ok((Place::Path(rootfs.to_owned()), root))
        })
    }

    /// The same for a container that runs. Its first process may have any root by now: one
    /// that is not the directory that the engine made it on is refused, and so is a process
    /// that has the same number but was `started` at another time. `rootfs` may be a mount of
    /// the engine's namespace alone: that of the process that watches over the container.
    ///
    /// # Errors
    /// As [`Self::from_pid`]; [`Error::OtherProcess`], [`Error::OtherRoot`].
    pub fn of_running(
        pid: i32,
        started: Option<u64>,
        rootfs: &Path,
        resolver: Resolver,
    ) -> Result<Self> {
        let proc = Procfs::open()?;
        let process = proc.process(pid)?;
        if started.is_some_and(|started| start_time(&process, pid).ok() != Some(started)) {
            return Err(Error::OtherProcess { pid });
        }
        let thread = living_thread_of_ended_leader(&process, pid)?;
        Self::open(proc, process, thread, pid, rootfs, |proc, process, root| {
            let top = openat(process, "root", HANDLE, Mode::empty())
                .map_err(|errno| system(format!("/proc/{pid}/root").into(), errno))?;
            let there = fstat(&top).map_err(|errno| system(rootfs.to_owned(), errno))?;
            let there = Identity::from_stat(&there);
            let seen = || seen_by_parent(proc, process, pid, rootfs, resolver);
            match there == root || seen() == Some(there) {
                true => Ok((Place::Root(RootDir::new(top, resolver)), there)),
                false => Err(Error::OtherRoot {
                    pid,
                    path: rootfs.to_owned(),
                }),
            }
        })
    }

    fn open(
        proc: Procfs,
        process: OwnedFd,
        thread: Option<OwnedFd>,
        pid: i32,
        rootfs: &Path,
        place: impl FnOnce(&Procfs, &OwnedFd, Identity) -> Result<(Place, Identity)>,
    ) -> Result<Self> {
        let living = thread.as_ref().unwrap_or(&process);
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mounts = openat(living, "ns/mnt", flags, Mode::empty())
            .map_err(|errno| system(format!("/proc/{pid}/ns/mnt").into(), errno))?;
        let own_mounts = namespace(proc.this(), pid, "ns/mnt")?;
        if fstat(&mounts).is_ok_and(|stat| Identity::from_stat(&stat) == own_mounts) {
            return Err(Error::SameNamespace { pid });
        }
        let users = namespace(living, pid, "ns/user")?;
        let own_users = namespace(proc.this(), pid, "ns/user")?;
        let has_own_users = own_users.is_inode(INITIAL_USER_NAMESPACE) && users != own_users;
        let reader = if users == own_users {
            Reader::Inside
        } else {
            Reader::Outside
        };
        let uids = read_map(living, pid, "uid_map")?;
        let gids = read_map(living, pid, "gid_map")?;
        let owner = Owner::from_maps(&uids, &gids, reader)
            .map_err(|(file, reason)| Error::IdMap { pid, file, reason })?;
        let root = RootDir::open(rootfs, Resolver::Walk)?.into_handle(rootfs)?;
        let (place, identity) = place(&proc, living, root.identity())?;
        let host_root = stat("/").map_err(|errno| system("/".into(), errno))?;
        let facts = RootFacts {
            owner,
            can_make_devices: users.is_inode(INITIAL_USER_NAMESPACE),
            is_host_root: identity == Identity::from_stat(&host_root),
            tmpfs: Vec::new(),
        };
        Ok(Self {
            pid,
            process,
            thread,
            mounts,
            place,
            root,
            facts,
            has_own_users,
            proc: Rc::new(proc),
        })
    }

    /// The owner of files that are created in the container.
    pub fn owner(&self) -> Owner {
        self.facts.owner
    }

    /// Whether the container is in a user namespace, and this process in none: the engine
    /// keeps it from the host's users, as a rootless one does not.
    pub fn has_own_users(&self) -> bool {
        self.has_own_users
    }

    /// In which cgroup of each hierarchy the process is: its `/proc/PID/cgroup`, of the
    /// same process whose namespace this is.
    pub fn cgroups(&self) -> Result<Vec<u8>> {
        let path = || PathBuf::from(format!("/proc/{}/cgroup", self.pid));
        let living = self.thread.as_ref().unwrap_or(&self.process);
        let bytes = read_proc(living, "cgroup", MEMBERSHIP_CAP + 1, path)?;
        // A path that is cut short names another cgroup.
        if bytes.len() as u64 > MEMBERSHIP_CAP {
            return Err(Error::system("read", path(), Errno::EFBIG));
        }
        Ok(bytes)
    }

    pub(crate) fn network(&self) -> Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let living = self.thread.as_ref().unwrap_or(&self.process);
        openat(living, "ns/net", flags, Mode::empty())
            .map_err(|errno| system(format!("/proc/{}/ns/net", self.pid).into(), errno))
    }

    /// Whether a device node that is created in it can be opened.
    pub(crate) fn can_make_devices(&self) -> bool {
        self.facts.can_make_devices
    }

    /// When the process was started: field 22 of its `stat`, or that it has ended.
    pub fn started(&self) -> Result<u64> {
        start_time(&self.process, self.pid)
    }

    /// What the path of a container that runs leads to, without entering its namespace.
    pub fn look(&self, path: &Path) -> Result<Option<Handle>> {
        match &self.place {
            Place::Root(root) => Ok(root.lookup(path)?),
            Place::Path(_) => Ok(None),
        }
    }

    /// What has a name in a container that runs: a symbolic link itself.
    pub fn entry(&self, path: &Path) -> Result<Option<Handle>> {
        let (parent, name) = split_leaf(path)?;
        match self.look(parent)? {
            Some(found) if found.kind() == FileKind::Directory => {
                Directory::new(found.into_fd(), parent).open(name)
            }
            _ => Ok(None),
        }
    }

    /// Moves this process into the namespace and opens the container's root
    /// there, as it is before pivot_root. `tmpfs` are the paths at which the
    /// runtime mounts a new tmpfs, by config.json.
    ///
    /// A handle from the host leads to the host's mounts, so the path is
    /// resolved again. The result is accepted only if it is the same directory as
    /// on the host, on which a handle is kept. [`Self::from_pid`] has checked that too,
    /// before anything was changed; what happened since is found here.
    ///
    /// The namespace cannot be left again. The umask is cleared, so that modes
    /// apply exactly, and until the root is dropped, files are created as the
    /// container's root.
    ///
    /// # Errors
    /// [`Error::Enter`] if the kernel refuses; it does so to a process with
    /// more than one thread. [`Error::RootChanged`].
    pub fn enter(&self, tmpfs: &[PathBuf], resolver: Resolver) -> Result<ContainerRoot> {
        let proc = match self.place {
            Place::Path(_) => Rc::clone(&self.proc),
            // A child of the process that opened it has its own.
            Place::Root(_) => Rc::new(Procfs::open()?),
        };
        setns(&self.mounts, CloneFlags::CLONE_NEWNS).map_err(|errno| Error::Enter {
            pid: self.pid,
            errno,
        })?;
        umask(Mode::empty());
        let root = match &self.place {
            // Checked when it was opened, and the handle leads nowhere else.
            Place::Root(root) => RootDir::new(root.handle()?.into_fd(), resolver),
            Place::Path(path) => {
                let root = RootDir::open(path, resolver)?;
                let there = fstat(&root).map_err(|errno| system(path.clone(), errno))?;
                if Identity::from_stat(&there) != self.root.identity() {
                    return Err(Error::RootChanged { path: path.clone() });
                }
                root
            }
        };
        let facts = RootFacts {
            tmpfs: tmpfs.to_vec(),
            ..self.facts
        };
        ContainerRoot::new(root, facts, proc)
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

/// What `rootfs` is in the mount namespace of the process's parent: podman mounts the root of
/// a container with users of its own in that of conmon alone. The answer counts only if the
/// parent has this process's users and root directory, so that root alone can have mounted
/// anything there.
fn seen_by_parent(
    proc: &Procfs,
    process: &OwnedFd,
    pid: i32,
    rootfs: &Path,
    resolver: Resolver,
) -> Option<Identity> {
    let number = || parent(process, pid).ok();
    let parent = number()?;
    let directory = proc.process(parent).ok()?;
    let same = |file| {
        let (there, here) = (
            namespace(&directory, parent, file),
            namespace(proc.this(), pid, file),
        );
        there.ok().is_some_and(|there| Some(there) == here.ok())
    };
    // Another process may have had the number meanwhile.
    if !same("ns/user") || !same("root") || number() != Some(parent) {
        return None;
    }
    let top = openat(&directory, "root", HANDLE, Mode::empty()).ok()?;
    let found = RootDir::new(top, resolver).lookup(rootfs).ok()??;
    Some(found.identity())
}

fn namespace(process: impl AsFd, pid: i32, file: &str) -> Result<Identity> {
    match fstatat(process, file, AtFlags::empty()) {
        Ok(stat) => Ok(Identity::from_stat(&stat)),
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
