//! Opens the devices of the container that this program runs in. `helm test` runs it in a pod.
//!
//! If a device node can be opened, the kubelet has allocated the device, the engine has called the
//! hook, and the hook has added the node and its device rule. Without a rule or a driver the kernel
//! refuses to open the node. A network interface of a hardware device has no node. If the container
//! has it, the hook has moved it.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// The names of the entries in `/dev` that every container has: the default devices of the OCI
/// runtime specification, and the terminals that engines create.
const DEFAULT_DEV_NAMES: [&str; 12] = [
    "null", "zero", "full", "random", "urandom", "tty", "console", "ptmx", "pts", "mqueue", "shm",
    "fd",
];
/// The name of the network interface that every pod has. It is not counted, because it may be a
/// hardware device that the pod did not request.
const POD_INTERFACE_NAME: &str = "eth0";
/// The maximum depth of the directories that are searched for device nodes. Deeper directories are
/// skipped. In `/dev`, the directory `/dev/bus/usb/001` has the depth 3.
const MAX_SEARCH_DEPTH: usize = 8;

/// The result of opening one device node.
#[derive(Debug)]
pub struct OpenedDevice {
    pub path: PathBuf,
    /// The error with which opening the node failed. `None` means that the node was opened, or that
    /// another process is using the device.
    pub open_error: Option<io::Error>,
}

/// The devices of a container that [`check_container_devices`] found.
#[derive(Debug)]
pub struct ContainerDevices {
    /// The result for each device node.
    pub opened_devices: Vec<OpenedDevice>,
    /// The names of the network interfaces that belong to hardware devices, except `eth0`.
    pub interface_names: Vec<String>,
}

/// Opens every device node below `directory` and closes it again. Skips the nodes that every
/// container has. Also finds the network interfaces in `interface_directory`, which is
/// `/sys/class/net`.
///
/// # Errors
/// Returns an error if a directory cannot be read, or if there is neither a device node nor an
/// interface.
pub fn check_container_devices(
    directory: &Path,
    interface_directory: &Path,
) -> anyhow::Result<ContainerDevices> {
    let mut node_paths = Vec::new();
    collect_node_paths(directory, 0, &mut node_paths)?;
    node_paths.sort();
    let interface_names = find_hardware_interfaces(interface_directory)?;
    ensure!(
        !node_paths.is_empty() || !interface_names.is_empty(),
        "found no device in {} and no hardware network interface in {}: the pod requests no device, \
         or its devices were not injected; devices without a device node cannot be tested",
        directory.display(),
        interface_directory.display()
    );
    let results = node_paths.into_iter().map(|path| OpenedDevice {
        open_error: open_device_node(&path).err(),
        path,
    });
    Ok(ContainerDevices {
        opened_devices: results.collect(),
        interface_names,
    })
}

/// Returns the names of the interfaces that belong to a hardware device, except `eth0`. Other
/// interfaces, such as the tunnels that the kernel adds to each network namespace, have no link
/// `device`.
fn find_hardware_interfaces(interface_directory: &Path) -> anyhow::Result<Vec<String>> {
    let cannot_read = || format!("cannot read {}", interface_directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(interface_directory).with_context(cannot_read)? {
        let entry = entry.with_context(cannot_read)?;
        let name = entry.file_name();
        if name != POD_INTERFACE_NAME && entry.path().join("device").exists() {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn collect_node_paths(
    directory: &Path,
    depth: usize,
    node_paths: &mut Vec<PathBuf>,
) -> anyhow::Result<()> {
    let cannot_read = || format!("cannot read {}", directory.display());
    for entry in fs::read_dir(directory).with_context(cannot_read)? {
        let entry = entry.with_context(cannot_read)?;
        let name = entry.file_name();
        if depth == 0
            && DEFAULT_DEV_NAMES
                .iter()
                .any(|default_name| name == *default_name)
        {
            continue;
        }
        // The type in the directory entry is not used. If a device node is mounted on a file, that
        // type is the type of the file.
        let kind = fs::symlink_metadata(entry.path())
            .with_context(cannot_read)?
            .file_type();
        if kind.is_char_device() || kind.is_block_device() {
            node_paths.push(entry.path());
        } else if kind.is_dir() && depth < MAX_SEARCH_DEPTH {
            collect_node_paths(&entry.path(), depth + 1, node_paths)?;
        }
    }
    Ok(())
}

/// Opens a device node for reading and writing. If the driver refuses that, opens the node only for
/// reading or only for writing. The call does not wait for the device, because it is non-blocking.
fn open_device_node(path: &Path) -> io::Result<()> {
    let access_modes = [OFlag::O_RDWR, OFlag::O_RDONLY, OFlag::O_WRONLY];
    let mut result = Ok(());
    for access_mode in access_modes {
        let flags = access_mode | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOCTTY;
        match open(path, flags, Mode::empty()) {
            // EBUSY and EAGAIN mean that another process is using the device, so the device works.
            Ok(_) | Err(Errno::EBUSY | Errno::EAGAIN) => return Ok(()),
            Err(errno) if result.is_ok() => result = Err(errno.into()),
            Err(_) => {}
        }
    }
    result
}
