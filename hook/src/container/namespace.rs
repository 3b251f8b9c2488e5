//! Enters a container's mount namespace.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat, fstatat, stat, umask};
use rooted_path::split_leaf;

use super::process::{find_thread_of_ended_leader, read_parent_pid, start_time};
use super::procfs::read_proc;
use super::root::RootFacts;
use super::{
    ContainerRoot, Directory, Error, FileKind, FileOwner, HANDLE, Handle, IdMap, IdMapError,
    Identity, MapReader, Procfs, Resolver, Result, RootDir,
};

/// The size limit of an id map in bytes. The kernel allows 340 lines.
const MAP_CAP: u64 = 32 << 10;

/// The size limit of `/proc/PID/cgroup` in bytes. The file has one line per hierarchy, and
/// each is shorter than a path may be.
const MEMBERSHIP_CAP: u64 = 256 << 10;

/// The inode number of the initial user namespace (`USER_NS_INIT_INO` of
/// `include/uapi/linux/nsfs.h`).
pub(crate) const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// A container's mount namespace, before this process enters it.
#[derive(Debug)]
pub struct ContainerNamespace {
    pid: i32,
    /// The directory of the container's first process in `/proc`.
    process: OwnedFd,
    /// The directory of another thread, if the first thread has ended and others run. Only a
    /// living thread has namespaces, a root and a working directory.
    thread: Option<OwnedFd>,
    mounts: OwnedFd,
    location: RootLocation,
    root: Handle,
    facts: RootFacts,
    /// Whether the container's user namespace is below that of the host.
    has_own_user_namespace: bool,
    proc: Rc<Procfs>,
}

/// The location of the container's root in its mount namespace.
#[derive(Debug)]
enum RootLocation {
    /// While the container is being created: the path at which the engine has mounted the
    /// root.
    Path(PathBuf),
    /// While the container runs: the root directory of its first process.
    Root(RootDir),
}

impl ContainerNamespace {
    /// Opens the mount namespace of a container that is being created, and reads the ids of
    /// its root user. `pid` is its first process, as the engine passed it, and `rootfs` is the
    /// path of its root on the host.
    ///
    /// All files are read through one handle on the process. If the process ends and another
    /// gets its number, the reads fail.
    ///
    /// # Errors
    /// * [`Error::SameNamespace`] if the process has no mount namespace of its own
    /// * [`Error::IdMap`] if its user namespace has no root user
    /// * [`Error::RootChanged`] if `rootfs` is another directory in it than on the host
    /// * [`Error::File`] if a file cannot be opened or read
    pub fn from_pid(pid: i32, rootfs: &Path, resolver: Resolver) -> Result<Self> {
        let proc = Procfs::open()?;
        let process = proc.process(pid)?;
        Self::open(proc, process, None, pid, rootfs, |_, process, root| {
            check_root(process, rootfs, resolver, root)?;
            Ok((RootLocation::Path(rootfs.to_owned()), root))
        })
    }

    /// Opens the mount namespace of a container that runs. Its first process can have changed
    /// its root; it is refused if the root is not the directory that the engine created. A
    /// process with the same number that was not started at `started` is refused too. `rootfs`
    /// may be a mount that exists only in the mount namespace of the engine's monitor process,
    /// the parent of the container's first process.
    ///
    /// # Errors
    /// The errors of [`Self::from_pid`], [`Error::OtherProcess`] and [`Error::OtherRoot`].
    pub fn from_running(
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
        let thread = find_thread_of_ended_leader(&process, pid)?;
        Self::open(proc, process, thread, pid, rootfs, |proc, process, root| {
            let top = openat(process, "root", HANDLE, Mode::empty())
                .map_err(|errno| system(format!("/proc/{pid}/root").into(), errno))?;
            let stat = fstat(&top).map_err(|errno| system(rootfs.to_owned(), errno))?;
            let root_in_container = Identity::from_stat(&stat);
            let identify_in_parent =
                || identify_root_in_parent(proc, process, pid, rootfs, resolver);
            if root_in_container == root || identify_in_parent() == Some(root_in_container) {
                Ok((
                    RootLocation::Root(RootDir::new(top, resolver)),
                    root_in_container,
                ))
            } else {
                Err(Error::OtherRoot {
                    pid,
                    path: rootfs.to_owned(),
                })
            }
        })
    }

