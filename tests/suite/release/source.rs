//! The source packages, of which distributions build without a network.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::scratch;
use serde_json::Value;
use tempfile::TempDir;

use super::linters::lint;
use super::{PROGRAMS, VERSION, extract, names_in, packaged, printed};

/// Extensions of compiled files. No distribution accepts them in a source package.
const COMPILED: [&str; 6] = [".a", ".dll", ".lib", ".o", ".so", ".wasm"];

/// The source packages of this tree.
struct Sources(TempDir);

impl Sources {
    /// Returns `None`, and the test is skipped, if this machine cannot make or build them.
    fn new(test: &str) -> Option<Self> {
        let missing = |program: &str| Command::new(program).arg("--version").output().is_err();
        if let Some(program) = ["dpkg-source", "rpmbuild"]
            .into_iter()
            .find(|it| missing(it))
        {
            skip::report(test, &format!("needs {program}"));
            return None;
        }
        if let Some(reason) = harness::privilege::missing_for_engines() {
            skip::report(test, &reason);
            return None;
        }
        let sources = Self(scratch::directory("source").unwrap());
        let mut make = Command::new(binaries::source_tree().join("scripts/source-package"));
        make.arg(sources.path("out"))
            .env("SOURCE_DATE_EPOCH", "1750000000")
            .env("BOATHOOK_DIST", binaries::program("boathook-dist").unwrap());
        let made = Captured::run(&mut make).unwrap();
        if made.stderr.contains("cargo vendor") {
            skip::report(
                test,
                &format!("needs cargo fetch --locked: {}", made.stderr),
            );
            return None;
        }
        made.success().unwrap();
        Some(sources)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the path of a source package.
    fn file(&self, name: &str) -> PathBuf {
        self.path("out").join(name)
    }

    /// Returns a program that has neither a network nor crates of this machine.
    fn offline(&self, program: &str) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--net", program]);
        command.env("CARGO_HOME", self.path("cargo-home"));
        command.env("CARGO_TARGET_DIR", self.path("target"));
        // Optimised for the time of the test. The packages of a distribution are as a release.
        command.env("CARGO_PROFILE_RELEASE_LTO", "off");
        command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
        command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
        command
    }
}

#[test]
fn the_source_archive_builds_without_a_network() {
    let Some(sources) = Sources::new("source archive") else {
        return;
    };
    let archive = format!("boathook-{VERSION}-source.tar.gz");
    extract(&sources.file(&archive), sources.0.path());
    let tree = sources.path(&format!("boathook-{VERSION}"));
    let mut find = Command::new("find");
    let files = printed(find.arg(&tree).args(["-type", "f"]));
    for file in files.lines() {
        let is_compiled = COMPILED.iter().any(|extension| file.ends_with(extension));
        assert!(!is_compiled, "{file}");
    }
    // Of a crate of another system there is what cargo needs to read its dependencies.
    let other = names_in(&tree.join("vendor")).into_iter();
    let other = other.filter(|name| name.starts_with("windows-sys-"));
    for name in other {
        let crate_files = printed(Command::new("find").arg(tree.join("vendor").join(&name)));
        assert!(crate_files.lines().count() <= 5, "{crate_files}");
    }
    assert_lists_every_crate(&sources, &tree);
    let mut metadata = sources.offline("cargo");
    metadata.args(["metadata", "--frozen", "--format-version=1"]);
    printed(metadata.current_dir(&tree));
    let mut build = sources.offline("cargo");
    build.args(["build", "--frozen", "--package=boathook-host-files"]);
    printed(build.current_dir(&tree));
    for file in [
        format!("boathook_{VERSION}.orig.tar.gz"),
        format!("boathook_{VERSION}-1.dsc"),
        format!("boathook-{VERSION}-1.src.rpm"),
    ] {
        assert!(sources.file(&file).is_file(), "{file}");
    }
    assert_rpmlint_accepts(&sources);
}

/// rpmlint has nothing against the source package, but for what `rpmlint.toml` names with a reason.
fn assert_rpmlint_accepts(sources: &Sources) {
    let mut rpmlint = Command::new("rpmlint");
    rpmlint.arg("--config");
    rpmlint.arg(binaries::source_tree().join("dist/packages/rpmlint.toml"));
    rpmlint.arg(sources.file(&format!("boathook-{VERSION}-1.src.rpm")));
    let Some(text) = lint(rpmlint) else {
        return skip::report("linters of source packages", "needs rpmlint");
    };
    let tags = text.lines();
    let tags = tags.filter(|line| line.contains(": E: ") || line.contains(": W: "));
    assert_eq!(tags.collect::<Vec<_>>(), Vec::<&str>::new());
    let count = "1 packages and 0 specfiles checked";
    assert!(text.contains(count), "{text}");
}

