//! Finds a container's root file system and enters the container's mount namespace.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use host_files::rooted_path::split_leaf;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::libc::dev_t;
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat, fstatat, stat, umask};

use crate::mountinfo::{MAX_MOUNTINFO_BYTES, list_device_numbers};

use super::process::{find_main_thread_substitute, read_parent_pid, read_process_start_time};
use super::procfs::read_proc;
use super::root::RootProperties;
use super::{
    ContainerRoot, Directory, Error, FileKind, FileOwner, HANDLE_FLAGS, Handle, IdMap, IdMapError,
    Identity, Procfs, ReaderNamespace, Resolver, Result, RootDir,
};

/// The maximum size of `/proc/PID/uid_map` in bytes. The kernel allows at most 340 lines
/// (user_namespaces(7)).
const MAX_ID_MAP_BYTES: u64 = 32 << 10;

/// The maximum size of `/proc/PID/cgroup` in bytes. The file has about 15 lines on cgroup v1, one
/// for each hierarchy, and a line has at most about 4 KiB (PATH_MAX).
const MAX_CGROUP_FILE_BYTES: u64 = 256 << 10;

/// The inode number of the initial user namespace (`USER_NS_INIT_INO` of
/// `include/uapi/linux/nsfs.h`).
pub(crate) const INITIAL_USER_NAMESPACE_INODE: u64 = 0xEFFF_FFFD;

/// The mount namespace of a container, before this process has entered it.
#[derive(Debug)]
pub struct ContainerNamespace {
    pid: i32,
    /// A handle on the directory `/proc/PID` of the container's first process. It stays bound to
    /// this process, even if the kernel gives the id to another one.
    process_dir: OwnedFd,
    /// A handle on `/proc/PID/task/TID` of another thread, if the main thread has ended or is
    /// ending. It is needed because only a living thread has namespaces and a root directory.
    thread_dir: Option<OwnedFd>,
    mount_namespace: OwnedFd,
    root_location: RootLocation,
    root: Handle,
    properties: RootProperties,
    /// Whether this process is in the initial user namespace, and the container in another one.
    has_own_user_namespace: bool,
    procfs: Rc<Procfs>,
}

/// The way in which the container's root directory is found in the container's mount namespace.
#[derive(Debug)]
enum RootLocation {
    /// The path at which the engine has mounted the container's root. It is used for a container
    /// that is being created, whose first process has not changed its root directory yet.
    MountPath(PathBuf),
    /// The root directory of the container's first process. It is used for a running container.
    ProcessRoot(RootDir),
}

impl ContainerNamespace {
    /// Opens the mount namespace of a container that is being created. `pid` is the container's
    /// first process, which the engine passed to the hook. `rootfs` is the path of the container's
    /// root on the host.
    ///
    /// All files of `/proc/PID` are read through one handle. If the process ends and another
    /// process gets its id, the reads fail.
    ///
    /// # Errors
    /// - [`Error::SameNamespace`] if the process has no mount namespace of its own
    /// - [`Error::IdMap`] if the container's user namespace has no root user
    /// - [`Error::RootChanged`] if `rootfs` is another directory in the container's mount namespace
    ///   than on the host
    /// - [`Error::File`] if a file cannot be opened or read
    pub fn from_pid(pid: i32, rootfs: &Path, resolver: Resolver) -> Result<Self> {
        let procfs = Procfs::open()?;
        let process_dir = procfs.open_process(pid)?;
        Self::open(
            procfs,
            process_dir,
            None,
            pid,
            rootfs,
            |_, process_dir, root| {
                verify_root_identity(process_dir, rootfs, resolver, root)?;
                Ok((RootLocation::MountPath(rootfs.to_owned()), root))
            },
        )
    }

