//! Moves network interfaces into the container's network namespace.
//!
//! When a network namespace ends, the kernel moves its hardware interfaces back to the host's
//! network namespace. So the hook need not undo the move. The containers of a pod share one network
//! namespace. It does not end when one container ends or fails to start. So the next start of the
//! container may find the interface already there.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use device_class::discover::{NetInterface, NetInterfaceSearch};
use device_class::host::RealHost;
use device_class::name::excerpt;
use host_files::rooted_path::read_regular_text;
use injection_plan::plan::{Action, InjectionPlan};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, fstat};

use super::ApplyError;
use crate::container::ContainerNamespace;
use crate::log;
use crate::sys::netlink::{LinkInfo, LinkSocket};
use crate::sys::process::run_in_child;

/// The time limit of a child process that enters a network namespace. After this time, the child
/// process is killed.
const CHILD_TIMEOUT: Duration = Duration::from_secs(2);

/// The time that the hook waits for the kernel to move an interface back to the host's network
/// namespace. After this time, the start of the container fails.
const INTERFACE_RETURN_TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of bytes that are read of a process's name (`/proc/PID/comm`). The kernel
/// limits the names of user programs to 15 bytes.
const MAX_COMM_BYTES: u64 = 64;

#[derive(Debug, thiserror::Error)]
pub enum NetInterfaceError {
    #[error(
        "none of its network interfaces is in the host's network namespace ({pattern}){}",
        describe_holding_process(holding_process)
    )]
    InterfaceNotOnHost {
        pattern: String,
        /// The description of a process that has the interface in its network namespace, such as
        /// `process 4711 (sh)`.
        holding_process: Option<String>,
    },
    #[error(
        "the container has a network interface {name} already: set another `name` with `netdev` in \
         the class"
    )]
    InterfaceNameTaken { name: String },
    #[error(
        "the network interface {name} cannot be moved: its driver keeps it in the host's network \
         namespace"
    )]
    InterfaceNotMovable { name: String },
    #[error("the network interface {name} cannot be {operation}")]
    LinkRequestFailed {
        name: String,
        operation: &'static str,
        #[source]
        errno: Errno,
    },
    #[error("a network interface of it in the container cannot be set up: {0}")]
    ExistingInterfaceNotSetUp(Errno),
    #[error("cannot look into the container's network namespace: {0}")]
    NamespaceInspection(String),
    #[error("cannot look for network interfaces in the host's network namespace")]
    HostInspection(#[source] Errno),
}

/// A network interface that will be moved to the container's network namespace. `link` contains its
/// index, and whether it was up on the host.
struct PlannedMove<'p> {
    interface: NetInterface,
    link: LinkInfo,
    /// The ids of the devices that need the interface. Messages about the move begin with this
    /// text.
    owner_labels: &'p str,
}

/// Network interfaces that will be moved into a container's network namespace. The value is created
/// while this process is in the host's namespaces. The moves are the last step of the container's
/// start.
pub(super) struct NetInterfaceMoves<'p> {
    namespace: OwnedFd,
    socket: LinkSocket,
    moves: Vec<PlannedMove<'p>>,
}

