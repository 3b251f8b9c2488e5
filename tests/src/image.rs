//! Creates images for engines from the root file systems.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::captured::Captured;
use crate::rootfs::Rootfs;
use crate::{fingerprint, scratch};

/// The files of an image, which are removed when the value is dropped.
#[derive(Debug)]
pub struct Image {
    directory: TempDir,
}

impl Image {
    pub fn new(rootfs: Rootfs) -> Result<Self> {
        let directory = scratch::directory("image")?;
        let tree = directory.path().join("tree");
        rootfs.copy_to(&tree)?;
        let image = Self { directory };
        tar(&tree, &image.layer())?;
        Ok(image)
    }

    /// Returns the path of a tar archive with the root file system, for `docker import`.
    pub fn layer(&self) -> PathBuf {
        self.directory.path().join("layer.tar")
    }

    /// Returns the path of a tar archive with the image in the OCI Image Layout (OCI image
    /// specification 1.0). `name` is its full name, such as `docker.io/library/busybox:1`. A
    /// container of the image runs `command` by default.
    pub fn oci_archive(&self, name: &str, command: &[&str]) -> Result<PathBuf> {
        self.annotated_archive(name, command, &[])
    }

    /// Returns the path of the archive as [`Self::oci_archive`] does, with annotations in the
    /// image's manifest.
    pub fn annotated_archive(
        &self,
        name: &str,
        command: &[&str],
        annotations: &[(&str, &str)],
    ) -> Result<PathBuf> {
        let top = self.directory.path().join("oci");
        let blobs = top.join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        let layer = blob(&blobs, &fs::read(self.layer())?)?;
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [layer.0]},
        });
        let config = blob(&blobs, config.to_string().as_bytes())?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
            "annotations": annotations.iter().copied().collect::<BTreeMap<_, _>>(),
        });
        let manifest = blob(&blobs, manifest.to_string().as_bytes())?;
        let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        entry["annotations"] = json!({
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name,
        });
        let index = json!({"schemaVersion": 2, "manifests": [entry]});
        fs::write(top.join("index.json"), index.to_string())?;
        let layout = json!({"imageLayoutVersion": "1.0.0"});
        fs::write(top.join("oci-layout"), layout.to_string())?;
        let archive = self.directory.path().join("oci.tar");
        tar(&top, &archive)?;
        Ok(archive)
    }
}

/// Returns the full name of the image with a root file system.
pub fn name_of(rootfs: Rootfs) -> String {
    format!("docker.io/library/boathook-test-{}:1", rootfs.name())
}

/// The digest and the size of a blob.
type Blob = (String, usize);

fn blob(directory: &Path, contents: &[u8]) -> Result<Blob> {
    let digest = fingerprint::sha256(contents);
    fs::write(directory.join(&digest), contents)?;
    Ok((format!("sha256:{digest}"), contents.len()))
}

fn descriptor(kind: &str, (digest, size): &Blob) -> Value {
    json!({"mediaType": kind, "digest": digest, "size": size})
}

/// Returns the name of this machine's architecture in images (Go's GOARCH).
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn tar(tree: &Path, archive: &Path) -> Result<()> {
    let mut command = Command::new("tar");
    command
        .args(["--create", "--numeric-owner", "--file"])
        .arg(archive)
        .arg("--directory")
        .arg(tree)
        .arg(".");
    Captured::run(&mut command)?
        .success()
        .map(|_| ())
        .with_context(|| format!("cannot pack {}", tree.display()))
}
