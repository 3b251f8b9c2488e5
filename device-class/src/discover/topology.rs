//! Where a device sits in the machine.

use std::path::Path;

use crate::host::HostView;

/// The NUMA node of the device at `start` or of the nearest directory above it
/// that knows one. The kernel writes -1 where the firmware names none.
pub(super) fn numa_node(start: &Path, host: &dyn HostView) -> Option<u32> {
    const LONGEST: usize = 16;
    let start = host.canonical(start).ok()?;
    let node = start
        .ancestors()
        .find_map(|directory| host.read(&directory.join("numa_node"), LONGEST).ok())?;
    String::from_utf8_lossy(&node).trim().parse().ok()
}
