//! Creates device nodes in a container with mknodat(2), and returns the device numbers of existing
//! nodes.

use device_class::host::{DeviceKind, DeviceNumber};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, SFlag, makedev, mknodat};
use nix::unistd::{Gid, Uid, fchownat};

use super::{Error, FileKind, FileName, Handle, Result, WritableDirectory};

/// Returns the device number of an open file, such as `c 1:3` for `/dev/null`. Returns `None` if
/// the file is not a device node.
pub fn find_device_number(handle: &Handle) -> Option<DeviceNumber> {
    let kind = match handle.kind() {
        FileKind::CharDevice => DeviceKind::Character,
        FileKind::BlockDevice => DeviceKind::Block,
        _ => return None,
    };
    let rdev = handle.stat().st_rdev;
    Some(DeviceNumber {
        kind,
        // The casts keep the values, because the kernel's major numbers have 12 bits and its minor
        // numbers have 20 bits.
        major: nix::sys::stat::major(rdev) as u32,
        minor: nix::sys::stat::minor(rdev) as u32,
    })
}

/// The mode and the owner of a device node that is created in a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAccess {
    pub mode: Mode,
    /// The device node's owner, as a user id of the host.
    pub uid: Uid,
    /// The device node's group, as a group id of the host.
    pub gid: Gid,
}

impl WritableDirectory {
    /// Creates the device node `name` for `device`. Does nothing if a node of the same device
    /// already has this name, because the hook may run twice.
    ///
    /// The umask of this process removes bits from the mode of a new node.
    /// [`super::ContainerNamespace::enter`] clears the umask, so that the node has exactly the
    /// given mode.
    pub fn create_device_node(
        &self,
        name: FileName<'_>,
        device: DeviceNumber,
        access: DeviceAccess,
    ) -> Result<()> {
        let kind = match device.kind {
            DeviceKind::Block => SFlag::S_IFBLK,
            DeviceKind::Character => SFlag::S_IFCHR,
        };
        let number = makedev(device.major.into(), device.minor.into());
        let is_new = match mknodat(self, name.as_os_str(), kind, access.mode, number) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(errno) => {
                let path = self.directory().entry_path(name);
                return Err(Error::from_creation("create device node", path, errno));
            }
        };
        // A process of the container may have replaced the new node by another file in the
        // meantime. So the file is opened and checked. Its owner is changed through the handle, and
        // not by its name.
        let handle = self.directory().open_existing(name)?;
        if find_device_number(&handle) != Some(device) {
            return Err(self.directory().already_exists_error(name, handle.kind()));
        }
        let owner = (handle.stat().st_uid, handle.stat().st_gid);
        if is_new && owner != (access.uid.as_raw(), access.gid.as_raw()) {
            let (uid, gid) = (Some(access.uid), Some(access.gid));
            fchownat(&handle, "", uid, gid, AtFlags::AT_EMPTY_PATH).map_err(|errno| {
                self.directory()
                    .system_error("change the owner of", name, errno)
            })?;
        }
        Ok(())
    }
}
