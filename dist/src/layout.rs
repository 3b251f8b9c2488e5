//! Checks the OCI Image Layout of an image before it is published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::blobs::BlobDirectory;

/// The properties that the image of a release must have.
#[derive(Debug, Args)]
pub(crate) struct ExpectedImage {
    /// The directory of the layout
    dir: PathBuf,
    /// The name of the image, without a registry
    #[arg(long)]
    name: String,
    /// The version, which is also the tag of the image
    #[arg(long)]
    version: String,
    /// The git commit of the sources, as the label org.opencontainers.image.revision has it
    #[arg(long)]
    revision: String,
    /// An architecture of the image, such as amd64; may be repeated
    #[arg(long = "arch", required = true)]
    architectures: Vec<String>,
}

/// Reads every blob of a layout, and compares the image with the expected properties. Returns the
/// digest of the image, which does not change when the image is pushed to a registry.
pub(crate) fn check_image(expected_image: &ExpectedImage) -> Result<String> {
    let top_index = read_top_index(&expected_image.dir)?;
    let blobs = BlobDirectory::from_layout(&expected_image.dir);
    let index_descriptor = &top_index["manifests"][0];
    let tag = &index_descriptor["annotations"]["org.opencontainers.image.ref.name"];
    ensure!(
        *tag == expected_image.version,
        "{} has the tag {tag} and not {}",
        expected_image.dir.display(),
        expected_image.version
    );
    let index = read_json(&blobs, index_descriptor)?;
    for (annotation, value) in [
        ("title", &expected_image.name),
        ("version", &expected_image.version),
        ("revision", &expected_image.revision),
    ] {
        let annotated_value =
            &index["annotations"][format!("org.opencontainers.image.{annotation}")];
        ensure!(
            annotated_value == value,
            "the {annotation} of the image {} is {annotated_value} and not \"{value}\"; make the release \
             again of this commit",
            expected_image.name
        );
    }
    let mut architectures = BTreeSet::new();
    for descriptor in index["manifests"].as_array().into_iter().flatten() {
        let manifest = read_json(&blobs, descriptor)?;
        blobs.read_blob(&manifest["config"])?;
        for layer in manifest["layers"].as_array().into_iter().flatten() {
            blobs.read_blob(layer)?;
        }
        let architecture = descriptor["platform"]["architecture"].as_str();
        architectures.extend(architecture.map(str::to_owned));
    }
    let required = expected_image.architectures.iter().cloned().collect();
    ensure!(
        architectures == required,
        "the image {} is for {architectures:?} and not for {required:?}; make the release again",
        expected_image.name
    );
    Ok(index_descriptor["digest"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// Reads `index.json`, the file that leads to all blobs of a layout.
fn read_top_index(dir: &Path) -> Result<Value> {
    let path = dir.join("index.json");
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not JSON", path.display()))
}

fn read_json(blobs: &BlobDirectory, descriptor: &Value) -> Result<Value> {
    let contents = blobs.read_blob(descriptor)?;
    serde_json::from_slice(&contents)
        .with_context(|| format!("the blob {} is not JSON", descriptor["digest"]))
}
