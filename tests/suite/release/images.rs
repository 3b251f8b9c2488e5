//! The archives of images.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Release, VERSION, extract, printed};

#[test]
fn the_image_archives_are_whole() {
    let release = Release::new();
    check_image(
        &release,
        "boathook",
        "/boathook/bin/boathook-init",
        &[
            "boathook/bin/boathook-plugin",
            "boathook/classes.d/dummy-npu.toml",
        ],
    );
    check_image(
        &release,
        "boathook-cluster",
        "/boathook-scheduler",
        &[
            "./boathook-dra",
            "./boathook-scheduler",
            "./boathook-webhook",
        ],
    );
}

fn check_image(release: &Release, name: &str, entrypoint: &str, files: &[&str]) {
    let dir = release.path(&format!("image-{name}"));
    fs::create_dir(&dir).unwrap();
    extract(&release.file(&format!("{name}-{VERSION}-image.tar")), &dir);
    let read = |path: &Path| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        let digest = digest.trim_start_matches("sha256:");
        let path = dir.join("blobs/sha256").join(digest);
        let sum = printed(Command::new("sha256sum").arg(&path));
        assert!(sum.starts_with(digest), "{sum}");
        assert_eq!(descriptor["size"], fs::metadata(&path).unwrap().len());
        path
    };
    let top = read(&dir.join("index.json"));
    let index = read(&blob(&top["manifests"][0]));
    let manifest = &index["manifests"][0];
    assert_eq!(manifest["platform"]["architecture"], "amd64");
    let manifest = read(&blob(manifest));
    let config = read(&blob(&manifest["config"]));
    let labels = &config["config"]["Labels"];
    let label = |key: &str| &labels[format!("org.opencontainers.image.{key}")];
    assert_eq!(label("title"), name);
    assert_eq!(label("version"), VERSION);
    for key in [
        "created",
        "description",
        "documentation",
        "licenses",
        "revision",
    ] {
        assert!(
            label(key).as_str().is_some_and(|it| !it.is_empty()),
            "{key}"
        );
    }
    for key in ["source", "url", "vendor"] {
        assert!(
            label(key).as_str().is_some_and(|it| !it.is_empty()),
            "{key}"
        );
    }
    assert_eq!(&manifest["annotations"], labels);
    assert_eq!(&index["annotations"], labels);
    assert_eq!(config["config"]["Entrypoint"][0], entrypoint);
    let layer = blob(&manifest["layers"][0]);
    let listing = printed(Command::new("tar").arg("tzf").arg(layer));
    for file in files {
        assert!(listing.lines().any(|line| line == *file), "{listing}");
    }
    let docker = read(&dir.join("manifest.json"));
    assert_eq!(docker[0]["RepoTags"][0], format!("{name}:{VERSION}"));
    for path in [&docker[0]["Config"], &docker[0]["Layers"][0]] {
        assert!(dir.join(path.as_str().unwrap()).is_file(), "{path}");
    }
}
