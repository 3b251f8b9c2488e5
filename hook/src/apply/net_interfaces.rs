//! Moves network interfaces into the container's network namespace.
//!
//! The kernel moves an interface of hardware back to the initial namespace when the container's
//! namespace ends, so that nothing has to be undone. The namespace of a pod does not end with one
//! of its containers, nor when the start of one fails: the next start finds the interface there.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use device_class::discover::{NetInterface, NetInterfaceSearch};
use device_class::host::RealHost;
use device_class::name::excerpt;
use injection_plan::plan::{Action, InjectionPlan};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, fstat};
use rooted_path::read_regular_text;

use super::ApplyError;
use crate::container::ContainerNamespace;
use crate::log;
use crate::sys::netlink::{Link, LinkSocket};
use crate::sys::process::run_in_child;

/// The time limit of a child process that looks into a network namespace.
const CHILD_LIMIT: Duration = Duration::from_secs(2);

/// The time limit in which the kernel moves an interface back.
const RETURN_LIMIT: Duration = Duration::from_secs(2);

/// The most bytes of the name of a process (`/proc/PID/comm`).
const MAX_COMM: u64 = 64;

#[derive(Debug, thiserror::Error)]
pub(crate) enum NetInterfaceError {
    #[error(
        "none of its network interfaces is in the host's network namespace ({pattern}){}",
        describe_holder(holder)
    )]
    Absent {
        pattern: String,
        /// The process in whose network namespace the interface is.
        holder: Option<String>,
    },
    #[error(
        "the container has a network interface {name} already: set another `name` with `netdev` in \
         the class"
    )]
    NameTaken { name: String },
    #[error(
        "the network interface {name} cannot be moved: its driver keeps it in the host's network \
         namespace"
    )]
    NotMovable { name: String },
    #[error("the network interface {name} cannot be {operation}")]
    Failed {
        name: String,
        operation: &'static str,
        #[source]
        errno: Errno,
    },
    #[error("a network interface of it in the container cannot be set up: {0}")]
    NotSetUp(Errno),
    #[error("cannot look into the container's network namespace: {0}")]
    Look(String),
    #[error("cannot look for network interfaces in the host's network namespace")]
    LookOnHost(#[source] Errno),
}

/// An interface that will be moved.
struct PlannedMove<'p> {
    interface: NetInterface,
    link: Link,
    /// The device, for messages.
    user_labels: &'p str,
}

/// The interfaces of a plan that are not in the container yet. They are opened in the host's
/// namespaces, and moved when nothing else of the container's start can fail.
pub(super) struct NetInterfaceMoves<'p> {
    namespace: OwnedFd,
    socket: LinkSocket,
    moves: Vec<PlannedMove<'p>>,
}

impl<'p> NetInterfaceMoves<'p> {
    /// Finds the interfaces of the plan and checks that they can be moved. Returns `None` if the
    /// plan has none, or the container is in the host's network namespace and has them there.
    pub(super) fn prepare(
        plan: &'p InjectionPlan,
        container: &ContainerNamespace,
        host_root: &Path,
    ) -> Result<Option<Self>, ApplyError> {
        let steps = plan.steps.iter().filter_map(|step| match &step.action {
            Action::NetInterfaces { interfaces, search } => {
                Some((&*step.user_labels, interfaces, search))
            }
            _ => None,
        });
        let steps: Vec<_> = steps.collect();
        if steps.is_empty() {
            return Ok(None);
        }
        let namespace = container.open_network_namespace()?;
        let is_shared = is_own_namespace(&namespace);
        let look = |errno: Errno| ApplyError::from(NetInterfaceError::LookOnHost(errno));
        let socket = LinkSocket::open().map_err(look)?;
        let mut moves = Vec::new();
        let mut names = BTreeSet::new();
        for (user_labels, interfaces, search) in steps {
            let failed =
                |error: NetInterfaceError| ApplyError::from(error).with_subject(user_labels);
            let mut on_host = find_links(&socket, interfaces).map_err(look)?;
            if on_host.is_empty() {
                // The containers of a pod share a network namespace, in which the interfaces stay
                // when one of them is started again.
                let is_there = !is_shared
                    && has_interface_of_device(&namespace, search, host_root).map_err(failed)?;
                if is_there {
                    log::info(|| format!("{user_labels}: the container has its network interface"));
                    if let Err(error) = set_up_present(&namespace, search, host_root) {
                        log::warning(&format!("{user_labels}: {error}"));
                    }
                    continue;
                }
                on_host = wait_for_links(&socket, search, host_root).map_err(failed)?;
            } else if !is_shared {
                // An earlier start may have failed after it moved some of the interfaces.
                if let Err(error) = set_up_present(&namespace, search, host_root) {
                    log::info(|| format!("{user_labels}: {error}"));
                }
            }
            if is_shared {
                log::info(|| {
                    format!("{user_labels}: the container is in the host's network namespace")
                });
                continue;
            }
            for (interface, link) in on_host {
                let name = interface.name_in_container.clone();
                let is_taken = !names.insert(name.clone())
                    || has_interface_named(&namespace, &name).map_err(failed)?;
                if is_taken {
                    return Err(failed(NetInterfaceError::NameTaken { name }));
                }
                moves.push(PlannedMove {
                    interface,
                    link,
                    user_labels,
                });
            }
        }
        Ok((!moves.is_empty()).then_some(Self {
            namespace,
            socket,
            moves,
        }))
    }

