//! Processes of a container that have a device open: what is open stays so, whatever rules and
//! nodes say.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use device_class::device::{DeviceKind, DeviceRule};
use nix::sys::stat::{SFlag, makedev};
use serde::Serialize;

use crate::sys::statmount::kind_and_device;

/// A process with a device open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct OpenBy {
    pub(crate) pid: i32,
    pub(crate) program: String,
    pub(crate) device: String,
}

/// The processes of the cgroups of a container's first process, and below, that have one of
/// the devices open.
pub(super) fn processes(cgroups: &[u8], rules: &[DeviceRule]) -> Vec<OpenBy> {
    let cgroups = String::from_utf8_lossy(cgroups);
    let own = cgroups.lines().filter(|line| !line.ends_with(":/"));
    let own: Vec<&str> = own.collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let directory = entry.path();
        let of = fs::read_to_string(directory.join("cgroup")).unwrap_or_default();
        let is_in = |line: &str, own: &str| {
            let below = line.strip_prefix(own);
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        // An engine may put containers into one cgroup of a hierarchy that it does not use.
        let is_here = |own: &&str| of.lines().any(|line| is_in(line, own));
        if rules.is_empty() || own.is_empty() || !own.iter().all(is_here) {
            continue;
        }
        let open = fs::read_dir(directory.join("fd")).into_iter().flatten();
        for open in open.flatten() {
            if let Some(rule) = rules.iter().find(|rule| is(&open.path(), rule)) {
                found.push(OpenBy {
                    pid,
                    program: fs::read_to_string(directory.join("comm"))
                        .unwrap_or_default()
                        .trim_end()
                        .to_owned(),
                    device: rule.number.to_string(),
                });
                break;
            }
        }
    }
    found
}

/// Whether a descriptor is open on the device.
fn is(descriptor: &Path, rule: &DeviceRule) -> bool {
    let path = CString::new(descriptor.as_os_str().as_bytes());
    let Some((kind, number)) = path.ok().and_then(|path| kind_and_device(&path).ok()) else {
        return false;
    };
    let wanted = match rule.kind() {
        DeviceKind::Block => SFlag::S_IFBLK,
        DeviceKind::Character => SFlag::S_IFCHR,
    };
    kind == wanted && number == makedev(rule.major().into(), rule.minor().into())
}
