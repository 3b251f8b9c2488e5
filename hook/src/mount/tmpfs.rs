//! A tmpfs that the hook creates in a container. Mount points in it leave no trace in the
//! writable layer of the image.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::attributes::mount_attr;
use super::{Attributes, Error, Mounter, Result, bind, detached};
use crate::container::{Target, WritableDirectory};
use crate::sys::mount as calls;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TmpfsOptions<'a> {
    /// The size limit of the content in bytes.
    pub size: u64,
    pub mode: Mode,
    /// The SELinux label of all files in it (`linux.mountLabel` in config.json). Without the
    /// label, a confined container may not be able to read them.
    pub label: Option<&'a str>,
}

/// A new tmpfs that can be filled, but is not attached to its target yet.
///
/// A kernel that cannot create it detached has it attached from the start.
#[derive(Debug)]
pub struct StagedTmpfs {
    form: StagedForm,
    target: Target,
    directory: WritableDirectory,
}

#[derive(Debug)]
enum StagedForm {
    Detached(OwnedFd),
    Attached(OwnedFd),
}

#[derive(Debug)]
pub struct Tmpfs {
    mount: OwnedFd,
    path: PathBuf,
    directory: WritableDirectory,
}

/// Device nodes and set-user-id programs in the tmpfs itself have no effect. A file that is
/// mounted in it has the restrictions of its own mount.
const ATTRIBUTES: Attributes = Attributes {
    read_only: false,
    nosuid: true,
    nodev: true,
    noexec: false,
};

impl Mounter {
    /// Creates a tmpfs that will cover the directory `target`. The container's root user owns
    /// its root directory.
    pub fn tmpfs(&mut self, target: Target, options: &TmpfsOptions<'_>) -> Result<StagedTmpfs> {
        self.propagation.check(&target)?;
        let settings = self.settings(options)?;
        let path = target.path();
        let (form, root) = if self.calls.detached_mounts() {
            let failed = |errno| Error::system("make a tmpfs for", &path, errno);
            let mount = create_detached(&settings).map_err(failed)?;
            let root = open_root(&mount).map_err(failed)?;
            (StagedForm::Detached(mount), root)
        } else {
            let data = join_settings(&settings);
            let (propagation, proc) = (&mut self.propagation, &*self.proc);
            let top = bind::tmpfs(&target, ATTRIBUTES, &data, propagation, proc)?;
            let root = open_root(&top).map_err(|errno| Error::system("open", &path, errno))?;
            (StagedForm::Attached(top), root)
        };
        Ok(StagedTmpfs {
            form,
            target,
            directory: WritableDirectory::on_own_mount(root, &path, &self.proc)
                .map_err(Error::Container)?,
        })
    }

    fn settings(&self, options: &TmpfsOptions<'_>) -> Result<Vec<(&'static str, String)>> {
        let mut settings = vec![
            ("size", options.size.to_string()),
            ("mode", format!("{:o}", options.mode.bits())),
            ("uid", self.owner.uid().to_string()),
            ("gid", self.owner.gid().to_string()),
        ];
        if let Some(label) = options.label {
            // mount(2) takes the label in quotes.
            if label.contains(['"', '\0']) {
                return Err(Error::Label {
                    label: label.to_owned(),
                });
            }
            settings.push(("context", label.to_owned()));
        }
        Ok(settings)
    }
}

impl StagedTmpfs {
    /// Returns the root directory, in which entries can be created.
    pub fn directory(&self) -> &WritableDirectory {
        &self.directory
    }

    /// Attaches the tmpfs to its target. Only after that can files be mounted in it. Handles
    /// and targets that were opened in it before stay valid.
    pub fn attach(self, mounter: &mut Mounter) -> Result<Tmpfs> {
        let path = self.target.path();
        let mount = match self.form {
            StagedForm::Attached(mount) => mount,
            StagedForm::Detached(mount) => {
                detached::attach(&mount, &self.target)?;
                let id = mounter.propagation.mount_id(&mount)?;
                mounter.propagation.add_own_mount(id);
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
    /// Returns the root directory.
    pub fn directory(&self) -> &WritableDirectory {
        &self.directory
    }

    /// Makes the tmpfs read-only. A file that is mounted in it keeps the restrictions of its
    /// own mount.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses, for example with `EBUSY` while a file in it is
    /// open for writing.
    pub fn set_read_only(&self, mounter: &Mounter) -> Result<()> {
        if !mounter.calls.mount_setattr {
            return bind::set_read_only(&self.mount, &self.path, &mounter.proc);
        }
        calls::set_attributes(&self.mount, false, libc::MOUNT_ATTR_RDONLY, 0)
            .map_err(|errno| Error::system("make read-only", &self.path, errno))
    }
}

fn create_detached(settings: &[(&str, String)]) -> nix::Result<OwnedFd> {
    let text = |value: &str| CString::new(value).map_err(|_| Errno::EINVAL);
    let context = calls::fsopen(c"tmpfs")?;
    for (key, value) in settings {
        calls::fsconfig_string(&context, &text(key)?, &text(value)?)?;
    }
    calls::fsconfig_string(&context, c"source", c"tmpfs")?;
    calls::fsconfig_create(&context)?;
    calls::fsmount(&context, mount_attr(ATTRIBUTES))
}

/// Joins the options to one string, for mount(2).
fn join_settings(settings: &[(&str, String)]) -> String {
    let text = |(key, value): &(&str, String)| match *key {
        "context" => format!("context=\"{value}\""),
        key => format!("{key}={value}"),
    };
    settings.iter().map(text).collect::<Vec<_>>().join(",")
}

fn open_root(mount: &OwnedFd) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat(mount, ".", flags, Mode::empty())
}