    /// Moves the interfaces. An interface that was up on the host is set up in the container, whose
    /// programs need CAP_NET_ADMIN to do that themselves. Returns a warning for each interface that
    /// cannot be set up: this is no error, because the interface is in the container, and a second
    /// start would find it there and continue.
    pub(super) fn move_interfaces(self) -> Result<Vec<String>, ApplyError> {
        let mut warnings = Vec::new();
        for PlannedMove {
            interface,
            link,
            user_labels,
        } in &self.moves
        {
            let name = &interface.name_in_container;
            let moved = self.socket.move_to(*link, self.namespace.as_fd(), name);
            let moved = moved.map_err(|errno| match errno {
                Errno::EEXIST => NetInterfaceError::NameTaken { name: name.clone() },
                Errno::EINVAL => NetInterfaceError::NotMovable {
                    name: interface.name.clone(),
                },
                errno => NetInterfaceError::Failed {
                    name: interface.name.clone(),
                    operation: "moved into the container's network namespace",
                    errno,
                },
            });
            moved.map_err(|error| ApplyError::from(error).with_subject(user_labels))?;
            if link.is_up
                && let Err(error) = set_up_interface(&self.namespace, name)
            {
                warnings.push(format!("{user_labels}: {}", log::chain(&error)));
            }
            log::info(|| {
                let host_name = &interface.name;
                format!("{user_labels}: network interface {host_name} is the container's {name}")
            });
        }
        Ok(warnings)
    }
}

/// Returns the interfaces that are in the network namespace of the socket. Udev may have given a
/// name to another interface meanwhile, so that the number is compared as well.
fn find_links(
    socket: &LinkSocket,
    interfaces: &[NetInterface],
) -> Result<Vec<(NetInterface, Link)>, Errno> {
    let mut found = Vec::new();
    for interface in interfaces {
        let link = socket.find(&interface.name)?;
        if let Some(link) = link.filter(|link| interface.index == Some(link.index)) {
            found.push((interface.clone(), link));
        }
    }
    Ok(found)
}

/// Waits for the interfaces of a device whose last container has just ended: the kernel moves them
/// back in the background.
fn wait_for_links(
    socket: &LinkSocket,
    search: &NetInterfaceSearch,
    host_root: &Path,
) -> Result<Vec<(NetInterface, Link)>, NetInterfaceError> {
    const PAUSE: Duration = Duration::from_millis(50);
    let end = Instant::now() + RETURN_LIMIT;
    loop {
        let host = RealHost::open(host_root);
        let found = host.ok().and_then(|host| search.find(&host).ok());
        let links = find_links(socket, &found.unwrap_or_default());
        let links = links.map_err(NetInterfaceError::LookOnHost)?;
        if !links.is_empty() {
            return Ok(links);
        }
        if Instant::now() >= end {
            let (pattern, holder) = (search.pattern(), find_holder(search, host_root));
            return Err(NetInterfaceError::Absent { pattern, holder });
        }
        sleep(PAUSE);
    }
}

fn describe_holder(holder: &Option<String>) -> String {
    match holder {
        Some(process) => format!(": it is in that of {process} until the container ends"),
        None => ": another container has it, or its driver has made none".to_owned(),
    }
}

/// The most network namespaces of other processes that are searched for an interface.
const MAX_SEARCHED: usize = 64;

/// Finds a process in whose network namespace an interface of the device is.
fn find_holder(search: &NetInterfaceSearch, host_root: &Path) -> Option<String> {
    let mut searched = BTreeSet::new();
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
        if is_own_namespace(&namespace) || !searched.insert(inode) {
            continue;
        }
        if searched.len() > MAX_SEARCHED {
            return None;
        }
        if has_interface_of_device(&namespace, search, host_root).is_ok_and(|has_it| has_it) {
            let name = read_regular_text(&entry.path().join("comm"), MAX_COMM).unwrap_or_default();
            return Some(format!("process {pid} ({})", excerpt(name.trim())));
        }
    }
    None
}

