//! Writes the signature of an image in the form in which cosign stores it beside the image in a
//! registry: as another image, whose tag contains the signed digest, and whose layer is the signed
//! payload (<https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md>).
//!
//! A program that has the key, such as openssl, makes the signature itself. It signs the bytes that
//! [`print_payload`] prints, by ECDSA with SHA-256.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::blobs::BlobDirectory;
use crate::image::{INDEX_MEDIA_TYPE, MANIFEST_MEDIA_TYPE};

/// The media type under which a registry stores the signed payload.
const PAYLOAD_MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const CONFIG_MEDIA_TYPE: &str = "application/vnd.oci.image.config.v1+json";
/// The annotation of the layer that contains the signature in base64.
const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// The value of `critical.type` in the payload, which says that an image was signed.
const PAYLOAD_TYPE: &str = "cosign container image signature";

/// The image that is signed, on the command line.
#[derive(Debug, Args)]
pub(crate) struct SignedImage {
    /// The name of the image in its registry, without a tag
    #[arg(long)]
    name: String,
    /// The digest of the image's manifest or index
    #[arg(long)]
    digest: String,
}

/// A signature on the command line.
#[derive(Debug, Args)]
pub(crate) struct ImageSignature {
    /// The file with the signed bytes
    #[arg(long)]
    payload: PathBuf,
    /// The signature of these bytes, in base64
    #[arg(long)]
    signature: String,
}

/// Prints the bytes to sign: a JSON document with the image's name and digest.
pub(crate) fn print_payload(image: &SignedImage) -> Result<()> {
    let payload = json!({
        "critical": {
            "identity": {"docker-reference": image.name},
            "image": {"docker-manifest-digest": image.digest},
            "type": PAYLOAD_TYPE,
        },
        "optional": null,
    });
    io::stdout().write_all(payload.to_string().as_bytes())?;
    Ok(())
}

/// Writes to `dir` an OCI Image Layout with the signature. Returns the tag under which cosign
/// searches a registry for it, such as `sha256-0123….sig`.
pub(crate) fn write_layout(dir: &Path, signature: &ImageSignature) -> Result<String> {
    let path = &signature.payload;
    let payload = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parsed: Value = serde_json::from_slice(&payload)
        .with_context(|| format!("{} is not JSON", path.display()))?;
    let digest = &parsed["critical"]["image"]["docker-manifest-digest"];
    let digest = digest.as_str().unwrap_or_default();
    let is_digest = digest.strip_prefix("sha256:").is_some_and(|hash| {
        hash.len() == 64 && hash.chars().all(|character| character.is_ascii_hexdigit())
    });
    ensure!(is_digest, "{} names no digest by SHA-256", path.display());
    ensure!(!signature.signature.is_empty(), "the signature is empty");
    let tag = format!("{}.sig", digest.replace(':', "-"));

    let blobs = BlobDirectory::create(dir)?;
    let mut layer = blobs.add_blob(PAYLOAD_MEDIA_TYPE, &payload)?;
    let config = json!({
        "architecture": "", "os": "", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    });
    layer["annotations"] = json!({ SIGNATURE_ANNOTATION: signature.signature });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_MEDIA_TYPE,
        "config": blobs.add_json_blob(CONFIG_MEDIA_TYPE, &config)?,
        "layers": [layer],
    });
    let mut descriptor = blobs.add_json_blob(MANIFEST_MEDIA_TYPE, &manifest)?;
    descriptor["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
    let top_index =
        json!({"schemaVersion": 2, "mediaType": INDEX_MEDIA_TYPE, "manifests": [descriptor]});
    let layout: Value = json!({"imageLayoutVersion": "1.0.0"});
    for (file, value) in [("index.json", top_index), ("oci-layout", layout)] {
        fs::write(dir.join(file), value.to_string())?;
    }
    Ok(tag)
}