    /// Opens the mount namespace of a running container whose first process is `pid`. `rootfs` is
    /// the root directory that the engine created. It may be a mount that exists only in the mount
    /// namespace of the engine's monitor process, which is the parent of the container's first
    /// process.
    ///
    /// Fails if the process has changed its root to another directory, or if its start time is not
    /// `start_time`.
    ///
    /// # Errors
    /// The errors of [`Self::from_pid`], and also [`Error::ProcessIdReused`] and
    /// [`Error::UnexpectedProcessRoot`].
    pub fn from_running_container(
        pid: i32,
        start_time: Option<u64>,
        rootfs: &Path,
        resolver: Resolver,
    ) -> Result<Self> {
        let procfs = Procfs::open()?;
        let process_dir = procfs.open_process(pid)?;
        if start_time.is_some_and(|start_time| {
            read_process_start_time(&process_dir, pid).ok() != Some(start_time)
        }) {
            return Err(Error::ProcessIdReused { pid });
        }
        let thread_dir = find_main_thread_substitute(&process_dir, pid)?;
        Self::open(
            procfs,
            process_dir,
            thread_dir,
            pid,
            rootfs,
            |procfs, process_dir, root| {
                let root_directory = openat(process_dir, "root", HANDLE_FLAGS, Mode::empty())
                    .map_err(|errno| open_error(format!("/proc/{pid}/root").into(), errno))?;
                let stat =
                    fstat(&root_directory).map_err(|errno| open_error(rootfs.to_owned(), errno))?;
                let root_in_container = Identity::from_stat(&stat);
                let identify_in_parent =
                    || identify_root_in_parent(procfs, process_dir, pid, rootfs, resolver);
                if root_in_container == root || identify_in_parent() == Some(root_in_container) {
                    Ok((
                        RootLocation::ProcessRoot(RootDir::new(root_directory, resolver)),
                        root_in_container,
                    ))
                } else {
                    Err(Error::UnexpectedProcessRoot {
                        pid,
                        path: rootfs.to_owned(),
                    })
                }
            },
        )
    }

    fn open(
        procfs: Procfs,
        process_dir: OwnedFd,
        thread_dir: Option<OwnedFd>,
        pid: i32,
        rootfs: &Path,
        locate_root: impl FnOnce(&Procfs, &OwnedFd, Identity) -> Result<(RootLocation, Identity)>,
    ) -> Result<Self> {
        let living_thread = thread_dir.as_ref().unwrap_or(&process_dir);
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let mount_namespace = openat(living_thread, "ns/mnt", flags, Mode::empty())
            .map_err(|errno| open_error(format!("/proc/{pid}/ns/mnt").into(), errno))?;
        let own_mount_namespace = identify_proc_file(procfs.self_dir(), pid, "ns/mnt")?;
        if fstat(&mount_namespace)
            .is_ok_and(|stat| Identity::from_stat(&stat) == own_mount_namespace)
        {
            return Err(Error::SameNamespace { pid });
        }
        let user_namespace = identify_proc_file(living_thread, pid, "ns/user")?;
        let own_user_namespace = identify_proc_file(procfs.self_dir(), pid, "ns/user")?;
        let has_own_user_namespace = own_user_namespace
            .has_inode_number(INITIAL_USER_NAMESPACE_INODE)
            && user_namespace != own_user_namespace;
        let reader = if user_namespace == own_user_namespace {
            ReaderNamespace::Same
        } else {
            ReaderNamespace::Ancestor
        };
        let uids = read_id_map(living_thread, pid, "uid_map")?;
        let gids = read_id_map(living_thread, pid, "gid_map")?;
        let owner = FileOwner::from_maps(&uids, &gids, reader)
            .map_err(|(file, reason)| Error::IdMap { pid, file, reason })?;
        let root = RootDir::open(rootfs, Resolver::Walk)?.into_handle(rootfs)?;
        let (root_location, identity) = locate_root(&procfs, living_thread, root.identity())?;
        let host_root = stat("/").map_err(|errno| open_error("/".into(), errno))?;
        let properties = RootProperties {
            owner,
            can_create_device_nodes: user_namespace.has_inode_number(INITIAL_USER_NAMESPACE_INODE),
            is_host_root: identity == Identity::from_stat(&host_root),
            tmpfs_paths: Vec::new(),
            host_device_numbers: BTreeSet::new(),
        };
        Ok(Self {
            pid,
            process_dir,
            thread_dir,
            mount_namespace,
            root_location,
            root,
            properties,
            has_own_user_namespace,
            procfs: Rc::new(procfs),
        })
    }

    /// Returns the user and the group that will own new files in the container, as ids of the host.
    /// They are the container's root user and its group.
    pub fn owner(&self) -> FileOwner {
        self.properties.owner
    }

    /// Reports whether the container has a user namespace of its own, and this process is in the
    /// initial user namespace. Returns false for a rootless engine, because it starts the hook in
    /// the container's user namespace.
    pub fn has_own_user_namespace(&self) -> bool {
        self.has_own_user_namespace
    }

    /// Returns the content of `/proc/PID/cgroup`, which lists the cgroup of the process in each
    /// hierarchy. The file is read through the handle on the process. So it cannot belong to a
    /// later process with the same id.
    pub fn read_cgroup_file(&self) -> Result<Vec<u8>> {
        let path = || PathBuf::from(format!("/proc/{}/cgroup", self.pid));
        let living_thread = self.thread_dir.as_ref().unwrap_or(&self.process_dir);
        let bytes = read_proc(living_thread, "cgroup", MAX_CGROUP_FILE_BYTES + 1, path)?;
        // A longer file is refused. If it were cut off, the end of the content could be the path of
        // another cgroup.
        if bytes.len() as u64 > MAX_CGROUP_FILE_BYTES {
            return Err(Error::system("read", path(), Errno::EFBIG));
        }
        Ok(bytes)
    }

