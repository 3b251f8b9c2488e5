//! Finds device numbers for the device nodes of demo hosts.
//!
//! A machine without an accelerator has no device of a vendor to give to a container. Tests use a
//! node with the number of another device that the kernel has. The device must open on the host,
//! and a container must not be able to open it unless a device rule allows that.

use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::scratch;

/// A character device of this kernel that opens on the host and that engines do not give to every
/// container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AliasDevice {
    pub major: u64,
    pub minor: u64,
}

/// The minor numbers of miscellaneous devices that open without effect, the most common ones first
/// (Documentation/admin-guide/devices.txt in the kernel's sources): hwrng, fuse, loop-control, kvm,
/// btrfs-control, mapper/control, vhost-net, hpet, snapshot.
const CANDIDATES: [u64; 9] = [183, 229, 237, 232, 234, 236, 238, 228, 231];

impl AliasDevice {
    pub fn number(self) -> (u64, u64) {
        (self.major, self.minor)
    }

    /// Finds two different devices that open on this machine.
    pub fn pair() -> Result<(Self, Self)> {
        let directory = scratch::directory("alias")?;
        let known = CANDIDATES.map(|minor| Self { major: 10, minor });
        let mut usable = known.into_iter().filter(|device| {
            let node = directory.path().join(device.minor.to_string());
            device.make_node(&node).is_ok() && opens(&node)
        });
        match (usable.next(), usable.next()) {
            (Some(first), Some(second)) => Ok((first, second)),
            _ => bail!(
                "this kernel has fewer than two usable devices of 10:{CANDIDATES:?}, or /var/tmp is mounted nodev"
            ),
        }
    }

    /// Creates a node of this device at `path` that every user may open.
    pub fn make_node(self, path: &Path) -> Result<()> {
        let number = makedev(self.major, self.minor);
        mknod(path, SFlag::S_IFCHR, Mode::empty(), number)
            .with_context(|| format!("cannot make the device node {}", path.display()))?;
        // The mode is set after mknod(2), which applies the umask to its mode.
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
        Ok(())
    }
}

fn opens(node: &Path) -> bool {
    open(node, OFlag::O_RDONLY | OFlag::O_NONBLOCK, Mode::empty()).is_ok()
}
