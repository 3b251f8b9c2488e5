//! The file config.json: read once, and replaced as a whole.

use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use nix::unistd::{getegid, geteuid};

use crate::oci::{Bundle, BundleError, capped, open_regular};

pub(super) struct ConfigFile {
    path: PathBuf,
    metadata: Metadata,
    text: String,
}

impl ConfigFile {
    /// Reads it. Links are resolved now, so that the file that was read is the
    /// one that is replaced.
    pub(super) fn read(path: &Path) -> Result<Self, BundleError> {
        let unreadable = |error| BundleError::Read {
            path: path.into(),
            error,
        };
        let path = fs::canonicalize(path).map_err(unreadable)?;
        let file = open_regular(&path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        let bytes = capped(file, Bundle::MAX).map_err(unreadable)?;
        let bytes = bytes.ok_or_else(|| BundleError::TooLarge(path.clone()))?;
        let text = String::from_utf8(bytes)
            .map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        Ok(ConfigFile {
            path,
            metadata,
            text,
        })
    }

    /// The file's path without links.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces the file atomically, with the same mode and owner. The text is
    /// not synced to disk, since no container persists over a reboot.
    ///
    /// # Errors
    /// The new file cannot be created. The old one is unchanged.
    pub(super) fn replace(&self, text: &str) -> io::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        let unfinished = directory.join(format!(".boathook-{}.json", std::process::id()));
        let replaced = self
            .write(&unfinished, text)
            .and_then(|()| fs::rename(&unfinished, &self.path));
        if replaced.is_err() {
            // The first error is more useful than one of the cleanup.
            let _ = fs::remove_file(&unfinished);
        }
        replaced
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(text.as_bytes())?;
        let (uid, gid) = (self.metadata.uid(), self.metadata.gid());
        if (uid, gid) != (geteuid().as_raw(), getegid().as_raw()) {
            fchown(&file, Some(uid), Some(gid))?;
        }
        file.set_permissions(Permissions::clone(&self.metadata.permissions()))
    }
}
