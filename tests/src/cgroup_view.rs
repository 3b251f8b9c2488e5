//! Runs commands that see a certain version of cgroups.

use std::fmt;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::{binaries, mountinfo};

/// A cgroup version, as a runtime finds it under /sys/fs/cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupView {
    /// The device controller's own hierarchy, as mounted on this machine.
    V1,
    /// A single unified hierarchy. If the machine has another layout, the unified hierarchy is
    /// mounted in a private mount namespace of the command.
    V2,
}

impl CgroupView {
    pub const ALL: [Self; 2] = [Self::V1, Self::V2];

    /// Returns the reason why commands cannot have this view on this machine, or `None` if they
    /// can.
    pub fn missing(self) -> Option<String> {
        match (self, machine_shows()) {
            (Self::V1, Ok(Self::V2)) => {
                Some("this machine has no cgroup v1 device controller".to_string())
            }
            (_, Err(error)) => Some(format!("{error:#}")),
            _ => None,
        }
    }

    /// Returns a command that runs `program` with this view.
    pub fn command(self, program: &Path) -> Result<Command> {
        if self == Self::V1 || machine_shows()? == Self::V2 {
            return Ok(Command::new(program));
        }
        let mut command = Command::new(binaries::program("cgroup2-view")?);
        command.arg(program);
        Ok(command)
    }
}

impl fmt::Display for CgroupView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::V1 => "cgroup v1",
            Self::V2 => "cgroup v2",
        })
    }
}

/// Returns the version of this machine's own /sys/fs/cgroup. A hybrid layout counts as v1, because
/// the device controller is in its v1 hierarchy.
fn machine_shows() -> Result<CgroupView> {
    let mounts = mountinfo::of_self()?;
    let root = mountinfo::find_mount(&mounts, Path::new("/sys/fs/cgroup"));
    Ok(match root {
        Some(mount) if mount.fs_type == "cgroup2" => CgroupView::V2,
        _ => CgroupView::V1,
    })
}
