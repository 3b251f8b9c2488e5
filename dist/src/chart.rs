//! Writes a Helm chart as an OCI Image Layout, as `helm push` writes it to a registry
//! (<https://helm.sh/docs/topics/registries/>).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::blobs::Blobs;
use crate::image::{INDEX, MANIFEST};

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// A packed chart on the command line.
#[derive(Debug, Args)]
pub(crate) struct PackedChart {
    /// The chart as `helm package` packs it
    #[arg(long)]
    chart: PathBuf,
    /// Its Chart.yaml
    #[arg(long)]
    metadata: PathBuf,
    /// When it was made, as in 2026-11-21T18:00:00Z
    #[arg(long)]
    created: String,
}

/// Writes a layout with one artefact to `dir`, and returns the digest of its manifest.
pub(crate) fn write_layout(dir: &Path, packed: &PackedChart) -> Result<String> {
    let text = fs::read_to_string(&packed.metadata)
        .with_context(|| format!("cannot read {}", packed.metadata.display()))?;
    // The values of ours are texts.
    let metadata: BTreeMap<String, String> = serde_saphyr::from_str(&text)
        .with_context(|| format!("cannot parse {}", packed.metadata.display()))?;
    let chart = fs::read(&packed.chart)
        .with_context(|| format!("cannot read {}", packed.chart.display()))?;
    let value = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    let blobs = Blobs::create(dir)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.add_json(CONFIG, &json!(metadata))?,
        "layers": [blobs.add(CONTENT, &chart)?],
        "annotations": {
            "org.opencontainers.image.title": value("name"),
            "org.opencontainers.image.description": value("description"),
            "org.opencontainers.image.version": value("version"),
            "org.opencontainers.image.created": packed.created,
            "org.opencontainers.image.url": value("home"),
        },
    });
    let mut entry = blobs.add_json(MANIFEST, &manifest)?;
    let digest = entry["digest"].as_str().unwrap_or_default().to_owned();
    entry["annotations"] = json!({"org.opencontainers.image.ref.name": value("version")});
    let top = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]});
    let layout: Value = json!({"imageLayoutVersion": "1.0.0"});
    for (file, value) in [("index.json", top), ("oci-layout", layout)] {
        fs::write(dir.join(file), value.to_string())?;
    }
    Ok(digest)
}