impl<'p> NetInterfaceMoves<'p> {
    /// Finds the interfaces of the plan on the host, and checks that their new names are free in
    /// the container. Returns `None` if no interface must be moved, for example because the
    /// container is in the host's network namespace.
    pub(super) fn prepare(
        plan: &'p InjectionPlan,
        container_namespace: &ContainerNamespace,
        host_root: &Path,
    ) -> Result<Option<Self>, ApplyError> {
        let steps = plan.steps.iter().filter_map(|step| match &step.action {
            Action::NetInterfaces { interfaces, search } => {
                Some((&*step.owner_labels, interfaces, search))
            }
            _ => None,
        });
        let steps: Vec<_> = steps.collect();
        if steps.is_empty() {
            return Ok(None);
        }
        let namespace = container_namespace.open_network_namespace()?;
        let is_host_namespace = is_current_namespace(&namespace);
        let to_host_error =
            |errno: Errno| ApplyError::from(NetInterfaceError::HostInspection(errno));
        let socket = LinkSocket::open().map_err(to_host_error)?;
        let mut moves = Vec::new();
        let mut new_names = BTreeSet::new();
        for (owner_labels, interfaces, search) in steps {
            let with_owner_labels =
                |error: NetInterfaceError| ApplyError::from(error).with_owner_labels(owner_labels);
            let mut host_links = find_links(&socket, interfaces).map_err(to_host_error)?;
            if host_links.is_empty() {
                // The containers of a pod share a network namespace. If a container of the pod is
                // started again, the interface is still there and need not be moved.
                let has_interface = !is_host_namespace
                    && has_interface_of_device(&namespace, search, host_root)
                        .map_err(with_owner_labels)?;
                if has_interface {
                    log::info(|| {
                        format!("{owner_labels}: the container has its network interface")
                    });
                    if let Err(error) = set_up_existing_interfaces(&namespace, search, host_root) {
                        log::warning(&format!("{owner_labels}: {error}"));
                    }
                    continue;
                }
                host_links =
                    wait_for_links(&socket, search, host_root).map_err(with_owner_labels)?;
            } else if !is_host_namespace {
                // A previous start may have failed after it moved only some of the interfaces.
                if let Err(error) = set_up_existing_interfaces(&namespace, search, host_root) {
                    log::info(|| format!("{owner_labels}: {error}"));
                }
            }
            if is_host_namespace {
                log::info(|| {
                    format!("{owner_labels}: the container is in the host's network namespace")
                });
                continue;
            }
            for (interface, link) in host_links {
                let name = interface.name_in_container.clone();
                let is_name_taken = !new_names.insert(name.clone())
                    || has_interface_with_name(&namespace, &name).map_err(with_owner_labels)?;
                if is_name_taken {
                    return Err(with_owner_labels(NetInterfaceError::InterfaceNameTaken {
                        name,
                    }));
                }
                moves.push(PlannedMove {
                    interface,
                    link,
                    owner_labels,
                });
            }
        }
        Ok((!moves.is_empty()).then_some(Self {
            namespace,
            socket,
            moves,
        }))
    }

    /// Moves the interfaces. A move sets an interface down. So interfaces that were up on the host
    /// are set up again, because the container's programs may lack CAP_NET_ADMIN.
    ///
    /// Returns a warning, and not an error, for each interface that cannot be set up. An error
    /// would only delay the container: its second start would find the interface in its network
    /// namespace and succeed.
    pub(super) fn move_interfaces(self) -> Result<Vec<String>, ApplyError> {
        let mut warnings = Vec::new();
        for PlannedMove {
            interface,
            link,
            owner_labels,
        } in &self.moves
        {
            let name = &interface.name_in_container;
            let move_result = self.socket.move_link(*link, self.namespace.as_fd(), name);
            let move_result = move_result.map_err(|errno| match errno {
                Errno::EEXIST => NetInterfaceError::InterfaceNameTaken { name: name.clone() },
                Errno::EINVAL => NetInterfaceError::InterfaceNotMovable {
                    name: interface.name.clone(),
                },
                errno => NetInterfaceError::LinkRequestFailed {
                    name: interface.name.clone(),
                    operation: "moved into the container's network namespace",
                    errno,
                },
            });
            move_result.map_err(|error| ApplyError::from(error).with_owner_labels(owner_labels))?;
            if link.is_up
                && let Err(error) = set_up_interface(&self.namespace, name)
            {
                warnings.push(format!(
                    "{owner_labels}: {}",
                    log::format_error_chain(&error)
                ));
            }
            log::info(|| {
                let host_name = &interface.name;
                format!("{owner_labels}: network interface {host_name} is the container's {name}")
            });
        }
        Ok(warnings)
    }
}

/// Returns the interfaces from `interfaces` that are in the network namespace of `socket`. Both the
/// name and the index must match, because udev may have given the name to another interface.
fn find_links(
    socket: &LinkSocket,
    interfaces: &[NetInterface],
) -> Result<Vec<(NetInterface, LinkInfo)>, Errno> {
    let mut links = Vec::new();
    for interface in interfaces {
        let link = socket.find_link(&interface.name)?;
        if let Some(link) = link.filter(|link| interface.index == Some(link.index)) {
            links.push((interface.clone(), link));
        }
    }
    Ok(links)
}

