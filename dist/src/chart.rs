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

/// The media type of the metadata of a chart in a registry.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// The media type of a packed chart in a registry.
const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// A packed chart on the command line.
#[derive(Debug, Args)]
pub(crate) struct PackedChart {
    /// The chart as `helm package` packs it
    #[arg(long)]
    chart: PathBuf,
    /// The Chart.yaml of the packed chart
    #[arg(long)]
    metadata: PathBuf,
    /// The time at which the chart was packed, such as 2026-11-21T18:00:00Z
    #[arg(long)]
    created: String,
}

/// Writes a layout with the chart to `dir`, and returns the digest of the chart's manifest.
pub(crate) fn write_layout(dir: &Path, packed: &PackedChart) -> Result<String> {
    let text = fs::read_to_string(&packed.metadata)
        .with_context(|| format!("cannot read {}", packed.metadata.display()))?;
    // Every value in the Chart.yaml of this project is a string, which Chart.yaml files need not be.
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
