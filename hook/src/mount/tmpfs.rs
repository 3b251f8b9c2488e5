//! A tmpfs of our own in the container, so that names can be given to mounts
//! without a trace in the image's writable layer.

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
    /// The most that it holds, in bytes.
    pub size: u64,
    pub mode: Mode,
    /// The SELinux label of everything in it (`linux.mountLabel` of the OCI
    /// configuration). Without it, a confined container may not read it.
    pub label: Option<&'a str>,
}

/// A tmpfs that can be filled but is not in its place yet.
///
/// On kernels that cannot make one detached, it is.
#[derive(Debug)]
pub struct StagedTmpfs {
    form: Form,
    target: Target,
    directory: WritableDirectory,
}

#[derive(Debug)]
enum Form {
    Detached(OwnedFd),
    Attached(OwnedFd),
}

#[derive(Debug)]
pub struct Tmpfs {
    mount: OwnedFd,
    path: PathBuf,
    directory: WritableDirectory,
}

/// No set-user-id programs and no device nodes of its own: what is mounted on
/// its files brings its own restrictions.
const ATTRIBUTES: Attributes = Attributes {
    read_only: false,
    nosuid: true,
    nodev: true,
    noexec: false,
};

impl Mounter {
    /// Makes a tmpfs that will cover the directory `target`. Its root belongs
    /// to the container's root.
    pub fn tmpfs(&mut self, target: Target, options: &TmpfsOptions<'_>) -> Result<StagedTmpfs> {
        self.propagation.check(&target)?;
        let settings = self.settings(options)?;
        let path = target.path();
        let (form, root) = if self.calls.detached_mounts() {
            let failed = |errno| Error::system("make a tmpfs for", &path, errno);
            let mount = create(&settings).map_err(failed)?;
            let root = open_root(&mount).map_err(failed)?;
            (Form::Detached(mount), root)
        } else {
            let data = joined(&settings);
            let (propagation, proc) = (&mut self.propagation, &*self.proc);
            let top = bind::tmpfs(&target, ATTRIBUTES, &data, propagation, proc)?;
            let root = open_root(&top).map_err(|errno| Error::system("open", &path, errno))?;
            (Form::Attached(top), root)
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
    /// Its root directory, to make entries in.
    pub fn directory(&self) -> &WritableDirectory {
        &self.directory
    }

    /// Puts the tmpfs in its place. Only now can something be mounted on what
    /// is in it; handles and targets made before stay good.
    pub fn attach(self, mounter: &mut Mounter) -> Result<Tmpfs> {
        let path = self.target.path();
        let mount = match self.form {
            Form::Attached(mount) => mount,
            Form::Detached(mount) => {
                detached::attach(&mount, &self.target)?;
                let id = mounter.propagation.mount_id(&mount)?;
                mounter.propagation.add_ours(id);
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
    /// Its root directory.
    pub fn directory(&self) -> &WritableDirectory {
        &self.directory
    }

    /// Makes it read-only for good. What is mounted on its files keeps its own
    /// restrictions.
    ///
    /// # Errors
    /// [`Error::System`] if the kernel refuses, as it does with `EBUSY` while
    /// a file in it is open for writing.
    pub fn set_read_only(&self, mounter: &Mounter) -> Result<()> {
        if !mounter.calls.mount_setattr {
            return bind::set_read_only(&self.mount, &self.path, &mounter.proc);
        }
        calls::set_attributes(&self.mount, false, libc::MOUNT_ATTR_RDONLY, 0)
            .map_err(|errno| Error::system("make read-only", &self.path, errno))
    }
}

fn create(settings: &[(&str, String)]) -> nix::Result<OwnedFd> {
    let text = |value: &str| CString::new(value).map_err(|_| Errno::EINVAL);
    let context = calls::fsopen(c"tmpfs")?;
    for (key, value) in settings {
        calls::fsconfig_string(&context, &text(key)?, &text(value)?)?;
    }
    calls::fsconfig_string(&context, c"source", c"tmpfs")?;
    calls::fsconfig_create(&context)?;
    calls::fsmount(&context, mount_attr(ATTRIBUTES))
}

/// As one string, for mount(2).
fn joined(settings: &[(&str, String)]) -> String {
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