    /// Opens the network namespace of the container (`/proc/PID/ns/net`), for example to move a
    /// network interface into it.
    pub fn open_network_namespace(&self) -> Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let living_thread = self.thread_dir.as_ref().unwrap_or(&self.process_dir);
        openat(living_thread, "ns/net", flags, Mode::empty())
            .map_err(|errno| open_error(format!("/proc/{}/ns/net", self.pid).into(), errno))
    }

    /// Reports whether the container is in the initial user namespace. In any other user namespace,
    /// it is useless to create device nodes, because the kernel does not let processes open them.
    pub fn can_create_device_nodes(&self) -> bool {
        self.properties.can_create_device_nodes
    }

    /// Returns the start time of the container's first process, in clock ticks since the boot
    /// (field 22 of `/proc/PID/stat`). Fails if the process has ended.
    pub fn read_start_time(&self) -> Result<u64> {
        read_process_start_time(&self.process_dir, self.pid)
    }

    /// Opens a file of a running container, without entering the container's mount namespace.
    /// Returns `None` if the file does not exist, or if the container is not running yet.
    pub fn open_file(&self, path: &Path) -> Result<Option<Handle>> {
        match &self.root_location {
            RootLocation::ProcessRoot(root) => Ok(root.lookup(path)?),
            RootLocation::MountPath(_) => Ok(None),
        }
    }

    /// Opens a directory of a running container, without entering the container's mount namespace.
    /// Returns `None` if nothing exists at the path, if it is not a directory, or if the container
    /// is not running yet.
    pub fn open_directory(&self, path: &Path) -> Result<Option<Directory>> {
        let file = self.open_file(path)?;
        let directory = file.filter(|file| file.kind() == FileKind::Directory);
        Ok(directory.map(|file| Directory::new(file.into_fd(), path)))
    }

    /// Opens a file of a running container like [`Self::open_file`], but does not follow a symbolic
    /// link at the end of the path. The handle is then on the link itself.
    pub fn open_entry(&self, path: &Path) -> Result<Option<Handle>> {
        let (parent, name) = split_leaf(path)?;
        match self.open_directory(parent)? {
            Some(directory) => directory.open(name),
            None => Ok(None),
        }
    }

    /// Moves this process into the container's mount namespace, and opens the container's root
    /// there. The process cannot leave this namespace again. `tmpfs_paths` contains the paths at
    /// which the runtime mounts a new tmpfs because config.json says so, such as `/dev`.
    ///
    /// A handle that was opened on the host leads to the host's mounts. So the path of the root is
    /// resolved again in the container's mount namespace. The result must be the directory that
    /// [`Self::from_pid`] opened. [`Self::from_pid`] has already checked this once. The second
    /// check here detects that the directory was replaced since then.
    ///
    /// The umask of this process is cleared, so that new files have exactly the given modes. New
    /// files belong to the container's root user until the returned root is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::RootChanged`] if the root was replaced. [`Error::Enter`] if the kernel refuses
    /// setns(2), for example because this process has more than one thread.
    pub fn enter(&self, tmpfs_paths: &[PathBuf], resolver: Resolver) -> Result<ContainerRoot> {
        let (procfs, host_device_numbers) = match self.root_location {
            RootLocation::MountPath(_) => (Rc::clone(&self.procfs), BTreeSet::new()),
            // This process may be a child of the process that opened the namespace. The old handles
            // on `/proc/self` lead to the parent, so new handles are opened.
            RootLocation::ProcessRoot(_) => {
                let procfs = Rc::new(Procfs::open()?);
                let host_device_numbers = read_mounted_device_numbers(&procfs)?;
                (procfs, host_device_numbers)
            }
        };
        setns(&self.mount_namespace, CloneFlags::CLONE_NEWNS).map_err(|errno| Error::Enter {
            pid: self.pid,
            errno,
        })?;
        umask(Mode::empty());
        let root = match &self.root_location {
            // `from_running_container` opened this handle inside the container's mount namespace
            // and checked the directory. So no second check is needed.
            RootLocation::ProcessRoot(root) => RootDir::new(root.handle()?.into_fd(), resolver),
            RootLocation::MountPath(path) => {
                let root = RootDir::open(path, resolver)?;
                let root_in_container =
                    fstat(&root).map_err(|errno| open_error(path.clone(), errno))?;
                if Identity::from_stat(&root_in_container) != self.root.identity() {
                    return Err(Error::RootChanged { path: path.clone() });
                }
                root
            }
        };
        let properties = RootProperties {
            tmpfs_paths: tmpfs_paths.to_vec(),
            host_device_numbers,
            ..self.properties
        };
        ContainerRoot::new(root, properties, procfs)
    }
}

