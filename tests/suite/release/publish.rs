//! `scripts/publish` on a release of this tree, with a directory in the place of the registry, and
//! with a registry.

mod prepared;
mod refused;
mod registry;
mod repeated;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use serde_json::Value;

use super::{Release, VERSION, printed};

/// The names of a host are never resolved: the programs that push are stand-ins.
const REGISTRY: &str = "registry.example:5000/team";

/// Stands for the archive of the sources, which takes long to make (`super::source`).
const SOURCES: &str = "all sources\n";

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

/// Keeps in $STORE/draft whether the release is a draft. As gh does, it makes a release as a draft,
/// which it publishes when it has uploaded all files, and here is killed if there is $STORE/kill.
const GH: &str = r#"#!/bin/sh
set -eu
[ "$1" = release ]
case "$*" in
"release view "*" --json isDraft --jq .isDraft")
    cat "$STORE/draft"
    exit
    ;;
esac
echo gh "$@" >>"$STORE/commands"
case $2 in
create)
    [ ! -e "$STORE/draft" ]
    echo true >"$STORE/draft"
    if [ -e "$STORE/kill" ]; then kill -KILL $$; fi
    echo false >"$STORE/draft"
    ;;
upload) grep -qx true "$STORE/draft" ;;
edit)
    for last in "$@"; do :; done
    [ "$last" = --draft=false ]
    echo false >"$STORE/draft"
    ;;
*) exit 1 ;;
esac
"#;

/// A small repository with what `scripts/publish` reads, and a release that was made of it.
struct Publication {
    release: Release,
    repository: PathBuf,
}

impl Publication {
    /// Returns `None`, and the test is skipped, if this machine cannot make all files.
    fn new(test: &str) -> Option<Self> {
        for (program, package) in [
            ("rpmbuild", "rpm"),
            ("kubectl", "kubectl"),
            ("git", "git"),
            ("skopeo", "skopeo"),
            ("docker-registry", "docker-registry"),
        ] {
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
        publication.add_sources();
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

    fn add_sources(&self) {
        for extension in ["tar.gz", "cdx.json"] {
            let name = format!("boathook-{VERSION}-source.{extension}");
            fs::write(self.path("out").join(&name), SOURCES).unwrap();
            let mut sum = Command::new("sh");
            let line = format!("sha256sum {name} >>SHA256SUMS");
            printed(sum.args(["-c", &line]).current_dir(self.path("out")));
        }
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
    refused::refuse_bad_input(&publication);
    prepared::prepare_all_that_is_published(&publication);
    repeated::publish_once(&publication);
    registry::publish_to_a_registry(&publication);
    repeated::refuse_another_key(&publication);
}