/// lintian has nothing against the source package. It looks at each file of 200 crates, which takes
/// more time than most other tests together.
fn assert_lintian_accepts(sources: &Sources) {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--tag-display-limit", "0"]);
    lintian.arg(sources.file(&format!("boathook_{VERSION}-1.dsc")));
    match lint(lintian) {
        Some(text) => assert_eq!(text, ""),
        None => skip::report("linters of source packages", "needs lintian"),
    }
}

/// The list of components has each crate of the archive that is more than a manifest, and no other.
fn assert_lists_every_crate(sources: &Sources, tree: &Path) {
    let file = sources.file(&format!("boathook-{VERSION}-source.cdx.json"));
    let list: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let components = list["components"].as_array().unwrap().iter();
    let text = |component: &Value, key: &str| component[key].as_str().unwrap().to_owned();
    let listed = components.map(|it| format!("{}-{}", text(it, "name"), text(it, "version")));
    let listed = listed.filter(|name| !name.starts_with("boathook-"));
    let vendor = tree.join("vendor");
    let mut compiled = names_in(&vendor);
    compiled.retain(|name| {
        let files = names_in(&vendor.join(name));
        files
            != [".cargo-checksum.json", "Cargo.toml", "src"]
                .map(str::to_owned)
                .into()
    });
    assert!(compiled.len() > 200, "{compiled:?}");
    assert_eq!(listed.collect::<BTreeSet<_>>(), compiled);
}

/// The built packages have the same files as those of a release, but for what dpkg's and RPM's own
/// programs add.
#[test]
#[ignore = "long: make test-dist"]
fn distributions_build_the_source_packages() {
    const TEST: &str = "source packages";
    let Some(sources) = Sources::new(TEST) else {
        return;
    };
    if Command::new("dh").arg("--version").output().is_err() {
        return skip::report(TEST, "needs dh (package debhelper)");
    }
    assert_lintian_accepts(&sources);
    let mut unpack = Command::new("dpkg-source");
    unpack.args(["--extract"]);
    unpack.arg(sources.file(&format!("boathook_{VERSION}-1.dsc")));
    printed(unpack.current_dir(sources.0.path()));
    let tree = sources.path(&format!("boathook-{VERSION}"));
    // Rust is installed by rustup, and not by packages.
    let mut build = sources.offline("dpkg-buildpackage");
    build.args([
        "--build=binary",
        "--unsigned-source",
        "--unsigned-changes",
        "-d",
    ]);
    printed(build.current_dir(&tree));
    let deb = sources.path(&format!("boathook_{VERSION}-1_amd64.deb"));
    let listing = printed(Command::new("dpkg-deb").arg("--contents").arg(&deb));
    assert_has_programs_and_pages(&listing);
    let scripts = printed(Command::new("dpkg-deb").args(["--info"]).arg(&deb));
    for script in ["postinst", "postrm", "prerm"] {
        assert!(scripts.contains(script), "{scripts}");
    }

    // In the same directory, so that cargo compiles no crate again.
    let mut build = sources.offline("rpmbuild");
    build.args(["--rebuild", "--quiet", "--nodeps"]);
    for (name, value) in [
        ("_topdir", sources.path("rpmbuild")),
        ("_builddir", sources.0.path().to_owned()),
        ("_rpmdir", sources.path("rpms")),
    ] {
        build.arg(format!("--define={name} {}", value.display()));
    }
    build.arg(sources.file(&format!("boathook-{VERSION}-1.src.rpm")));
    printed(&mut build);
    let rpm = sources.path(&format!("rpms/x86_64/boathook-{VERSION}-1.x86_64.rpm"));
    let listing = printed(Command::new("rpm").arg("-qlp").arg(&rpm));
    assert_has_programs_and_pages(&listing);
    let scripts = printed(Command::new("rpm").args(["-qp", "--scripts"]).arg(&rpm));
    assert!(scripts.contains("boathook-init upgrade"), "{scripts}");
}

fn assert_has_programs_and_pages(listing: &str) {
    let files = packaged(listing);
    for program in PROGRAMS {
        for file in [
            format!("lib/boathook/bin/{program}"),
            format!("share/man/man1/{program}.1"),
        ] {
            assert!(files.contains(&file), "{file}: {listing}");
        }
    }
    for file in [
        "lib/boathook/classes.d/dummy-npu.toml",
        "lib/systemd/system/boathook-cdi.service",
        "share/doc/boathook/LICENSES-OF-COMPONENTS",
        "share/man/man5/boathook.toml.5",
    ] {
        assert!(files.contains(file), "{file}: {listing}");
    }
}
