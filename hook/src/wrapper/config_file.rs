//! The file config.json, which is read once and replaced as a whole.

use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use nix::unistd::{getegid, geteuid};
use rooted_path::FileReplacement;

use crate::oci::{Bundle, BundleError, open_regular, read_capped};

pub(super) struct ConfigFile {
    path: PathBuf,
    metadata: Metadata,
    text: String,
}

impl ConfigFile {
    /// Reads the file. Symbolic links are resolved only once, so that the file that was read
    /// is the one that is replaced.
    pub(super) fn read(path: &Path) -> Result<Self, BundleError> {
        let unreadable = |error| BundleError::Read {
            path: path.into(),
            error,
        };
        let path = fs::canonicalize(path).map_err(unreadable)?;
        let file = open_regular(&path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let bytes = read_capped(file, Bundle::MAX)
            .map_err(unreadable)?
            .ok_or_else(|| BundleError::TooLarge(path.clone()))?;
        let text = String::from_utf8(bytes)
            .map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        Ok(ConfigFile {
            path,
            metadata,
            text,
        })
    }

    /// Returns the path of the file, with symbolic links resolved.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the file atomically, and keeps its mode and owner. The content is not flushed
    /// to disk, because no container persists over a reboot.
    ///
    /// # Errors
    /// The new file cannot be created. The old file is unchanged then.
    pub(super) fn replace(&self, text: &str) -> io::Result<()> {
        let mut replacement = FileReplacement::create(&self.path)?;
        let file = replacement.file();
        file.write_all(text.as_bytes())?;
        let (uid, gid) = (self.metadata.uid(), self.metadata.gid());
        if (uid, gid) != (geteuid().as_raw(), getegid().as_raw()) {
            fchown(&*file, Some(uid), Some(gid))?;
        }
        file.set_permissions(self.metadata.permissions())?;
        replacement.put_in_place()
    }
}
