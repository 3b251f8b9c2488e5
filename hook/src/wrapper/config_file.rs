//! Reads a bundle's config.json and replaces the file atomically.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use host_files::rooted_path::FileReplacement;
use nix::unistd::{getegid, geteuid};

use crate::oci::{Bundle, BundleError, open_regular, read_capped};

pub(super) struct ConfigFile {
    path: PathBuf,
    metadata: Metadata,
    content: String,
}

impl ConfigFile {
    /// Reads the file at `path`. Symbolic links in `path` are resolved first, so that
    /// [`Self::replace`] replaces the file that was read, and not a link.
    pub(super) fn read(path: &Path) -> Result<Self, BundleError> {
        let to_read_error = |error| BundleError::Read {
            path: path.into(),
            error,
        };
        let path = fs::canonicalize(path).map_err(to_read_error)?;
        let file = open_regular(&path).map_err(to_read_error)?;
        let metadata = file.metadata().map_err(to_read_error)?;
        let bytes = read_capped(file, Bundle::MAX_CONFIG_BYTES)
            .map_err(to_read_error)?
            .ok_or_else(|| BundleError::TooLarge(path.clone()))?;
        let content = String::from_utf8(bytes)
            .map_err(|error| to_read_error(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        Ok(ConfigFile {
            path,
            metadata,
            content,
        })
    }

    /// Returns the path of the file without symbolic links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn content(&self) -> &str {
        &self.content
    }

    /// Replaces the file atomically with a new file that has the same mode and owner. The new file
    /// is not flushed to disk, because no container survives a reboot. After an error, the old file
    /// is unchanged.
    pub(super) fn replace(&self, content: &str) -> io::Result<()> {
        let mut replacement = FileReplacement::create(&self.path)?;
        let file = replacement.file();
        file.write_all(content.as_bytes())?;
        let (uid, gid) = (self.metadata.uid(), self.metadata.gid());
        if (uid, gid) != (geteuid().as_raw(), getegid().as_raw()) {
            fchown(&*file, Some(uid), Some(gid))?;
        }
        file.set_permissions(self.metadata.permissions())?;
        replacement.commit()
    }
}
