//! Finds the processes of a container that have a device open. Such a process can use the device
//! even after the rules and nodes of the device were removed.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use device_class::device::{DeviceKind, DeviceNumber, DeviceRule};
use hook::attachment::AttachmentRecord;
use hook::log;
use hook::sys;
use hook::sys::deadline::{self, Deadline};
use hook::sys::statmount::stat_kind_and_device;
use host_files::rooted_path::read_regular_text;
use nix::sys::stat::{SFlag, makedev};
use serde::{Deserialize, Serialize};

/// A process that has a device open, or has mapped the memory of the device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceHolder {
    pub(crate) pid: i32,
    /// The id of the thread that has the device open. `None` means the main thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) thread: Option<i32>,
    pub(crate) program: String,
    pub(crate) device: String,
    /// True if the process has mapped the device's memory, but has no open descriptor of the
    /// device.
    #[serde(rename = "mapped")]
    pub(crate) is_mapped: bool,
}

impl fmt::Display for DeviceHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pid, program, device) = (self.pid, &self.program, &self.device);
        match self.thread {
            Some(thread) => write!(f, "thread {thread} of process {pid} ({program})")?,
            None => write!(f, "process {pid} ({program})")?,
        }
        if self.is_mapped {
            let usage = "mapped, and can use it until it ends";
            write!(f, " has memory of device {device} {usage}")
        } else {
            let usage = "open, and can use it until it closes it";
            write!(f, " has device {device} {usage}")
        }
    }
}

/// Returns the processes of a container that have opened or mapped a device of `rules`.
///
/// A descriptor that is in a socket's queue or that io_uring holds is not found, because no file in
/// `/proc` lists it.
pub(crate) fn find_device_holders(
    record: &AttachmentRecord,
    rules: &[DeviceRule],
) -> Vec<DeviceHolder> {
    let cgroup = record.find_cgroup();
    let Ok(Some(cgroup)) = cgroup else {
        return Vec::new();
    };
    if rules.is_empty() || cgroup.is_root() {
        return Vec::new();
    }
    let numbers: Vec<DeviceNumber> = rules.iter().map(|rule| rule.number).collect();
    // A child process with a time limit searches for the descriptors, because a process of the
    // container may have very many of them.
    let answer = sys::process::run_in_child(deadline::CHILD_TIMEOUT, || {
        let _deadline = Deadline::start(deadline::DEADLINE_SECONDS);
        let (processes, is_complete) = cgroup.list_processes();
        if !is_complete {
            log::warning(&format!(
                "container {}: it has so many cgroups that not all of its processes are looked at",
                record.id
            ));
        }
        let holders: Vec<DeviceHolder> = processes
            .into_iter()
            .flat_map(|pid| find_process_holders(pid, &numbers))
            .collect();
        serde_json::to_string(&holders).unwrap_or_default()
    });
    let answer = answer.ok().flatten();
    let holders = answer.and_then(|text| serde_json::from_str(&text).ok());
    holders.unwrap_or_else(|| {
        log::warning(&format!(
            "container {}: it is not known which of its processes have the devices open",
            record.id
        ));
        Vec::new()
    })
}

/// Returns one holder for each of the devices `numbers` that the process has open or mapped. The
/// holder names the first descriptor or mapping that was found.
fn find_process_holders(pid: i32, numbers: &[DeviceNumber]) -> Vec<DeviceHolder> {
    let directory = PathBuf::from(format!("/proc/{pid}"));
    let mut holders: Vec<DeviceHolder> = Vec::new();
    let mut remaining_numbers: BTreeSet<DeviceNumber> = numbers.iter().copied().collect();
    let threads = list_entries(&directory.join("task"));
    // Every thread is searched, because a thread can have a descriptor table of its own
    // (unshare(2), CLONE_FILES).
    let tables = threads.map(|thread| (thread.join("fd"), false));
    let tables = tables.chain([(directory.join("map_files"), true)]);
    for (table, is_mapped) in tables {
        for link in list_entries(&table) {
            let Some(number) = remaining_numbers
                .iter()
                .find(|number| is_link_to_device(&link, **number))
            else {
                continue;
            };
            let number = *number;
            remaining_numbers.remove(&number);
            let thread = table.parent().and_then(Path::file_name);
            let thread = thread.and_then(|name| name.to_str()?.parse().ok());
            let program = read_regular_text(&directory.join("comm"), 64).unwrap_or_default();
            holders.push(DeviceHolder {
                pid,
                thread: thread.filter(|thread| *thread != pid),
                program: program.trim_end().to_owned(),
                device: number.to_string(),
                is_mapped,
            });
            if remaining_numbers.is_empty() {
                return holders;
            }
        }
    }
    holders
}

fn list_entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Reports whether a link leads to the device. `link` is an entry of a directory `fd` (open
/// descriptors) or `map_files` (mapped files) of a process in `/proc`.
fn is_link_to_device(link: &Path, device: DeviceNumber) -> bool {
    let path = CString::new(link.as_os_str().as_bytes());
    let Some((kind, number)) = path.ok().and_then(|path| stat_kind_and_device(&path).ok()) else {
        return false;
    };
    let expected_kind = match device.kind {
        DeviceKind::Block => SFlag::S_IFBLK,
        DeviceKind::Character => SFlag::S_IFCHR,
    };
    kind == expected_kind && number == makedev(device.major.into(), device.minor.into())
}