/// Waits until an interface of a device is in the host's network namespace, at most
/// [`INTERFACE_RETURN_TIMEOUT`]. When another container ends, the kernel moves its interfaces back
/// in the background.
fn wait_for_links(
    socket: &LinkSocket,
    search: &NetInterfaceSearch,
    host_root: &Path,
) -> Result<Vec<(NetInterface, LinkInfo)>, NetInterfaceError> {
    const POLL_INTERVAL: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + INTERFACE_RETURN_TIMEOUT;
    loop {
        let host = RealHost::open(host_root);
        let interfaces = host.ok().and_then(|host| search.find(&host).ok());
        let links = find_links(socket, &interfaces.unwrap_or_default());
        let links = links.map_err(NetInterfaceError::HostInspection)?;
        if !links.is_empty() {
            return Ok(links);
        }
        if Instant::now() >= deadline {
            let (pattern, holding_process) =
                (search.pattern(), find_holding_process(search, host_root));
            return Err(NetInterfaceError::InterfaceNotOnHost {
                pattern,
                holding_process,
            });
        }
        sleep(POLL_INTERVAL);
    }
}

fn describe_holding_process(holding_process: &Option<String>) -> String {
    match holding_process {
        Some(process) => format!(": it is in that of {process} until the container ends"),
        None => ": another container has it, or its driver has made none".to_owned(),
    }
}

/// The maximum number of other network namespaces that are searched for an interface. Each search
/// starts a child process. If the limit is reached, the error message names no process.
const MAX_SEARCHED_NAMESPACES: usize = 64;

/// Describes a process that has an interface of the device in its network namespace, for an error
/// message. Returns `None` if no such process is found.
fn find_holding_process(search: &NetInterfaceSearch, host_root: &Path) -> Option<String> {
    let mut searched_inodes = BTreeSet::new();
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let path = entry.path().join("ns/net");
        let Ok(namespace) = open(&path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()) else {
            continue;
        };
        let Ok(inode) = fstat(&namespace).map(|namespace| namespace.st_ino) else {
            continue;
        };
        if is_current_namespace(&namespace) || !searched_inodes.insert(inode) {
            continue;
        }
        if searched_inodes.len() > MAX_SEARCHED_NAMESPACES {
            return None;
        }
        if has_interface_of_device(&namespace, search, host_root)
            .is_ok_and(|has_interface| has_interface)
        {
            let name =
                read_regular_text(&entry.path().join("comm"), MAX_COMM_BYTES).unwrap_or_default();
            return Some(format!("process {pid} ({})", excerpt(name.trim())));
        }
    }
    None
}

/// Reports whether `namespace` is the network namespace of this process. Compares their device and
/// inode numbers. Returns false if they cannot be read.
fn is_current_namespace(namespace: &OwnedFd) -> bool {
    let (Ok(own_metadata), Ok(stat)) = (std::fs::metadata("/proc/self/ns/net"), fstat(namespace))
    else {
        return false;
    };
    (own_metadata.dev(), own_metadata.ino()) == (stat.st_dev, stat.st_ino)
}

/// Sets the interfaces of a device up if they are already in the container's network namespace. A
/// previous start of the container may have failed after it moved them and before it set them up.
///
/// All of these interfaces are set up, because it is no longer known which ones were up on the
/// host. The caller only logs an error, because some drivers need settings first, such as a bit
/// rate.
fn set_up_existing_interfaces(
    namespace: &OwnedFd,
    search: &NetInterfaceSearch,
    host_root: &Path,
) -> Result<(), NetInterfaceError> {
    let result = run_with_own_sysfs(namespace, host_root, |host| {
        let socket = LinkSocket::open()?;
        for (_, link) in find_links(&socket, &search.find(host).unwrap_or_default())? {
            if !link.is_up {
                socket.set_link_up(link)?;
            }
        }
        Ok(true)
    });
    result.map(drop).map_err(|error| match error {
        ChildError::Errno(errno) => NetInterfaceError::ExistingInterfaceNotSetUp(errno),
        ChildError::ChildFailed(reason) => NetInterfaceError::NamespaceInspection(reason),
    })
}

