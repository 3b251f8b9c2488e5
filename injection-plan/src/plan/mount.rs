//! Bind mounts of files, directories and device nodes of the host into a container.

use std::path::PathBuf;

use serde::{Serialize, Serializer};

use device_class::class::FileKind;
use device_class::discover::FileSource;

/// A bind mount from the host into the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BindMount {
    /// The path on the host.
    pub source: PathBuf,
    /// The path in the container.
    pub path: PathBuf,
    /// The kinds of file that the source may be.
    pub kinds: &'static [SourceKind],
    /// Whether mounts below the source are mounted, too (`rbind`).
    pub recursive: bool,
    #[serde(rename = "options")]
    pub attributes: MountAttributes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    Device,
    File,
    /// The socket of a driver's daemon.
    Socket,
    Directory,
}

/// Attributes that a bind mount sets in addition to the attributes of its source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MountAttributes {
    /// Files cannot be written, and their mode and owner cannot be changed.
    pub read_only: bool,
    /// Set-user-id and set-group-id bits have no effect.
    pub nosuid: bool,
    /// Device nodes cannot be opened.
    pub nodev: bool,
    /// Programs cannot be executed.
    pub noexec: bool,
}

impl MountAttributes {
    /// The attributes for libraries, programs and other files of the host.
    pub const FILE: Self = Self {
        read_only: true,
        nosuid: true,
        nodev: true,
        noexec: false,
    };

    /// The attributes for a socket that an engine in the container may bind writable into
    /// containers of its own.
    pub const WRITABLE_SOCKET: Self = Self {
        read_only: false,
        nosuid: true,
        nodev: true,
        noexec: true,
    };

    /// The attributes for device nodes. A read-only mount protects the mode and owner of
    /// the host's node; writing to the device itself is still possible.
    pub const DEVICE: Self = Self {
        read_only: true,
        nosuid: true,
        nodev: false,
        noexec: true,
    };

    /// Returns the names of the attributes that are set, as mount(8) spells them.
    pub fn options(self) -> impl Iterator<Item = &'static str> {
        let all = [
            (self.read_only, "ro"),
            (self.nosuid, "nosuid"),
            (self.nodev, "nodev"),
            (self.noexec, "noexec"),
        ];
        all.into_iter()
            .filter_map(|(set, option)| set.then_some(option))
    }
}

impl Serialize for MountAttributes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.options())
    }
}

impl BindMount {
    /// Returns all options of the mount, as mount(8) spells them: `bind` or `rbind` first.
    pub fn options(&self) -> impl Iterator<Item = &'static str> {
        let bind = if self.recursive { "rbind" } else { "bind" };
        [bind].into_iter().chain(self.attributes.options())
    }

    pub(crate) fn device(source: PathBuf, path: PathBuf) -> Self {
        BindMount {
            source,
            path,
            kinds: &[SourceKind::Device],
            recursive: false,
            attributes: MountAttributes::DEVICE,
        }
    }

    pub(super) fn file(source: FileSource, path: PathBuf) -> Self {
        BindMount {
            kinds: match source.kind {
                FileKind::File => &[SourceKind::File],
                FileKind::Socket => &[SourceKind::Socket],
            },
            attributes: if source.writable {
                MountAttributes::WRITABLE_SOCKET
            } else {
                MountAttributes::FILE
            },
            ..Self::library(source.path, path)
        }
    }

    pub(crate) fn library(source: PathBuf, path: PathBuf) -> Self {
        BindMount {
            source,
            path,
            kinds: &[SourceKind::File],
            recursive: false,
            attributes: MountAttributes::FILE,
        }
    }

    pub(crate) fn directory(source: PathBuf, path: PathBuf, writable: bool) -> Self {
        BindMount {
            kinds: &[SourceKind::Directory],
            recursive: true,
            attributes: MountAttributes {
                read_only: !writable,
                ..MountAttributes::FILE
            },
            ..Self::library(source, path)
        }
    }

    /// Returns the read-only mount of a file or directory into a masked directory.
    pub(super) fn shown(source: PathBuf, path: PathBuf) -> Self {
        BindMount {
            kinds: &[SourceKind::File, SourceKind::Directory],
            ..Self::directory(source, path, false)
        }
    }
}