    fn open(
        proc: Procfs,
        process: OwnedFd,
        thread: Option<OwnedFd>,
        pid: i32,
        rootfs: &Path,
        location: impl FnOnce(&Procfs, &OwnedFd, Identity) -> Result<(RootLocation, Identity)>,
    ) -> Result<Self> {
        let living = thread.as_ref().unwrap_or(&process);
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mounts = openat(living, "ns/mnt", flags, Mode::empty())
            .map_err(|errno| system(format!("/proc/{pid}/ns/mnt").into(), errno))?;
        let own_namespace = namespace_identity(proc.own_process(), pid, "ns/mnt")?;
        if fstat(&mounts).is_ok_and(|stat| Identity::from_stat(&stat) == own_namespace) {
            return Err(Error::SameNamespace { pid });
        }
        let users = namespace_identity(living, pid, "ns/user")?;
        let own_users = namespace_identity(proc.own_process(), pid, "ns/user")?;
        let has_own_user_namespace =
            own_users.is_inode(INITIAL_USER_NAMESPACE) && users != own_users;
        let reader = if users == own_users {
            MapReader::Inside
        } else {
            MapReader::Outside
        };
        let uids = read_map(living, pid, "uid_map")?;
        let gids = read_map(living, pid, "gid_map")?;
        let owner = FileOwner::from_maps(&uids, &gids, reader)
            .map_err(|(file, reason)| Error::IdMap { pid, file, reason })?;
        let root = RootDir::open(rootfs, Resolver::Walk)?.into_handle(rootfs)?;
        let (location, identity) = location(&proc, living, root.identity())?;
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
            location,
            root,
            facts,
            has_own_user_namespace,
            proc: Rc::new(proc),
        })
    }

    /// Returns the owner of files that are created in the container.
    pub fn owner(&self) -> FileOwner {
        self.facts.owner
    }

    /// Returns whether the container is in a user namespace of its own while this process is
    /// in the host's. The engine then protects the host's users from it, which a rootless
    /// engine does not.
    pub fn has_own_user_namespace(&self) -> bool {
        self.has_own_user_namespace
    }

    /// Returns the content of `/proc/PID/cgroup`: the cgroup of the process in each hierarchy.
    /// The file is read through the handle on the process, so it belongs to the process of
    /// this namespace.
    pub fn read_cgroups(&self) -> Result<Vec<u8>> {
        let path = || PathBuf::from(format!("/proc/{}/cgroup", self.pid));
        let living = self.thread.as_ref().unwrap_or(&self.process);
        let bytes = read_proc(living, "cgroup", MEMBERSHIP_CAP + 1, path)?;
        // The file is refused if it is longer, because a path that is cut short is the path of
        // another cgroup.
        if bytes.len() as u64 > MEMBERSHIP_CAP {
            return Err(Error::system("read", path(), Errno::EFBIG));
        }
        Ok(bytes)
    }

    pub(crate) fn open_network_namespace(&self) -> Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let living = self.thread.as_ref().unwrap_or(&self.process);
        openat(living, "ns/net", flags, Mode::empty())
            .map_err(|errno| system(format!("/proc/{}/ns/net", self.pid).into(), errno))
    }

    /// Returns whether a device node that is created in the container can be opened there.
    pub(crate) fn can_make_devices(&self) -> bool {
        self.facts.can_make_devices
    }

    /// Returns the time at which the process was started, in clock ticks since the boot (field
    /// 22 of `/proc/PID/stat`). Fails if the process has ended.
    pub fn read_start_time(&self) -> Result<u64> {
        start_time(&self.process, self.pid)
    }

    /// Opens a file of a container that runs, without entering its namespace. Returns `None`
    /// if the file does not exist, or if the container does not run yet.
    pub fn open_file(&self, path: &Path) -> Result<Option<Handle>> {
        match &self.location {
            RootLocation::Root(root) => Ok(root.lookup(path)?),
            RootLocation::Path(_) => Ok(None),
        }
    }

    /// Opens a file of a container that runs, without following a symbolic link at the end of
    /// the path.
    pub fn open_entry(&self, path: &Path) -> Result<Option<Handle>> {
        let (parent, name) = split_leaf(path)?;
        match self.open_file(parent)? {
            Some(found) if found.kind() == FileKind::Directory => {
                Directory::new(found.into_fd(), parent).open(name)
            }
            _ => Ok(None),
        }
    }

    /// Moves this process into the mount namespace, and opens the container's root there as it
    /// is before pivot_root. `tmpfs` are the paths at which the runtime mounts a new tmpfs,
    /// according to config.json.
    ///
    /// A handle that was opened on the host leads to the host's mounts, so the path of the
    /// root is resolved again. The result must be the same directory as on the host, to which
    /// this value holds a handle. [`Self::from_pid`] has checked that already, before anything
    /// was changed; the second check finds a replacement that happened since.
    ///
    /// A process cannot leave the namespace again. The umask is cleared, so that modes apply
    /// exactly. Files are created as the container's root user until the returned root is
    /// dropped.
    ///
    /// # Errors
    /// [`Error::RootChanged`] if the root was replaced, and [`Error::Enter`] if the kernel
    /// refuses, for example because the process has more than one thread.
    pub fn enter(&self, tmpfs: &[PathBuf], resolver: Resolver) -> Result<ContainerRoot> {
        let proc = match self.location {
            RootLocation::Path(_) => Rc::clone(&self.proc),
            // This process may be a child of the process that opened the namespace. It needs
            // handles on its own files in `/proc`.
            RootLocation::Root(_) => Rc::new(Procfs::open()?),
        };
        setns(&self.mounts, CloneFlags::CLONE_NEWNS).map_err(|errno| Error::Enter {
            pid: self.pid,
            errno,
        })?;
        umask(Mode::empty());
        let root = match &self.location {
            // The root was checked when it was opened, and its handle cannot lead to another
            // directory.
            RootLocation::Root(root) => RootDir::new(root.handle()?.into_fd(), resolver),
            RootLocation::Path(path) => {
                let root = RootDir::open(path, resolver)?;
                let root_in_container =
                    fstat(&root).map_err(|errno| system(path.clone(), errno))?;
                if Identity::from_stat(&root_in_container) != self.root.identity() {
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

/// Checks that `rootfs` is the directory `expected` in the mount namespace of `process`,
/// without entering the namespace.
fn check_root(
    process: &OwnedFd,
    rootfs: &Path,
    resolver: Resolver,
    expected: Identity,
) -> Result<()> {
    let top = openat(process, "root", HANDLE, Mode::empty())
        .map_err(|errno| system(rootfs.to_owned(), errno))?;
    let root_in_container = RootDir::new(top, resolver).lookup(rootfs)?;
    match root_in_container {
        Some(root_in_container) if root_in_container.identity() == expected => Ok(()),
        _ => Err(Error::RootChanged {
            path: rootfs.to_owned(),
        }),
    }
}

/// Returns the identity of `rootfs` in the mount namespace of the parent process. podman
/// mounts the root of a container with its own user namespace only in the namespace of conmon.
/// The result counts only if the parent has the same user namespace and root directory as this
/// process, because then only root can have mounted anything there.
fn identify_root_in_parent(
    proc: &Procfs,
    process: &OwnedFd,
    pid: i32,
    rootfs: &Path,
    resolver: Resolver,
) -> Option<Identity> {
    let number = || read_parent_pid(process, pid).ok();
    let parent = number()?;
    let directory = proc.process(parent).ok()?;
    let same = |file| {
        let (root_in_container, here) = (
            namespace_identity(&directory, parent, file),
            namespace_identity(proc.own_process(), pid, file),
        );
        root_in_container
            .ok()
            .is_some_and(|root_in_container| Some(root_in_container) == here.ok())
    };
    // The parent may have ended, and another process may have got its number.
    if !same("ns/user") || !same("root") || number() != Some(parent) {
        return None;
    }
    let top = openat(&directory, "root", HANDLE, Mode::empty()).ok()?;
    let found = RootDir::new(top, resolver).lookup(rootfs).ok()??;
    Some(found.identity())
}

fn namespace_identity(process: impl AsFd, pid: i32, file: &str) -> Result<Identity> {
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
    // Text that is not UTF-8 is reported as an error in the first line.
    let text = std::str::from_utf8(&bytes).map_err(|_| IdMapError::Line { line: 1 });
    text.and_then(IdMap::parse)
        .map_err(|reason| Error::IdMap { pid, file, reason })
}
