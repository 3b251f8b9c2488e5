//! What a rehearsal prepares: everything that would be published.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Publication, REGISTRY, SOURCES, digest_of_manifest};
use crate::release::{VERSION, names_in, printed};
use crate::said::assert_says;

pub(super) fn prepare_all_that_is_published(publication: &Publication) {
    // Before the tag is set.
    let rehearsed = publication.rehearse("").success().unwrap();
    assert_says(
        &rehearsed.stderr,
        &[&format!("note: there is no tag v{VERSION}")],
    );
    let digest = digest_of_manifest(&publication.published("layouts/boathook"));
    for name in ["install", "uninstall"] {
        let read = |file: String| fs::read_to_string(publication.published(&file)).unwrap();
        let manifest = read(format!("files/{name}.yaml"));
        let images: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.trim().strip_prefix("image: "))
            .collect();
        assert!(images.len() >= 2, "{manifest}");
        assert!(
            images
                .iter()
                .all(|image| *image == format!("{REGISTRY}/boathook@{digest}")),
            "{images:?}"
        );
        let imported = read(format!("files/{name}-imported.yaml"));
        assert_says(&imported, &[&format!("image: boathook:{VERSION}\n")]);
    }

    let sources = publication.published(&format!("files/boathook-{VERSION}-source.tar.gz"));
    assert_eq!(fs::read_to_string(sources).unwrap(), SOURCES);

    // The sums cover every file, and the signature the sums.
    let files = names_in(&publication.published("files"));
    let mut check = Command::new("sha256sum");
    check
        .args(["--check", "SHA256SUMS"])
        .current_dir(publication.published("files"));
    assert_eq!(printed(&mut check).lines().count(), files.len() - 2);
    let mut verify = Command::new("openssl");
    verify
        .args(["dgst", "-sha256", "-verify", "../rehearsal.pub"])
        .args(["-signature", "SHA256SUMS.sig", "SHA256SUMS"])
        .current_dir(publication.published("files"));
    assert_says(&printed(&mut verify), &["Verified OK"]);
    // Nobody has the private key.
    assert!(!files.iter().any(|name| name.contains("key")), "{files:?}");

    assert_images_are_signed(publication, &rehearsed.stdout);

    let notes = fs::read_to_string(publication.published("notes.md")).unwrap();
    assert_says(&notes, &["### Hook", "](https://"]);
    assert!(!notes.contains("](docs/"), "{notes}");
    assert_chart(publication);

    // The commands that would publish are printed, and none is run.
    for line in [
        format!("docker://{REGISTRY}/boathook:{VERSION}\n"),
        format!("docker://{REGISTRY}/boathook-cluster:{VERSION}\n"),
        format!("docker://{REGISTRY}/charts/boathook:{VERSION}\n"),
        format!("+ gh release create v{VERSION} --verify-tag"),
    ] {
        assert_says(&rehearsed.stdout, &[&line]);
    }
    assert_eq!(publication.commands(), "");

    // cosign signs what is in the registry, by itself.
    let rehearsed = publication.rehearse(" --cosign").success().unwrap();
    for image in ["boathook", "boathook-cluster", "charts/boathook"] {
        let line = format!("+ cosign sign --yes --recursive {REGISTRY}/{image}@sha256:");
        assert_says(&rehearsed.stdout, &[&line]);
    }
    assert_says(&rehearsed.stdout, &["+ cosign sign-blob --yes --bundle "]);
    assert_eq!(find_signatures(publication).len(), 0);
    publication.rehearse("").success().unwrap();
}

/// Returns the layouts of the signatures of images.
fn find_signatures(publication: &Publication) -> Vec<PathBuf> {
    let names = names_in(&publication.published("layouts"));
    let names = names.iter().filter(|name| name.starts_with("signature-"));
    names
        .map(|name| publication.published("layouts").join(name))
        .collect()
}

