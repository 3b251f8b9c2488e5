//! Writes a Helm chart as an OCI Image Layout. The layout has the form in which `helm push` stores
//! a chart in a registry (<https://helm.sh/docs/topics/registries/>).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use serde_json::{Value, json};

use crate::blobs::BlobDirectory;
use crate::image::{INDEX_MEDIA_TYPE, MANIFEST_MEDIA_TYPE};

/// The media type under which a registry stores the metadata of a chart.
const CONFIG_MEDIA_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
/// The media type under which a registry stores a packed chart.
const CHART_MEDIA_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

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

/// Writes to `dir` an OCI Image Layout that contains the chart. Returns the digest of the chart's
/// manifest.
pub(crate) fn write_layout(dir: &Path, packed_chart: &PackedChart) -> Result<String> {
    let metadata_text = fs::read_to_string(&packed_chart.metadata)
        .with_context(|| format!("cannot read {}", packed_chart.metadata.display()))?;
    let metadata: BTreeMap<String, Value> = serde_saphyr::from_str(&metadata_text)
        .with_context(|| format!("cannot parse {}", packed_chart.metadata.display()))?;
    let chart = fs::read(&packed_chart.chart)
        .with_context(|| format!("cannot read {}", packed_chart.chart.display()))?;
    let get_value = |key: &str| {
        metadata
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let blobs = BlobDirectory::create(dir)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA_TYPE,
        "config": blobs.add_json_blob(CONFIG_MEDIA_TYPE, &json!(metadata))?,
        "layers": [blobs.add_blob(CHART_MEDIA_TYPE, &chart)?],
        "annotations": {
            "org.opencontainers.image.title": get_value("name"),
            "org.opencontainers.image.description": get_value("description"),
            "org.opencontainers.image.version": get_value("version"),
            "org.opencontainers.image.created": packed_chart.created,
            "org.opencontainers.image.url": get_value("home"),
        },
    });
    let mut descriptor = blobs.add_json_blob(MANIFEST_MEDIA_TYPE, &manifest)?;
    let digest = descriptor["digest"].as_str().unwrap_or_default().to_owned();
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": get_value("version")});
    let top_index =
        json!({"schemaVersion": 2, "mediaType": INDEX_MEDIA_TYPE, "manifests": [descriptor]});
    let layout: Value = json!({"imageLayoutVersion": "1.0.0"});
    for (file, value) in [("index.json", top_index), ("oci-layout", layout)] {
        fs::write(dir.join(file), value.to_string())?;
    }
    Ok(digest)
}