/// Returns the device numbers of the file systems that are mounted in the mount namespace of this
/// process.
fn read_mounted_device_numbers(procfs: &Procfs) -> Result<BTreeSet<dev_t>> {
    let path = || PathBuf::from("/proc/self/mountinfo");
    let mountinfo = read_proc(
        procfs.self_dir(),
        "mountinfo",
        MAX_MOUNTINFO_BYTES + 1,
        path,
    )?;
    // The end of a longer file would be missing, and a file system of the host with it.
    if mountinfo.len() as u64 > MAX_MOUNTINFO_BYTES {
        return Err(Error::system("read", path(), Errno::EFBIG));
    }
    Ok(list_device_numbers(&mountinfo))
}

/// Fails unless the container's process sees the directory `expected_identity` at the path
/// `rootfs`. `process_dir` is a handle on `/proc/PID` of that process. The path is resolved through
/// its link `root`, so that this process need not enter the other mount namespace.
fn verify_root_identity(
    process_dir: &OwnedFd,
    rootfs: &Path,
    resolver: Resolver,
    expected_identity: Identity,
) -> Result<()> {
    let root_directory = openat(process_dir, "root", HANDLE_FLAGS, Mode::empty())
        .map_err(|errno| open_error(rootfs.to_owned(), errno))?;
    let root_in_container = RootDir::new(root_directory, resolver).lookup(rootfs)?;
    match root_in_container {
        Some(root_in_container) if root_in_container.identity() == expected_identity => Ok(()),
        _ => Err(Error::RootChanged {
            path: rootfs.to_owned(),
        }),
    }
}

/// Returns the identity of `rootfs` as the parent of the container's first process sees it. Under
/// podman, this parent is the monitor process conmon. For a container with its own user namespace,
/// podman mounts the root file system only in the mount namespace of conmon.
///
/// Returns `None` if the parent has another user namespace or root directory than this process. In
/// that case, the parent is not trusted: a user other than root could have mounted a file system at
/// `rootfs`.
fn identify_root_in_parent(
    procfs: &Procfs,
    process_dir: &OwnedFd,
    pid: i32,
    rootfs: &Path,
    resolver: Resolver,
) -> Option<Identity> {
    let read_parent = || read_parent_pid(process_dir, pid).ok();
    let parent_pid = read_parent()?;
    let parent = procfs.open_process(parent_pid).ok()?;
    let is_same_file = |file| {
        let identity_of_parent = identify_proc_file(&parent, parent_pid, file).ok();
        let own_identity = identify_proc_file(procfs.self_dir(), pid, file).ok();
        identity_of_parent.is_some() && identity_of_parent == own_identity
    };
    // The parent's id is read again, because the parent may have ended since the first read, and
    // another process may have got its id.
    if !is_same_file("ns/user") || !is_same_file("root") || read_parent() != Some(parent_pid) {
        return None;
    }
    let parent_root = openat(&parent, "root", HANDLE_FLAGS, Mode::empty()).ok()?;
    let directory = RootDir::new(parent_root, resolver).lookup(rootfs).ok()??;
    Some(directory.identity())
}

/// Returns the identity of the namespace or directory to which the link `file` in `/proc/PID`
/// leads, such as `ns/user` or `root`.
fn identify_proc_file(process_dir: impl AsFd, pid: i32, file: &str) -> Result<Identity> {
    match fstatat(process_dir, file, AtFlags::empty()) {
        Ok(stat) => Ok(Identity::from_stat(&stat)),
        Err(errno) => Err(open_error(format!("/proc/{pid}/{file}").into(), errno)),
    }
}

fn open_error(path: PathBuf, errno: Errno) -> Error {
    Error::system("open", path, errno)
}

fn read_id_map(process_dir: &OwnedFd, pid: i32, file: &'static str) -> Result<IdMap> {
    let bytes = read_proc(process_dir, file, MAX_ID_MAP_BYTES, || {
        format!("/proc/{pid}/{file}").into()
    })?;
    // If the file is not UTF-8, the error names line 1.
    let text = std::str::from_utf8(&bytes).map_err(|_| IdMapError::Line { line: 1 });
    text.and_then(IdMap::parse)
        .map_err(|reason| Error::IdMap { pid, file, reason })
}