/// The two images, the manifest of each for its one architecture, and the chart have a signature, as
/// cosign has it: the key has signed the layer, which names the image and its digest.
fn assert_images_are_signed(publication: &Publication, printed_commands: &str) {
    let layouts = ["boathook", "boathook-cluster", "chart"];
    let mut expected: BTreeSet<String> = layouts
        .iter()
        .map(|name| digest_of_manifest(&publication.published("layouts").join(name)))
        .collect();
    for name in &layouts[..2] {
        let layout = publication.published("layouts").join(name);
        let index = read_blob(&layout, &digest_of_manifest(&layout));
        let index: Value = serde_json::from_slice(&index).unwrap();
        let manifests = index["manifests"].as_array().unwrap().iter();
        expected.extend(manifests.map(|entry| entry["digest"].as_str().unwrap().to_owned()));
    }
    let mut signed = BTreeSet::new();
    for layout in find_signatures(publication) {
        let manifest = read_blob(&layout, &digest_of_manifest(&layout));
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let layer = &manifest["layers"][0];
        let payload = read_blob(&layout, layer["digest"].as_str().unwrap());
        let signature = layer["annotations"]["dev.cosignproject.cosign/signature"]
            .as_str()
            .unwrap();
        let directory = publication.path("signature");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("payload"), &payload).unwrap();
        fs::write(directory.join("base64"), signature).unwrap();
        let public = publication.published("rehearsal.pub");
        let mut verify = Command::new("sh");
        verify
            .args(["-ec", "openssl base64 -d -A -in base64 -out raw; openssl dgst -sha256 -verify \"$0\" -signature raw payload"])
            .arg(public)
            .current_dir(&directory);
        assert_says(&printed(&mut verify), &["Verified OK"]);

        let payload: Value = serde_json::from_slice(&payload).unwrap();
        let critical = &payload["critical"];
        let name = critical["identity"]["docker-reference"].as_str().unwrap();
        let digest = critical["image"]["docker-manifest-digest"]
            .as_str()
            .unwrap();
        let tag = format!("{}.sig", digest.replace(':', "-"));
        let layout = layout.display();
        let line = format!("oci:{layout}:{tag} docker://{name}:{tag}\n");
        assert_says(printed_commands, &[&line]);
        assert!(signed.insert(digest.to_owned()), "{digest} twice");
    }
    assert_eq!(signed, expected);
}

fn read_blob(layout: &Path, digest: &str) -> Vec<u8> {
    let name = digest.trim_start_matches("sha256:");
    fs::read(layout.join("blobs/sha256").join(name)).unwrap()
}

/// The layout of the chart is what `helm push` makes, and its values name the images.
fn assert_chart(publication: &Publication) {
    let layout = publication.published("layouts/chart");
    let blob = |digest: &Value| {
        let name = digest.as_str().unwrap().trim_start_matches("sha256:");
        layout.join("blobs/sha256").join(name)
    };
    let read = |digest: &Value| -> Value {
        serde_json::from_slice(&fs::read(blob(digest)).unwrap()).unwrap()
    };
    let manifest = read(&Value::from(digest_of_manifest(&layout)));
    assert_eq!(
        manifest["config"]["mediaType"],
        "application/vnd.cncf.helm.config.v1+json"
    );
    let metadata = read(&manifest["config"]["digest"]);
    assert_eq!(metadata["name"], "boathook");
    assert_eq!(metadata["version"], VERSION);
    let layers = manifest["layers"].as_array().unwrap();
    assert_eq!(layers.len(), 1);
    assert_eq!(
        layers[0]["mediaType"],
        "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    );
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--to-stdout").arg("--gzip");
    tar.arg("--file").arg(blob(&layers[0]["digest"]));
    let values = printed(tar.arg("boathook/values.yaml"));
    for image in ["boathook", "boathook-cluster"] {
        assert_says(&values, &[&format!("\n  repository: {REGISTRY}/{image}\n")]);
    }
}
