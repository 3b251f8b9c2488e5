//! `scripts/publish` on a release of this tree, with a directory in the place of the registry.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use serde_json::Value;

use super::{Release, VERSION, names_in, printed};
use crate::said::assert_says;

/// The names of a host are never resolved: the programs that push are stand-ins.
const REGISTRY: &str = "registry.example:5000/team";

/// Keeps in $STORE the manifest of each image that is pushed, and prints it again. It reads the
/// layout as skopeo does.
const SKOPEO: &str = r#"#!/bin/sh
set -eu
for last in "$@"; do :; done
file=$STORE/$(echo "${last#docker://}" | tr / +)
case $1 in
inspect) cat "$file" ;;
copy)
    echo "$@" >>"$STORE/commands"
    for argument in "$@"; do case $argument in oci:*) layout=${argument#oci:} ;; esac; done
    digest=$(sed 's/.*"digest":"sha256:\([0-9a-f]*\)".*/\1/' "${layout%:*}/index.json")
    cp "${layout%:*}/blobs/sha256/$digest" "$file"
    ;;
esac
"#;

/// Knows whether the release was created.
const GH: &str = r#"#!/bin/sh
set -eu
[ "$2" = create ] || exec grep -q '^gh release create' "$STORE/commands"
echo gh "$@" >>"$STORE/commands"
"#;

/// A small repository with what `scripts/publish` reads, and a release that was made of it.
struct Publication {
    release: Release,
    repository: PathBuf,
}

impl Publication {
    /// Returns `None`, and the test is skipped, if this machine cannot make all files.
    fn new(test: &str) -> Option<Self> {
        for (program, package) in [("rpmbuild", "rpm"), ("kubectl", "kubectl"), ("git", "git")] {
            let found = Command::new(program).arg("--version").output();
            if found.is_err() {
                skip::report(test, &format!("needs {program} (package {package})"));
                return None;
            }
        }
        let release = Release::with_programs();
        let repository = release.path("repository");
        let tree = binaries::source_tree();
        fs::create_dir_all(repository.join("scripts")).unwrap();
        for file in [
            "Cargo.toml",
            "CHANGELOG.md",
            "scripts/publish",
            "scripts/version",
            "scripts/boathook-dist",
        ] {
            binaries::copy(&tree.join(file), &repository.join(file)).unwrap();
        }
        let publication = Self {
            release,
            repository,
        };
        publication.git("init --quiet");
        publication.date_the_changelog();
        fs::create_dir(publication.repository.join("dist")).unwrap();
        let public = publication.make_key();
        fs::write(publication.repository.join("dist/release-key.pub"), public).unwrap();
        publication.commit();
        let revision = publication.git("rev-parse HEAD");
        publication
            .release
            .make_with("out", &[("BOATHOOK_REVISION", revision.trim())]);
        for (name, script) in [("skopeo", SKOPEO), ("gh", GH)] {
            let file = publication.path("bin").join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, script).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::create_dir(publication.path("store")).unwrap();
        Some(publication)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.release.path(name)
    }

    fn git(&self, arguments: &str) -> String {
        let mut git = Command::new("git");
        git.current_dir(&self.repository)
            .args(["-c", "user.name=Tests", "-c", "user.email=tests@example"])
            .args(["-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"])
            .args(arguments.split(' '));
        printed(&mut git)
    }

    fn commit(&self) {
        self.git("add --all");
        self.git("commit --quiet --message=Release");
    }

    fn date_the_changelog(&self) {
        let file = self.repository.join("CHANGELOG.md");
        let text = fs::read_to_string(&file).unwrap();
        let heading = format!("## {VERSION}");
        let dated = text.lines().map(|line| {
            if line.starts_with(&heading) {
                format!("{heading} (2026-11-21)\n")
            } else {
                format!("{line}\n")
            }
        });
        fs::write(&file, dated.collect::<String>()).unwrap();
    }

    /// Runs `scripts/publish` with arguments, of which `{}` is the directory of the test.
    fn publish(&self, arguments: &str) -> Captured {
        let base = self.path("").display().to_string();
        let path = std::env::var("PATH").unwrap();
        let mut publish = Command::new(self.repository.join("scripts/publish"));
        publish
            .args(arguments.split(' ').map(|word| word.replace("{}/", &base)))
            .arg("--release")
            .arg(self.path("out"))
            .env("ARCHES", "amd64")
            .env("STORE", self.path("store"))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("BOATHOOK_DIST", binaries::program("boathook-dist").unwrap());
        Captured::run(&mut publish).unwrap()
    }

    fn rehearse(&self, arguments: &str) -> Captured {
        self.publish(&format!(
            "--registry {REGISTRY} --out {{}}/published --dry-run{arguments}"
        ))
    }

    fn published(&self, name: &str) -> PathBuf {
        self.path("published").join(name)
    }

    /// Returns what the stand-ins were called with.
    fn commands(&self) -> String {
        fs::read_to_string(self.path("store/commands")).unwrap_or_default()
    }

    /// Makes a key in `release.key`, and returns its public half.
    fn make_key(&self) -> String {
        let key = self.path("release.key");
        let mut openssl = Command::new("openssl");
        openssl.args(["ecparam", "-name", "prime256v1", "-genkey", "-noout"]);
        printed(openssl.arg("-out").arg(&key));
        let mut openssl = Command::new("openssl");
        printed(openssl.args(["pkey", "-pubout", "-in"]).arg(&key))
    }
}

fn digest_of_manifest(layout: &Path) -> String {
    let index: Value =
        serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    index["manifests"][0]["digest"].as_str().unwrap().to_owned()
}

/// One test, because the packages of a release take long to make.
#[test]
fn a_release_is_rehearsed_and_published() {
    let Some(publication) = Publication::new("publish") else {
        return;
    };
    refuse_bad_input(&publication);
    prepare_all_that_is_published(&publication);
    publish_once(&publication);
}

fn prepare_all_that_is_published(publication: &Publication) {
    // Before the tag is set.
    let rehearsed = publication.rehearse("").success().unwrap();
    assert_says(
        &rehearsed.stderr,
        &[&format!("note: there is no tag v{VERSION}")],
    );
    let digest = digest_of_manifest(&publication.published("layouts/boathook"));
    let install = fs::read_to_string(publication.published("files/install.yaml")).unwrap();
    let images: Vec<&str> = install
        .lines()
        .filter_map(|line| line.trim().strip_prefix("image: "))
        .collect();
    assert!(images.len() >= 2, "{install}");
    assert!(
        images
            .iter()
            .all(|image| *image == format!("{REGISTRY}/boathook@{digest}")),
        "{images:?}"
    );
    let imported =
        fs::read_to_string(publication.published("files/install-imported.yaml")).unwrap();
    assert_says(&imported, &[&format!("image: boathook:{VERSION}\n")]);

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

/// A run after an interrupted one goes on, and what was published is not replaced.
fn publish_once(publication: &Publication) {
    let arguments = format!("--registry {REGISTRY} --out {{}}/published --key {{}}/release.key");
    let refuse = |refusals: &[&str]| {
        let refused = publication.publish(&arguments);
        assert_eq!(refused.status.code(), Some(1), "{refusals:?}: {refused:?}");
        assert_says(&refused.stderr, refusals);
        assert_eq!(publication.commands(), "");
    };
    refuse(&[&format!("there is no tag v{VERSION}")]);

    // A commit after the one that the release was made of.
    let made_of = publication.git("rev-parse HEAD");
    fs::remove_file(publication.repository.join("dist/release-key.pub")).unwrap();
    publication.commit();
    publication.git(&format!("tag v{VERSION}"));
    refuse(&["dist/release-key.pub", "is missing"]);
    let reset = format!("reset --quiet --hard {}", made_of.trim());
    publication.git(&reset);
    refuse(&["the tag", "check out the tag"]);
    fs::write(publication.repository.join("more"), "").unwrap();
    publication.commit();
    publication.git(&format!("tag --force v{VERSION}"));
    refuse(&[
        "the revision of the image boathook is",
        "make the release again of this commit",
    ]);
    publication.git(&reset);
    publication.git(&format!("tag --force v{VERSION}"));

    publication.publish(&arguments).success().unwrap();
    let commands = publication.commands();
    assert_eq!(commands.matches("copy --all --preserve-digests").count(), 3);
    assert_says(
        &commands,
        &["gh release create", "install.yaml", "SHA256SUMS.sig"],
    );
    let digest = digest_of_manifest(&publication.published("layouts/boathook"));
    let images = fs::read_to_string(publication.published("files/images.txt")).unwrap();
    assert_says(
        &images,
        &[&format!("{REGISTRY}/boathook:{VERSION} {digest}\n")],
    );

    // The second run finds each image, and one that was never pushed is pushed.
    let stored = |image: &str| {
        let name = format!("{REGISTRY}/{image}:{VERSION}").replace('/', "+");
        publication.path("store").join(name)
    };
    fs::remove_file(stored("charts/boathook")).unwrap();
    let again = publication.publish(&arguments).success().unwrap();
    assert_eq!(again.stderr.matches("is published already").count(), 2);
    assert_eq!(publication.commands().matches("copy --all").count(), 4);
    assert_eq!(publication.commands().matches("gh release").count(), 1);

    fs::write(stored("boathook"), "another image").unwrap();
    let refused = publication.publish(&arguments);
    assert_says(
        &refused.stderr,
        &["nothing published is replaced; release a new version"],
    );
    assert_eq!(refused.status.code(), Some(1));

    publication.make_key();
    let refused = publication.publish(&arguments);
    assert_says(&refused.stderr, &["is not the key of dist/release-key.pub"]);
}

fn refuse_bad_input(publication: &Publication) {
    let archive = format!("boathook-{VERSION}-linux-amd64.tar.gz");
    let image = format!("boathook-{VERSION}-image.tar");
    let out = publication.path("out");
    let changelog = publication.repository.join("CHANGELOG.md");
    let (kept, sums) = (
        fs::read(out.join(&archive)).unwrap(),
        out.join("SHA256SUMS"),
    );

    for (arguments, refusal) in [
        ("--dry-run", "--registry is missing"),
        (
            "--registry registry.example",
            "--key FILE or --cosign is missing",
        ),
        (
            "--registry registry.example --key k --cosign",
            "exclude each other",
        ),
        (
            "--registry registry.example --dry",
            "unknown argument --dry",
        ),
        (
            "--registry https://registry.example --dry-run",
            "the registry \"https://registry.example\" has a scheme",
        ),
        (
            "--registry registry.example/ --dry-run",
            "has the part \"\"",
        ),
        ("--registry team --dry-run", "is no host"),
        (
            "--registry registry.example --out {}/out --dry-run",
            "is not of an earlier run",
        ),
    ] {
        let refused = publication.publish(arguments);
        assert!(!refused.status.success(), "{arguments}");
        assert_says(&refused.stderr, &[refusal]);
    }
    let refuse = |refusal: &str| {
        let refused = publication.rehearse("");
        assert_eq!(refused.status.code(), Some(1), "{refusal}: {refused:?}");
        assert_says(&refused.stderr, &[refusal]);
        assert!(!publication.published("files").exists(), "{refusal}");
    };
    let mut blank = Command::new(publication.repository.join("scripts/publish"));
    blank
        .args(["--registry", "registry.example/a b", "--dry-run"])
        .env("BOATHOOK_DIST", binaries::program("boathook-dist").unwrap());
    let refused = Captured::run(&mut blank).unwrap();
    assert_says(
        &refused.stderr,
        &["the registry \"registry.example/a b\" has a blank"],
    );

    fs::write(publication.repository.join("leftover"), "").unwrap();
    refuse("changes that are not committed (leftover)");
    fs::remove_file(publication.repository.join("leftover")).unwrap();

    fs::remove_file(out.join(&archive)).unwrap();
    refuse(&format!("has no {archive}: run make dist"));
    fs::write(out.join(&archive), "another archive").unwrap();
    refuse(&format!(
        "{archive}: FAILED: the file is not the one of SHA256SUMS"
    ));
    fs::write(out.join(&archive), kept).unwrap();

    // The sums are right, and a blob in the image is not.
    let bytes = fs::read(out.join(&image)).unwrap();
    let layout = publication.path("layout");
    fs::create_dir(&layout).unwrap();
    super::extract(&out.join(&image), &layout);
    let blob = names_in(&layout.join("blobs/sha256")).pop_first().unwrap();
    let path = layout.join("blobs/sha256").join(&blob);
    let mut damaged = fs::read(&path).unwrap();
    damaged[0] ^= 1;
    fs::write(&path, damaged).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("--create")
        .arg("--directory")
        .arg(&layout)
        .arg("--file");
    printed(
        tar.arg(out.join(&image))
            .args(["blobs", "index.json", "oci-layout"]),
    );
    let mut sum = Command::new("sh");
    sum.arg("-c").arg(
        "cp SHA256SUMS ../sums && rm SHA256SUMS && sha256sum -- * >../new && mv ../new SHA256SUMS",
    );
    printed(sum.current_dir(&out));
    let refused = publication.rehearse("");
    assert_says(
        &refused.stderr,
        &[&format!("{blob} has the digest sha256:")],
    );
    fs::write(out.join(&image), bytes).unwrap();
    fs::rename(publication.path("sums"), sums).unwrap();
    publication.rehearse("").success().unwrap();

    let text = fs::read_to_string(&changelog).unwrap();
    fs::write(
        &changelog,
        text.replace(&format!("## {VERSION}"), "## 9.9.9"),
    )
    .unwrap();
    let made_of = publication.git("rev-parse HEAD");
    publication.commit();
    let refused = publication.rehearse("");
    assert_says(
        &refused.stderr,
        &[&format!("no section \"## {VERSION} (DATE)\"")],
    );
    publication.git(&format!("reset --quiet --hard {}", made_of.trim()));
}
