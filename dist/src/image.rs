//! Writes the contents of an image archive. It is an OCI Image Layout (OCI Image Format
//! Specification 1.1) with an index of platforms. The archive also contains the file
//! `manifest.json`, as `docker save` writes it, because Docker without containerd's image store
//! reads only this file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};

use crate::blobs::{BlobDirectory, compute_digest};

pub(crate) const INDEX_MEDIA_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const MANIFEST_MEDIA_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_MEDIA_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const LAYER_MEDIA_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// The layer of a platform of an image: the name that Go uses for the architecture, such as
/// `amd64`, and the path of the tar archive that is the platform's only layer.
pub(crate) type PlatformLayer = (String, PathBuf);

/// Parses an argument of the form `ARCHITECTURE=FILE`, such as `amd64=layer.tar`.
pub(crate) fn parse_layer(text: &str) -> Result<PlatformLayer, &'static str> {
    let (architecture, file) = text.split_once('=').ok_or("not ARCHITECTURE=FILE")?;
    Ok((architecture.to_owned(), file.into()))
}

/// The description of an image on the command line.
#[derive(Debug, Args)]
pub(crate) struct ImageDescription {
    /// The image's name with its tag
    #[arg(long)]
    name: String,
    /// A sentence that describes the image
    #[arg(long)]
    description: String,
    /// A platform and its layer, such as amd64=layer.tar; the first is the one of
    /// `docker load`
    #[arg(long = "layer", required = true, value_parser = parse_layer)]
    layers: Vec<PlatformLayer>,
    /// The program to run
    #[arg(long)]
    entrypoint: String,
    /// The creation time of the image, such as 2026-11-21T18:00:00Z
    #[arg(long)]
    created: String,
    /// The git commit of the sources, as the label org.opencontainers.image.revision has it
    #[arg(long)]
    revision: String,
}

impl ImageDescription {
    /// Returns the annotations of the image, with the keys of the OCI Image Format Specification.
    /// The image configuration has the same values as labels, because `docker inspect` shows only
    /// labels.
    fn build_annotations(&self) -> Value {
        let (title, version) = self.name.rsplit_once(':').unwrap_or((&self.name, ""));
        let source = env!("CARGO_PKG_REPOSITORY");
        json!({
            "org.opencontainers.image.title": title,
            "org.opencontainers.image.description": self.description,
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.created": self.created,
            "org.opencontainers.image.revision": self.revision,
            "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
            "org.opencontainers.image.source": source,
            "org.opencontainers.image.url": source,
            "org.opencontainers.image.documentation": format!("{source}/tree/main/docs"),
            "org.opencontainers.image.vendor": "The Boathook maintainers",
        })
    }
}

/// Writes the contents of the archive to `dir`. `scripts/dist` then packs them.
pub(crate) fn write_layout(dir: &Path, image: &ImageDescription) -> Result<()> {
    let name = &image.name;
    let blobs = BlobDirectory::create(dir)?;
    let mut manifests = Vec::new();
    let mut docker_entries = Vec::new();
    for layer in &image.layers {
        let (manifest, entry) = write_platform(&blobs, layer, image)?;
        manifests.push(manifest);
        docker_entries.push(entry);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": INDEX_MEDIA_TYPE,
        "manifests": manifests,
        "annotations": image.build_annotations(),
    });
    let mut index_descriptor = blobs.add_json_blob(INDEX_MEDIA_TYPE, &index)?;
    index_descriptor["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/{name}"),
        "org.opencontainers.image.ref.name": name.rsplit(':').next(),
    });
    let top_index =
        json!({"schemaVersion": 2, "mediaType": INDEX_MEDIA_TYPE, "manifests": [index_descriptor]});
    // For each entry of manifest.json, `docker load` assumes an image for its own platform.
    // Therefore only the first platform gets an entry.
    let mut docker_manifest: Vec<Value> = docker_entries.into_iter().take(1).collect();
    docker_manifest[0]["RepoTags"] = json!([name]);
    let layout = json!({"imageLayoutVersion": "1.0.0"});
    for (file, value) in [
        ("index.json", top_index),
        ("manifest.json", Value::from(docker_manifest)),
        ("oci-layout", layout),
    ] {
        fs::write(dir.join(file), value.to_string())?;
    }
    Ok(())
}

/// Writes the blobs of a platform. Returns the descriptor of the platform's manifest, and the
/// platform's entry in `manifest.json`.
fn write_platform(
    blobs: &BlobDirectory,
    (architecture, layer_path): &PlatformLayer,
    image: &ImageDescription,
) -> Result<(Value, Value)> {
    let created = &image.created;
    let layer_bytes = fs::read(layer_path).with_context(|| layer_path.display().to_string())?;
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(&layer_bytes)?;
    let layer = blobs.add_blob(LAYER_MEDIA_TYPE, &encoder.finish()?)?;
    let config = json!({
        "created": created,
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": [image.entrypoint],
            "Labels": image.build_annotations(),
        },
        "rootfs": {"type": "layers", "diff_ids": [compute_digest(&layer_bytes)]},
        "history": [{"created": created, "created_by": "boathook-dist"}],
    });
    let config = blobs.add_json_blob(CONFIG_MEDIA_TYPE, &config)?;
    let get_blob_path = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap_or_default();
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let entry = json!({"Config": get_blob_path(&config), "Layers": [get_blob_path(&layer)]});
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA_TYPE,
        "config": config,
        "layers": [layer],
        "annotations": image.build_annotations(),
    });
    let mut manifest = blobs.add_json_blob(MANIFEST_MEDIA_TYPE, &manifest)?;
    manifest["platform"] = json!({"architecture": architecture, "os": "linux"});
    Ok((manifest, entry))
}
