//! The files that a user downloads, as `scripts/dist` makes them.
//!
//! The programs in these releases are only long enough to be installed: what a
//! release holds does not depend on them. `roots`, which `make test-dist` runs, has
//! those of a release.

mod clean;
mod documents;
mod images;
mod linters;
mod publish;
mod roots;
mod source;
pub(crate) mod upgrade;
mod upgrade_under_docker;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use harness::binaries;
use harness::captured::Captured;
use harness::scratch;
use serde_json::Value;
use tempfile::TempDir;

use crate::said::assert_says;

/// A version that is easy to find in names.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The programs of a release.
const PROGRAMS: [&str; 5] = [
    "boathook",
    "boathook-hook",
    "boathook-init",
    "boathook-plugin",
    "boathook-runtime",
];

/// Those of the image beside the nodes.
const CLUSTER_PROGRAMS: [&str; 3] = ["boathook-dra", "boathook-scheduler", "boathook-webhook"];

/// The variable by which dpkg-deb compresses little, for the time of the tests.
const DEB_LEVEL: (&str, &str) = ("DPKG_DEB_COMPRESSOR_LEVEL", "1");

/// A release of this tree with programs that do nothing.
struct Release {
    files: TempDir,
}

impl Release {
    /// Returns a copy of a release. The release itself is made once, because that takes seconds.
    fn new() -> Self {
        static ARCHIVE: OnceLock<Vec<u8>> = OnceLock::new();
        let archive = ARCHIVE.get_or_init(|| {
            let release = Self::with_programs();
            release.make("out");
            let mut tar = Command::new("tar");
            tar.arg("--create").arg("--directory").arg(release.path(""));
            let output = tar.arg("out").output().unwrap();
            assert!(output.status.success());
            output.stdout
        });
        let release = Self::with_programs();
        let file = release.path("out.tar");
        fs::write(&file, archive).unwrap();
        extract(&file, release.files.path());
        fs::remove_file(file).unwrap();
        release
    }

