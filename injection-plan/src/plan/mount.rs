//! Bind mounts of files, directories and device nodes from the host into a container.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use device_class::class::FileKind;
use device_class::discover::FileSource;

/// A bind mount from the host into the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindMount {
    /// The absolute path on the host.
    pub source: PathBuf,
    /// The absolute path in the container.
    pub path: PathBuf,
    /// The kinds of file that the source may have. The hook refuses a source of another kind.
    #[serde(rename = "kinds")]
    pub source_kinds: &'static [SourceKind],
    /// Whether the mounts below the source are bind-mounted together with it (`rbind`).
    pub recursive: bool,
    #[serde(rename = "options")]
    pub attributes: MountAttributes,
    /// Whether the container starts without the file if the file cannot be mounted, for example
    /// because the container has a directory at this path.
    #[serde(skip)]
    pub is_optional: bool,
    /// Whether the file is a module that libraries of the image load. Such a library searches for
    /// its modules in its own directory.
    #[serde(skip)]
    pub is_image_module: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    Device,
    File,
    /// A Unix socket, on which for example a driver's daemon listens.
    Socket,
    Directory,
}

/// The attributes that are set on a bind mount (mount_setattr(2)). The mount of the source file may
/// have further ones, which are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MountAttributes {
    /// Files cannot be written to, and their mode and owner cannot be changed (MOUNT_ATTR_RDONLY).
    pub read_only: bool,
    /// The set-user-ID and set-group-ID bits of programs have no effect (MOUNT_ATTR_NOSUID).
    pub nosuid: bool,
    /// Device nodes cannot be opened (MOUNT_ATTR_NODEV).
    pub nodev: bool,
    /// Programs cannot be executed (MOUNT_ATTR_NOEXEC).
    pub noexec: bool,
}

impl MountAttributes {
    /// The attributes for libraries, programs and other files of the host, which root in the
    /// container must not change.
    pub const FILE: Self = Self {
        read_only: true,
        nosuid: true,
        nodev: true,
        noexec: false,
    };

    /// The attributes for a socket. The mount is writable, because an engine in the container must
    /// be able to mount the socket writable into its own containers.
    pub const WRITABLE_SOCKET: Self = Self {
        read_only: false,
        nosuid: true,
        nodev: true,
        noexec: true,
    };

    /// The attributes for device nodes. The read-only mount protects the mode and owner of the
    /// host's node. It does not prevent programs from writing to the device.
    pub const DEVICE: Self = Self {
        read_only: true,
        nosuid: true,
        nodev: false,
        noexec: true,
    };

    /// Returns the attributes that are set, as options of mount(8) such as `ro`.
    pub fn options(self) -> impl Iterator<Item = &'static str> {
        let options = [
            (self.read_only, "ro"),
            (self.nosuid, "nosuid"),
            (self.nodev, "nodev"),
            (self.noexec, "noexec"),
        ];
        options
            .into_iter()
            .filter_map(|(is_set, option)| is_set.then_some(option))
    }
}

impl Serialize for MountAttributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.options())
    }
}

impl BindMount {
    /// Returns all options of the mount as mount(8) spells them. The first option is `bind` or
    /// `rbind`.
    pub fn options(&self) -> impl Iterator<Item = &'static str> {
        let bind_option = if self.recursive { "rbind" } else { "bind" };
        [bind_option].into_iter().chain(self.attributes.options())
    }

    pub(crate) fn device(source: PathBuf, path: PathBuf) -> Self {
        BindMount {
            source,
            path,
            source_kinds: &[SourceKind::Device],
            recursive: false,
            attributes: MountAttributes::DEVICE,
            is_optional: false,
            is_image_module: false,
        }
    }

    pub(super) fn file(source: FileSource, path: PathBuf) -> Self {
        BindMount {
            source_kinds: match source.kind {
                FileKind::File => &[SourceKind::File],
                FileKind::Socket => &[SourceKind::Socket],
            },
            attributes: if source.is_writable {
                MountAttributes::WRITABLE_SOCKET
            } else {
                MountAttributes::FILE
            },
            is_image_module: source.is_image_module,
            ..Self::library(source.path, path)
        }
    }

    pub(crate) fn library(source: PathBuf, path: PathBuf) -> Self {
        BindMount {
            source,
            path,
            source_kinds: &[SourceKind::File],
            recursive: false,
            attributes: MountAttributes::FILE,
            is_optional: false,
            is_image_module: false,
        }
    }

    pub(crate) fn directory(source: PathBuf, path: PathBuf, is_writable: bool) -> Self {
        BindMount {
            source_kinds: &[SourceKind::Directory],
            recursive: true,
            attributes: MountAttributes {
                read_only: !is_writable,
                ..MountAttributes::FILE
            },
            ..Self::library(source, path)
        }
    }

    /// Returns a read-only mount for a tmpfs that hides a directory
    /// ([`Action::Mask`](super::Action::Mask)). The mount makes one file or directory of the host
    /// visible there.
    pub(super) fn new_visible_file(source: PathBuf, path: PathBuf) -> Self {
        BindMount {
            source_kinds: &[SourceKind::File, SourceKind::Directory],
            ..Self::directory(source, path, false)
        }
    }
}
