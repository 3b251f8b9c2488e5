//! Arguments, files and repositories that are refused before anything is prepared.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::scratch;

use super::Publication;
use crate::release::{VERSION, extract, names_in, printed};
use crate::said::assert_says;

pub(super) fn refuse_bad_input(publication: &Publication) {
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
    extract(&out.join(&image), &layout);
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

/// The programs are those that run before anything is built.
#[test]
fn a_release_without_manual_pages_is_not_made() {
    let files = scratch::directory("no-manual-pages").unwrap();
    let programs = files.path().join("bin");
    fs::create_dir(&programs).unwrap();
    for name in [
        "bash", "cat", "date", "dirname", "git", "mktemp", "realpath", "rm", "sed",
    ] {
        let mut find = Command::new("sh");
        let path = printed(find.args(["-c", "command -v \"$0\"", name]));
        symlink(path.trim(), programs.join(name)).unwrap();
    }
    let out = files.path().join("out");
    let mut dist = Command::new(binaries::source_tree().join("scripts/dist"));
    let refused = Captured::run(dist.arg(&out).env("PATH", &programs)).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_says(&refused.stderr, &["without go-md2man"]);
    assert!(!out.exists());
}
