//! The processes of a container that have a device open. A device that is open stays usable,
//! whatever device rules and nodes are removed.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use device_class::device::{DeviceKind, DeviceNumber, DeviceRule};
use nix::sys::stat::{SFlag, makedev};
use rooted_path::read_regular_text;
use serde::{Deserialize, Serialize};

use crate::live::record::AttachmentRecord;
use crate::log;
use crate::sys;
use crate::sys::deadline::{self, Deadline};
use crate::sys::statmount::kind_and_device;

/// A process that has a device open, or its memory mapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceHolder {
    pub(crate) pid: i32,
    /// The thread that has the device open, if it is not the first one of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thread: Option<i32>,
    pub(crate) program: String,
    pub(crate) device: String,
    /// Whether the device's memory is mapped and no descriptor of the device is open.
    pub(crate) mapped: bool,
}

impl fmt::Display for DeviceHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pid, program, device) = (self.pid, &self.program, &self.device);
        match self.thread {
            Some(thread) => write!(f, "thread {thread} of process {pid} ({program})")?,
            None => write!(f, "process {pid} ({program})")?,
        }
        if self.mapped {
            let state = "mapped, and can use it until it ends";
            write!(f, " has memory of device {device} {state}")
        } else {
            let state = "open, and can use it until it closes it";
            write!(f, " has device {device} {state}")
        }
    }
}

/// Finds the processes of a container that have the device of a rule open or mapped. Descriptors
/// that are being sent over a socket or that io_uring holds are not found, because no file of
/// `/proc` lists them.
pub(in crate::live) fn find_device_holders(
    container: &AttachmentRecord,
    rules: &[DeviceRule],
) -> Vec<DeviceHolder> {
    let cgroup = container.find_cgroup();
    let Ok(Some(cgroup)) = cgroup.map(|it| it.filter(|it| !rules.is_empty() && !it.is_root()))
    else {
        return Vec::new();
    };
    let numbers: Vec<DeviceNumber> = rules.iter().map(|rule| rule.number).collect();
    // A process of the container may have so many descriptors that the search takes too long.
    let found = sys::process::run_in_child(deadline::LIMIT, || {
        let _deadline = Deadline::start(deadline::SECONDS);
        let (processes, are_all) = cgroup.list_processes();
        if !are_all {
            log::warning(&format!(
                "container {}: it has so many cgroups that not all of its processes are looked at",
                container.id
            ));
        }
        let found = processes.into_iter();
        let found: Vec<DeviceHolder> = found
            .flat_map(|pid| find_in_process(pid, &numbers))
            .collect();
        serde_json::to_string(&found).unwrap_or_default()
    });
    let found = found.ok().flatten();
    let found = found.and_then(|text| serde_json::from_str(&text).ok());
    found.unwrap_or_else(|| {
        log::warning(&format!(
            "container {}: it is not known which of its processes have the devices open",
            container.id
        ));
        Vec::new()
    })
}

/// Finds the first descriptor or mapping of each device in a process.
fn find_in_process(pid: i32, numbers: &[DeviceNumber]) -> Vec<DeviceHolder> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let mut found: Vec<DeviceHolder> = Vec::new();
    let mut missing: BTreeSet<DeviceNumber> = numbers.iter().copied().collect();
    let threads = list_entries(&directory.join("task"));
    // A thread may have a table of descriptors of its own (unshare(2), CLONE_FILES).
    let tables = threads.map(|thread| (thread.join("fd"), false));
    let tables = tables.chain([(directory.join("map_files"), true)]);
    for (table, mapped) in tables {
        for entry in list_entries(&table) {
            let Some(number) = missing
                .iter()
                .find(|number| is_link_to_device(&entry, **number))
            else {
                continue;
            };
            let number = *number;
            missing.remove(&number);
            let thread = table.parent().and_then(Path::file_name);
            let thread = thread.and_then(|it| it.to_str()?.parse().ok());
            let program = read_regular_text(&directory.join("comm"), 64).unwrap_or_default();
            found.push(DeviceHolder {
                pid,
                thread: thread.filter(|thread| *thread != pid),
                program: program.trim_end().to_owned(),
                device: number.to_string(),
                mapped,
            });
            if missing.is_empty() {
                return found;
            }
        }
    }
    found
}

fn list_entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Whether a link in `/proc` to a descriptor or to a mapping leads to the device.
fn is_link_to_device(link: &Path, device: DeviceNumber) -> bool {
    let path = CString::new(link.as_os_str().as_bytes());
    let Some((kind, number)) = path.ok().and_then(|path| kind_and_device(&path).ok()) else {
        return false;
    };
    let wanted = match device.kind {
        DeviceKind::Block => SFlag::S_IFBLK,
        DeviceKind::Character => SFlag::S_IFCHR,
    };
    kind == wanted && number == makedev(device.major.into(), device.minor.into())
}
