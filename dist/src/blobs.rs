//! Reads and writes the blobs of an OCI Image Layout (OCI Image Format Specification).

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ring::digest::SHA256;
use serde_json::{Value, json};

/// The directory `blobs/sha256` of a layout. Each file in the directory has its own SHA-256 digest
/// as its name.
pub(crate) struct BlobDirectory(PathBuf);

impl BlobDirectory {
    pub(crate) fn from_layout(layout: &Path) -> Self {
        Self(layout.join("blobs/sha256"))
    }

    pub(crate) fn create(layout: &Path) -> Result<Self> {
        let blobs = Self::from_layout(layout);
        fs::create_dir_all(&blobs.0)
            .with_context(|| format!("cannot make {}", blobs.0.display()))?;
        Ok(blobs)
    }

    /// Writes a blob, and returns its descriptor, which has the media type, the digest and the
    /// size.
    pub(crate) fn add_blob(&self, media_type: &str, contents: &[u8]) -> Result<Value> {
        let digest = compute_digest(contents);
        let name = digest.trim_start_matches("sha256:");
        fs::write(self.0.join(name), contents)?;
        Ok(json!({"mediaType": media_type, "digest": digest, "size": contents.len()}))
    }

    pub(crate) fn add_json_blob(&self, media_type: &str, value: &Value) -> Result<Value> {
        self.add_blob(media_type, value.to_string().as_bytes())
    }

    /// Reads the blob to which a descriptor refers.
    ///
    /// # Errors
    /// Returns an error if the blob cannot be read, or if its size or digest differs from that in
    /// the descriptor.
    pub(crate) fn read_blob(&self, descriptor: &Value) -> Result<Vec<u8>> {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        let name = digest.strip_prefix("sha256:").unwrap_or_default();
        ensure!(
            name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "the descriptor {descriptor} has no SHA-256 digest"
        );
        let path = self.0.join(name);
        let contents =
            fs::read(&path).with_context(|| format!("cannot read the blob {}", path.display()))?;
        let computed_digest = compute_digest(&contents);
        ensure!(
            computed_digest == digest,
            "the blob {} has the digest {computed_digest}; make the release again",
            path.display()
        );
        let size = descriptor["size"].as_u64();
        ensure!(
            size == Some(contents.len() as u64),
            "the blob {} has {} bytes, which its descriptor does not say; make the release again",
            path.display(),
            contents.len()
        );
        Ok(contents)
    }
}

/// Returns the SHA-256 digest of a blob in the form that descriptors use, such as `sha256:e3b0…`.
pub(crate) fn compute_digest(contents: &[u8]) -> String {
    let mut digest = "sha256:".to_owned();
    for byte in ring::digest::digest(&SHA256, contents).as_ref() {
        // Writing to a String does not fail.
        let _ = write!(digest, "{byte:02x}");
    }
    digest
}
