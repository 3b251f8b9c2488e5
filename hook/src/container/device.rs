//! Creates device nodes inside a root.

use device_class::host::{DeviceKind, DeviceNumber};
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::{Mode, SFlag, makedev, mknodat};
use nix::unistd::{Gid, Uid, fchownat};

use super::{Error, FileKind, Handle, Name, Result, WritableDirectory};

/// Returns the device number of `handle`, or `None` if it is not a device node.
pub(crate) fn device_number(handle: &Handle) -> Option<DeviceNumber> {
    let kind = match handle.kind() {
        FileKind::CharDevice => DeviceKind::Character,
        FileKind::BlockDevice => DeviceKind::Block,
        _ => return None,
    };
    let rdev = handle.stat().st_rdev;
    Some(DeviceNumber {
        kind,
        // The casts lose nothing: the kernel's major numbers have 12 bits, and minor numbers
        // have 20.
        major: nix::sys::stat::major(rdev) as u32,
        minor: nix::sys::stat::minor(rdev) as u32,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAccess {
    pub mode: Mode,
    /// The owner, as seen from the host.
    pub uid: Uid,
    /// The group, as seen from the host.
    pub gid: Gid,
}

impl WritableDirectory {
    /// Creates the device node `name`. An existing node of the same device is kept, with its
    /// owner and mode.
    ///
    /// The mode is applied exactly only if the umask is empty.
    /// [`super::ContainerNamespace::enter`] clears it.
    pub fn make_device(
        &self,
        name: Name<'_>,
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
                let path = self.directory().path_of(name);
                return Err(Error::from_creation("create device node", path, errno));
            }
        };
        // The name may have been replaced since. The file that it now leads to is opened and
        // checked, and changed only through that handle.
        let handle = self.directory().open_existing(name)?;
        if device_number(&handle) != Some(device) {
            return Err(self.directory().occupied_error(name, handle.kind()));
        }
        let owner = (handle.stat().st_uid, handle.stat().st_gid);
        if is_new && owner != (access.uid.as_raw(), access.gid.as_raw()) {
            let (uid, gid) = (Some(access.uid), Some(access.gid));
            fchownat(&handle, "", uid, gid, AtFlags::AT_EMPTY_PATH)
                .map_err(|errno| self.directory().system("change the owner of", name, errno))?;
        }
        Ok(())
    }
}