    /// The programs only, before the release is made.
    fn with_programs() -> Self {
        let files = scratch::directory("release").unwrap();
        let release = Self { files };
        let programs = release.path("programs");
        fs::create_dir(&programs).unwrap();
        let header = fs::read(binaries::program("boathook").unwrap()).unwrap();
        for name in PROGRAMS.iter().chain(&CLUSTER_PROGRAMS) {
            let file = programs.join(name);
            fs::write(&file, &header[..64]).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        release
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn make(&self, out: &str) {
        self.make_with(out, &[]);
    }

    fn make_with(&self, out: &str, variables: &[(&str, &str)]) {
        let mut dist = Command::new(binaries::source_tree().join("scripts/dist"));
        dist.arg(self.path(out))
            .arg(format!("amd64={}", self.path("programs").display()))
            .env("SOURCE_DATE_EPOCH", "1750000000")
            .env("BOATHOOK_DIST", binaries::program("boathook-dist").unwrap())
            .env(DEB_LEVEL.0, DEB_LEVEL.1)
            .envs(variables.iter().copied());
        printed(&mut dist);
    }

    /// A file of the release.
    fn file(&self, name: &str) -> PathBuf {
        self.path("out").join(name)
    }

    /// The release unpacked.
    fn unpacked(&self) -> PathBuf {
        let name = format!("boathook-{VERSION}-linux-amd64");
        let archive = self.file(&format!("{name}.tar.gz"));
        extract(&archive, self.files.path());
        self.path(&name)
    }
}

fn extract(archive: &Path, directory: &Path) {
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(archive);
    printed(tar.arg("--directory").arg(directory));
}

fn printed(command: &mut Command) -> String {
    let ran = Captured::run(command).and_then(Captured::success);
    ran.unwrap().stdout
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The files of a package, without `/usr` and without compression.
fn packaged(listing: &str) -> BTreeSet<String> {
    listing
        .lines()
        .filter_map(|line| line.split_once("/usr/"))
        .map(|(_, path)| path.split(" -> ").next().unwrap())
        .map(|path| path.trim_end_matches(".gz").to_owned())
        .filter(|path| !path.is_empty() && !path.ends_with('/'))
        .collect()
}

#[test]
fn an_archive_can_be_installed_and_read() {
    let release = Release::new();
    let top = release.unpacked();
    let programs = PROGRAMS.map(str::to_owned).into();
    assert_eq!(names_in(&top.join("bin")), programs);
    let classes = binaries::source_tree().join("device-class/classes");
    let mut wanted = names_in(&classes);
    wanted.retain(|name| name.ends_with(".toml"));
    assert_eq!(names_in(&top.join("classes.d")), wanted);
    for file in [
        "LICENSE",
        "README.md",
        "version",
        "lib/systemd/system/boathook-cdi.service",
        "lib/systemd/system/boathook-facts.service",
        "lib/systemd/system/boathook-facts.timer",
        "lib/systemd/system/boathook-follow.service",
        "lib/systemd/system/boathook-plugin.service",
        "lib/udev/rules.d/71-boathook-cdi.rules",
        "lib/udev/rules.d/71-boathook-facts.rules",
        "share/boathook/schema.json",
        "share/boathook/config.schema.json",
        "share/doc/boathook/CHANGELOG.md",
        "share/doc/boathook/examples/dummy-npu.yaml",
        "share/bash-completion/completions/boathook",
        "share/zsh/site-functions/_boathook-init",
        "share/fish/vendor_completions.d/boathook-plugin.fish",
    ] {
        assert!(top.join(file).is_file(), "{file}");
    }
    let page = fs::read_to_string(top.join("share/man/man1/boathook-init-install.1")).unwrap();
    assert_says(&page, &["\\-\\-dry\\-run", "\\-\\-json"]);
    for program in PROGRAMS {
        assert!(top.join(format!("share/man/man1/{program}.1")).is_file());
    }

    let host = release.path("host");
    fs::create_dir(&host).unwrap();
    let mut init = Command::new(binaries::program("boathook-init").unwrap());
    init.args(["install", "--engine=none", "--source"])
        .arg(&top);
    printed(init.arg("--host-root").arg(&host));
    let current = host.join("opt/boathook/current");
    wanted.insert(".classes.json".to_owned());
    assert_eq!(names_in(&current.join("classes.d")), wanted);
}

#[test]
fn every_component_has_its_licence() {
    let release = Release::new();
    let text = fs::read_to_string(release.unpacked().join("LICENSES-OF-COMPONENTS")).unwrap();
    let (node, cluster) = (components(&release, ""), components(&release, "-cluster"));
    let names = |components: &[Value]| -> BTreeSet<String> {
        let names = components
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned());
        names.collect()
    };
    // Each list has what is in its programs, and nothing else: no crate of the other programs,
    // of tests and of the release's making, and no procedural macro.
    for (components, present, absent) in [
        (
            &node,
            &["tokio", "boathook-hook", "musl", "glibc", "rust-std"][..],
            &[
                "kube",
                "rustls",
                "ring",
                "proptest",
                "clap_mangen",
                "serde_derive",
                "syn",
                // The linker takes nothing of these.
                "aho-corasick",
                "regex",
                "regex-automata",
                "regex-syntax",
            ][..],
        ),
        (
            &cluster,
            &[
                "kube",
                "rustls",
                "regex",
                "boathook-dra",
                "glibc",
                "rust-std",
            ],
            &[
                "musl",
                "boathook-hook",
                "boathook-tests",
                "serde_derive",
                "syn",
            ],
        ),
    ] {
        let names = names(components);
        for name in present {
            assert!(names.contains(*name), "{name}: {names:?}");
        }
        for name in absent {
            assert!(!names.contains(*name), "{name}");
        }
    }
    for component in node.iter().chain(&cluster) {
        let (name, version) = (&component["name"], &component["version"]);
        let (name, version) = (name.as_str().unwrap(), version.as_str().unwrap());
        let license = component["licenses"][0]["expression"].as_str().unwrap();
        let line = format!("\n{name} {version}: {license}");
        let is_there = name.starts_with("boathook") || text.contains(&line);
        assert!(is_there, "{line}");
    }
    assert!(text.contains("Permission is hereby granted, free of charge"));
}

/// What the list of components leaves out is not in the programs: they have no symbol of it.
#[test]
fn crates_that_are_not_listed_are_not_linked() {
    let symbols = |program: &str| {
        let program = binaries::program(program).unwrap();
        let printed = Captured::run(Command::new("nm").arg("--demangle").arg(program));
        printed.ok().map(|printed| printed.stdout)
    };
    // It has them, so that a list of symbols without them says something.
    let cluster = symbols("boathook-dra");
    let Some(cluster) = cluster.filter(|symbols| symbols.contains("regex_automata::")) else {
        return skip::report(
            "symbols of the programs",
            "needs nm and programs with symbols",
        );
    };
    for name in [
        "aho_corasick::",
        "regex::",
        "regex_automata::",
        "regex_syntax::",
    ] {
        let is_symbol = |line: &&str| {
            line.split(' ')
                .any(|word| word.trim_start_matches('<').starts_with(name))
        };
        assert!(cluster.lines().any(|line| is_symbol(&line)), "{name}");
        for program in PROGRAMS {
            let symbols = symbols(program).unwrap();
            assert!(symbols.contains("serde_json::"), "{program}");
            assert_eq!(symbols.lines().find(is_symbol), None, "{program}");
        }
    }
}

/// Returns the components in the list for the node's programs, or for those of the cluster.
fn components(release: &Release, suffix: &str) -> Vec<Value> {
    let name = format!("boathook{suffix}-{VERSION}-linux-amd64.cdx.json");
    let sbom: Value = serde_json::from_slice(&fs::read(release.file(&name)).unwrap()).unwrap();
    assert_eq!(sbom["bomFormat"], "CycloneDX");
    assert_eq!(sbom["metadata"]["timestamp"], "2025-06-15T15:06:40Z");
    let components = sbom["components"].as_array().unwrap();
    components.clone()
}

#[test]
fn packages_hold_what_the_archive_holds() {
    let release = Release::new();
    let mut wanted = BTreeSet::new();
    for entry in walk(&release.unpacked()) {
        let usr = match entry.split('/').next().unwrap() {
            "share" => entry.trim_start_matches("share/").to_owned(),
            "lib" => {
                wanted.insert(entry);
                continue;
            }
            "bin" | "classes.d" | "version" => {
                wanted.insert(format!("lib/boathook/{entry}"));
                continue;
            }
            "LICENSE" => "doc/boathook/copyright".to_owned(),
            other => format!("doc/boathook/{other}"),
        };
        wanted.insert(format!("share/{usr}"));
    }
    wanted.extend(PROGRAMS.map(|name| format!("bin/{name}")));
    let mut wanted_of_debian = wanted.clone();
    let of_debian = ["doc/boathook/changelog", "lintian/overrides/boathook"];
    wanted_of_debian.extend(of_debian.map(|name| format!("share/{name}")));

    let deb = release.file(&format!("boathook_{VERSION}_amd64.deb"));
    let listing = printed(Command::new("dpkg-deb").arg("--contents").arg(&deb));
    assert_eq!(packaged(&listing), wanted_of_debian);
    assert!(listing.contains("./usr/bin/boathook -> ../lib/boathook/bin/boathook"));
    let is_roots = listing.lines().all(|line| line.contains(" root/root "));
    assert!(is_roots, "{listing}");

    let rpm = release.file(&format!("boathook-{VERSION}-1.x86_64.rpm"));
    if !rpm.exists() {
        return skip::report("packages: rpm", "needs rpmbuild (package rpm)");
    }
    let listing = printed(Command::new("rpm").arg("-qlp").arg(&rpm));
    let mut listed = packaged(&listing);
    // It lists its directories too, without a slash.
    listed.retain(|path| wanted.contains(path) || !wanted.iter().any(|w| w.starts_with(path)));
    assert_eq!(listed, wanted);
    let required = printed(Command::new("rpm").arg("-qpR").arg(&rpm));
    assert!(!required.contains(".so"), "{required}");
}

fn walk(top: &Path) -> Vec<String> {
    let mut find = Command::new("find");
    let listing = printed(find.arg(top).args(["-type", "f", "-printf", "%P\\n"]));
    listing.lines().map(str::to_owned).collect()
}

#[test]
fn the_same_sources_give_the_same_bytes() {
    let release = Release::new();
    release.make("again");
    let sums = |out: &str| fs::read_to_string(release.path(out).join("SHA256SUMS")).unwrap();
    assert_eq!(sums("out"), sums("again"));
    let mut check = Command::new("sha256sum");
    check.args(["--check", "SHA256SUMS"]);
    let checked = printed(check.current_dir(release.path("out")));
    let right = checked.lines().filter(|line| line.ends_with(": OK"));
    assert_eq!(right.count(), names_in(&release.path("out")).len() - 1);
}

/// Nothing is packed of what is left of an earlier build.
#[test]
fn a_build_that_fails_ends_it() {
    let files = scratch::directory("failing-build").unwrap();
    let cargo = files.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\nexit 101\n").unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut dist = Command::new(binaries::source_tree().join("scripts/dist"));
    dist.arg(files.path().join("out"))
        .env("PATH", format!("{}:{path}", files.path().display()))
        .env("ARCHES", "amd64");
    let ended = Captured::run(&mut dist).unwrap();
    assert_eq!(ended.status.code(), Some(101), "{ended:?}");
    assert!(!files.path().join("out").exists());
}

#[test]
fn make_install_is_undone_by_make_uninstall() {
    let release = Release::new();
    let host = printed(Command::new("rustc").arg("-vV"));
    let host = host.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.unwrap();
    // As scripts/build-programs leaves them.
    let built = release.path("target").join(host).join("release/programs");
    fs::create_dir_all(&built).unwrap();
    for name in names_in(&release.path("programs")) {
        fs::copy(release.path("programs").join(&name), built.join(name)).unwrap();
    }
    let root = release.path("root");
    let make = |target: &str| {
        let mut make = Command::new("make");
        make.arg("--directory")
            .arg(binaries::source_tree())
            .arg(target);
        make.arg("PREFIX=/usr")
            .arg(format!("DESTDIR={}", root.display()));
        make.env("CARGO_TARGET_DIR", release.path("target"));
        make.env("BOATHOOK_DIST", binaries::program("boathook-dist").unwrap());
        printed(&mut make);
    };
    make("install");
    let link = fs::read_link(root.join("usr/bin/boathook-init")).unwrap();
    assert_eq!(link, Path::new("../lib/boathook/bin/boathook-init"));
    for file in [
        "lib/boathook/classes.d/dummy-npu.toml",
        "share/man/man1/boathook.1",
    ] {
        assert!(root.join("usr").join(file).is_file(), "{file}");
    }
    // Of another program.
    fs::write(root.join("usr/share/man/man1/other.1"), "").unwrap();
    make("uninstall");
    assert_eq!(walk(&root), ["usr/share/man/man1/other.1"]);
    assert!(names_in(&root.join("usr/bin")).is_empty());
}