fn set_up_interface(namespace: &OwnedFd, name: &str) -> Result<(), NetInterfaceError> {
    let result = run_in_namespace(namespace, || {
        let socket = LinkSocket::open()?;
        let link = socket.find_link(name)?.ok_or(Errno::ENODEV)?;
        socket.set_link_up(link).map(|()| true)
    });
    result.map(drop).map_err(|error| match error {
        ChildError::Errno(errno) => NetInterfaceError::LinkRequestFailed {
            name: name.to_owned(),
            operation: "set up in the container, as it was on the host",
            errno,
        },
        ChildError::ChildFailed(reason) => NetInterfaceError::NamespaceInspection(reason),
    })
}

fn has_interface_with_name(namespace: &OwnedFd, name: &str) -> Result<bool, NetInterfaceError> {
    let has_interface = run_in_namespace(namespace, || {
        Ok(LinkSocket::open()?.find_link(name)?.is_some())
    });
    has_interface.map_err(NetInterfaceError::from)
}

/// Reports whether the network namespace `namespace` contains an interface of a device. `search`
/// finds the interfaces of this device in the sysfs of that namespace.
fn has_interface_of_device(
    namespace: &OwnedFd,
    search: &NetInterfaceSearch,
    host_root: &Path,
) -> Result<bool, NetInterfaceError> {
    let has_interface = run_with_own_sysfs(namespace, host_root, |host| {
        Ok(search
            .find(host)
            .is_ok_and(|interfaces| !interfaces.is_empty()))
    });
    has_interface.map_err(NetInterfaceError::from)
}

/// Runs `work` in a child process that has entered a network namespace. The child process mounts a
/// new sysfs at `/sys` in a mount namespace of its own. Such a sysfs shows the interfaces of the
/// network namespace in which it was mounted.
fn run_with_own_sysfs(
    namespace: &OwnedFd,
    host_root: &Path,
    work: impl FnOnce(&RealHost) -> Result<bool, Errno>,
) -> Result<bool, ChildError> {
    run_in_namespace(namespace, || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let no_argument = None::<&str>;
        mount(
            no_argument,
            "/",
            no_argument,
            MsFlags::MS_REC | MsFlags::MS_SLAVE,
            no_argument,
        )?;
        let sys_path: PathBuf = host_root.join("sys");
        mount(
            Some("sysfs"),
            &sys_path,
            Some("sysfs"),
            MsFlags::MS_RDONLY,
            no_argument,
        )?;
        let host = RealHost::open(host_root).map_err(|_| Errno::EIO)?;
        work(&host)
    })
}

/// The error of a function that runs in a child process.
enum ChildError {
    /// The function returned this error, or the child process could not be started.
    Errno(Errno),
    /// The child process did not return an answer, for example because it was killed at the time
    /// limit. The value is the reason.
    ChildFailed(String),
}

impl From<ChildError> for NetInterfaceError {
    fn from(error: ChildError) -> Self {
        NetInterfaceError::NamespaceInspection(match error {
            ChildError::Errno(errno) => errno.to_string(),
            ChildError::ChildFailed(reason) => reason,
        })
    }
}

/// Runs `work` in a child process that has entered the network namespace `namespace`. This process
/// stays in its own network namespace.
fn run_in_namespace(
    namespace: &OwnedFd,
    work: impl FnOnce() -> Result<bool, Errno>,
) -> Result<bool, ChildError> {
    let answer = run_in_child(CHILD_TIMEOUT, || {
        let result = setns(namespace, CloneFlags::CLONE_NEWNET).and_then(|()| work());
        match result {
            Ok(true) => "yes".to_owned(),
            Ok(false) => "no".to_owned(),
            Err(errno) => (errno as i32).to_string(),
        }
    });
    match answer.map_err(ChildError::Errno)?.as_deref() {
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        Some(number) => Err(ChildError::Errno(Errno::from_raw(
            number.parse().unwrap_or_default(),
        ))),
        None => Err(ChildError::ChildFailed(
            "a child process did not answer".into(),
        )),
    }
}