/// Returns whether this process is in the same network namespace.
fn is_own_namespace(namespace: &OwnedFd) -> bool {
    let own = std::fs::metadata("/proc/self/ns/net").map(|own| (own.dev(), own.ino()));
    let other = fstat(namespace).map(|other| (other.st_dev, other.st_ino));
    matches!((own, other), (Ok(own), Ok(other)) if own == other)
}

/// Sets up the interfaces of a device that the container has: its last start may have failed before
/// that. Whether they were up on the host is not known any more, so each is set up. A failure is
/// none of the start, because some drivers need settings first, such as a bit rate.
fn set_up_present(
    namespace: &OwnedFd,
    search: &NetInterfaceSearch,
    host_root: &Path,
) -> Result<(), NetInterfaceError> {
    let found = run_with_sys(namespace, host_root, |host| {
        let socket = LinkSocket::open()?;
        for (_, link) in find_links(&socket, &search.find(host).unwrap_or_default())? {
            if !link.is_up {
                socket.set_up(link)?;
            }
        }
        Ok(true)
    });
    found.map(drop).map_err(|error| match error {
        RunError::Errno(errno) => NetInterfaceError::NotSetUp(errno),
        RunError::Child(reason) => NetInterfaceError::Look(reason),
    })
}

fn set_up_interface(namespace: &OwnedFd, name: &str) -> Result<(), NetInterfaceError> {
    let is_up = run_in_namespace(namespace, || {
        let socket = LinkSocket::open()?;
        let link = socket.find(name)?.ok_or(Errno::ENODEV)?;
        socket.set_up(link).map(|()| true)
    });
    is_up.map(drop).map_err(|error| match error {
        RunError::Errno(errno) => NetInterfaceError::Failed {
            name: name.to_owned(),
            operation: "set up in the container, as it was on the host",
            errno,
        },
        RunError::Child(reason) => NetInterfaceError::Look(reason),
    })
}

/// Returns whether a network namespace has an interface of this name.
fn has_interface_named(namespace: &OwnedFd, name: &str) -> Result<bool, NetInterfaceError> {
    let is_there = run_in_namespace(namespace, || Ok(LinkSocket::open()?.find(name)?.is_some()));
    is_there.map_err(NetInterfaceError::from)
}

/// Returns whether a network namespace has an interface of the device that `search` is for.
fn has_interface_of_device(
    namespace: &OwnedFd,
    search: &NetInterfaceSearch,
    host_root: &Path,
) -> Result<bool, NetInterfaceError> {
    let is_there = run_with_sys(namespace, host_root, |host| {
        Ok(search.find(host).is_ok_and(|found| !found.is_empty()))
    });
    is_there.map_err(NetInterfaceError::from)
}

/// Runs `work` in a child process in a network namespace, with a view of the host in which /sys has
/// the interfaces of this namespace: the child mounts it in a mount namespace of its own.
fn run_with_sys(
    namespace: &OwnedFd,
    host_root: &Path,
    work: impl FnOnce(&RealHost) -> Result<bool, Errno>,
) -> Result<bool, RunError> {
    run_in_namespace(namespace, || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)?;
        let sys: PathBuf = host_root.join("sys");
        mount(Some("sysfs"), &sys, Some("sysfs"), MsFlags::MS_RDONLY, none)?;
        let host = RealHost::open(host_root).map_err(|_| Errno::EIO)?;
        work(&host)
    })
}

enum RunError {
    Errno(Errno),
    Child(String),
}

impl From<RunError> for NetInterfaceError {
    fn from(error: RunError) -> Self {
        NetInterfaceError::Look(match error {
            RunError::Errno(errno) => errno.to_string(),
            RunError::Child(reason) => reason,
        })
    }
}

/// Runs `work` in a child process in a network namespace.
fn run_in_namespace(
    namespace: &OwnedFd,
    work: impl FnOnce() -> Result<bool, Errno>,
) -> Result<bool, RunError> {
    let answer = run_in_child(CHILD_LIMIT, || {
        let done = setns(namespace, CloneFlags::CLONE_NEWNET).and_then(|()| work());
        match done {
            Ok(true) => "yes".to_owned(),
            Ok(false) => "no".to_owned(),
            Err(errno) => (errno as i32).to_string(),
        }
    });
    match answer.map_err(RunError::Errno)?.as_deref() {
        Some("yes") => Ok(true),
        Some("no") => Ok(false),
        Some(number) => Err(RunError::Errno(Errno::from_raw(
            number.parse().unwrap_or_default(),
        ))),
        None => Err(RunError::Child("a child process did not answer".into())),
    }
}
