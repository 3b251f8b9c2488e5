//! Creates a tmpfs in a container. The hook creates mount points and other files in the tmpfs, so
//! that they do not become part of the container's writable layer.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::attributes::to_attribute_bits;
use super::{Attributes, Error, Mounter, Result, bind, detached};
use crate::container::{MountTarget, WritableDirectory};
use crate::sys::mount as syscalls;

/// The mount options of a tmpfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TmpfsOptions<'a> {
    /// The size limit of the tmpfs in bytes. A write beyond it fails with `ENOSPC`.
    pub size_bytes: u64,
    pub mode: Mode,
    /// The SELinux label of all files in the tmpfs (`linux.mountLabel` in config.json). Without
    /// this label, SELinux may not let the container's programs read the files.
    pub label: Option<&'a str>,
}

/// A new tmpfs for the mount point `target`. The caller can create files in it before the
/// container's programs see it.
///
/// On a kernel without detached mounts, the tmpfs is already mounted in the container from the
/// start.
#[derive(Debug)]
pub struct StagedTmpfs {
    staged_mount: StagedMount,
    target: MountTarget,
    directory: WritableDirectory,
}

/// A handle on the root of a new tmpfs. The tmpfs may already be attached to its target.
#[derive(Debug)]
enum StagedMount {
    Detached(OwnedFd),
    Attached(OwnedFd),
}

/// A tmpfs that was attached in the container, and is still writable.
#[derive(Debug)]
pub struct Tmpfs {
    mount: OwnedFd,
    path: PathBuf,
    directory: WritableDirectory,
}

/// The mount attributes of a tmpfs. Device nodes and set-user-id bits in it have no effect. The
/// attributes do not apply to files that are mounted in the tmpfs, because these have mounts of
/// their own.
const TMPFS_ATTRIBUTES: Attributes = Attributes {
    read_only: false,
    nosuid: true,
    nodev: true,
    noexec: false,
};

impl Mounter {
    /// Creates a tmpfs that will be mounted over the directory `target`. Its root directory belongs
    /// to the container's root user.
    pub fn create_tmpfs(
        &mut self,
        target: MountTarget,
        options: &TmpfsOptions<'_>,
    ) -> Result<StagedTmpfs> {
        self.propagation.check_target(&target)?;
        let option_list = self.build_option_list(options)?;
        let path = target.path();
        let (staged_mount, root) = if self.syscall_support.supports_detached_mounts() {
            let to_error = |errno| Error::system("make a tmpfs for", &path, errno);
            let mount = create_detached_tmpfs(&option_list).map_err(to_error)?;
            let root = open_root(&mount).map_err(to_error)?;
            (StagedMount::Detached(mount), root)
        } else {
            let option_text = join_options(&option_list);
            let (propagation, procfs) = (&mut self.propagation, &*self.procfs);
            let root_handle =
                bind::mount_tmpfs(&target, TMPFS_ATTRIBUTES, &option_text, propagation, procfs)?;
            let root =
                open_root(&root_handle).map_err(|errno| Error::system("open", &path, errno))?;
            (StagedMount::Attached(root_handle), root)
        };
        Ok(StagedTmpfs {
            staged_mount,
            target,
            directory: WritableDirectory::from_own_mount(root, &path, &self.procfs)
                .map_err(Error::Container)?,
        })
    }

    fn build_option_list(&self, options: &TmpfsOptions<'_>) -> Result<Vec<(&'static str, String)>> {
        let mut option_list = vec![
            ("size", options.size_bytes.to_string()),
            ("mode", format!("{:o}", options.mode.bits())),
            ("uid", self.owner.uid().to_string()),
            ("gid", self.owner.gid().to_string()),
        ];
        if let Some(label) = options.label {
            // mount(2) takes the label in quotes, so the label must not contain a quotation mark.
            if label.contains(['"', '\0']) {
                return Err(Error::Label {
                    label: label.to_owned(),
                });
            }
            option_list.push(("context", label.to_owned()));
        }
        Ok(option_list)
    }
}

impl StagedTmpfs {
    /// Returns the root directory of the tmpfs, in which the caller can create entries before and
    /// after [`Self::attach`].
    pub fn directory(&self) -> &WritableDirectory {
        &self.directory
    }

    /// Mounts the tmpfs on its target. After that, files can be mounted in it. Handles and mount
    /// points that were opened in the tmpfs before stay valid.
    pub fn attach(self, mounter: &mut Mounter) -> Result<Tmpfs> {
        let path = self.target.path();
        let mount = match self.staged_mount {
            StagedMount::Attached(mount) => mount,
            StagedMount::Detached(mount) => {
                detached::attach(&mount, &self.target)?;
                let mount_id = mounter.propagation.read_mount_id(&mount)?;
                mounter.propagation.record_own_mount(mount_id);
                mount
            }
        };
        Ok(Tmpfs {
            mount,
            path,
            directory: self.directory,
        })
    }
}

impl Tmpfs {
    /// Returns the root directory of the attached tmpfs, for example to create further mount
    /// points.
    pub fn directory(&self) -> &WritableDirectory {
        &self.directory
    }

    /// Makes the tmpfs read-only. The files that are mounted in it keep the attributes of their own
    /// mounts.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses this, for example with `EBUSY` while a file in the
    /// tmpfs is open for writing.
    pub fn set_read_only(&self, mounter: &Mounter) -> Result<()> {
        if !mounter.syscall_support.mount_setattr {
            return bind::set_read_only(&self.mount, &self.path, &mounter.procfs);
        }
        syscalls::set_attributes(&self.mount, false, libc::MOUNT_ATTR_RDONLY, 0)
            .map_err(|errno| Error::system("make read-only", &self.path, errno))
    }
}

fn create_detached_tmpfs(option_list: &[(&str, String)]) -> nix::Result<OwnedFd> {
    let to_c_string = |value: &str| CString::new(value).map_err(|_| Errno::EINVAL);
    let context = syscalls::fsopen(c"tmpfs")?;
    for (key, value) in option_list {
        syscalls::fsconfig_string(&context, &to_c_string(key)?, &to_c_string(value)?)?;
    }
    syscalls::fsconfig_string(&context, c"source", c"tmpfs")?;
    syscalls::fsconfig_create(&context)?;
    syscalls::fsmount(&context, to_attribute_bits(TMPFS_ATTRIBUTES))
}

/// Joins the options to the data string of mount(2), such as `size=1048576,mode=755`.
fn join_options(option_list: &[(&str, String)]) -> String {
    let format_option = |(key, value): &(&str, String)| match *key {
        "context" => format!("context=\"{value}\""),
        key => format!("{key}={value}"),
    };
    option_list
        .iter()
        .map(format_option)
        .collect::<Vec<_>>()
        .join(",")
}

fn open_root(mount: &OwnedFd) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(mount, ".", flags, Mode::empty())
}
