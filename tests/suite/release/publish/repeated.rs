//! Publications that are refused, interrupted, and repeated.

use std::fs;

use super::{Publication, REGISTRY, digest_of_manifest};
use crate::release::{VERSION, names_in};
use crate::said::assert_says;

/// A run after an interrupted one goes on, and what was published is not replaced.
pub(super) fn publish_once(publication: &Publication) {
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

    // The upload of the files is killed, and the release is left as a draft.
    let kill = publication.path("store/kill");
    fs::write(&kill, "").unwrap();
    let killed = publication.publish(&arguments);
    assert!(!killed.status.success(), "{killed:?}");
    let success = format!("published {VERSION}");
    assert!(!killed.stdout.contains(&success), "{killed:?}");
    let commands = publication.commands();
    // Two images and a chart, and a signature of each, and of each image's one architecture.
    let pushed = 3 + 5;
    assert_eq!(
        commands.matches("copy --all --preserve-digests").count(),
        pushed
    );
    assert_eq!(commands.matches(".sig docker://").count(), 5);
    assert_says(
        &commands,
        &[
            "gh release create",
            "/install.yaml",
            "/uninstall.yaml",
            "SHA256SUMS.sig",
        ],
    );
    fs::remove_file(kill).unwrap();
    let resumed = publication.publish(&arguments).success().unwrap();
    assert_says(&resumed.stderr, &[&format!("v{VERSION} is a draft")]);
    assert_says(&resumed.stdout, &[&success]);
    let commands = publication.commands();
    let resumed = commands.split_once("gh release upload").unwrap().1;
    let (uploaded, edited) = resumed.split_once("gh release edit").unwrap();
    assert_says(uploaded, &["--clobber"]);
    for file in names_in(&publication.published("files")) {
        assert_says(uploaded, &[&format!("/files/{file}")]);
    }
    assert_says(edited, &["--verify-tag", "--draft=false"]);

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
    assert_eq!(
        again.stderr.matches("is published already").count(),
        pushed - 1
    );
    assert_eq!(
        publication.commands().matches("copy --all").count(),
        pushed + 1
    );
    assert_says(&again.stderr, &[&format!("v{VERSION} exists already")]);
    // Nothing but the upload of the draft and its publication came after the creation.
    assert_eq!(publication.commands().matches("gh release").count(), 3);

    fs::write(stored("boathook"), "another image").unwrap();
    let refused = publication.publish(&arguments);
    assert_says(
        &refused.stderr,
        &["nothing published is replaced; release a new version"],
    );
    assert_eq!(refused.status.code(), Some(1));
}

/// The key of the publication is replaced by another one.
pub(super) fn refuse_another_key(publication: &Publication) {
    publication.make_key();
    let refused = publication.publish(&format!("--registry {REGISTRY} --key {{}}/release.key"));
    assert_says(&refused.stderr, &["is not the key of dist/release-key.pub"]);
}
