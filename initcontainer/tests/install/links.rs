//! Tests of the links to programs, manual pages and completions.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use runtime_config::Engine;

use crate::site::{Site, said, write};
use crate::tree;

#[test]
fn manual_pages_and_completions_of_an_archive_are_linked() {
    let site = Site::with_containerd();
    let share = site.path("usr/local/share");
    fs::create_dir_all(share.join("man")).unwrap();
    let before = tree::snapshot(site.root());
    let names = [
        "man/man1/boathook.1",
        "man/man1/boathook-init.1",
        "man/man5/boathook.toml.5",
        "bash-completion/completions/boathook",
        "zsh/site-functions/_boathook",
        "fish/vendor_completions.d/boathook.fish",
    ];
    add_pages(&site, &names);
    // The manual page of a program that is not installed gets no link.
    add_pages(&site, &["man/man1/boathook-plugin-run.1"]);
    let links = "6 links to manual pages and completions below /usr/local/share\n";
    let planned = said(&site.run(&["install", "--dry-run"]));
    assert!(planned.contains(links), "{planned}");
    assert!(!planned.contains("link /usr/local/share/man"), "{planned}");
    assert_eq!(tree::snapshot(site.root()), before);

    let text = said(&site.run(&["install"]));
    assert!(text.contains(links), "{text}");
    for name in names {
        let target = fs::read_link(share.join(name)).unwrap();
        assert_eq!(target, Path::new("/opt/boathook/current/share").join(name));
        let text = site.read(&format!("opt/boathook/current/share/{name}"));
        assert_eq!(text, name);
    }
    assert!(!share.join("man/man1/boathook-plugin-run.1").exists());
    let text = said(&site.run(&["install"]));
    assert!(text.contains("nothing to do"), "{text}");

    let text = said(&site.run(&["uninstall", "--dry-run"]));
    assert!(text.contains(links), "{text}");
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn pages_that_are_there_stay_and_those_that_are_gone_lose_their_links() {
    let site = Site::with_containerd();
    let man = site.path("usr/local/share/man/man1");
    site.write("usr/local/share/man/man1/boathook.1", "theirs");
    let before = tree::snapshot(site.root());
    add_pages(&site, &["man/man1/boathook.1", "man/man1/boathook-old.1"]);
    let text = said(&site.run(&["install"]));
    let kept = "1 names of manual pages and completions below /usr/local/share exist and are kept";
    assert!(text.contains(kept), "{text}");
    assert!(man.join("boathook-old.1").symlink_metadata().is_ok());
    fs::remove_file(site.release().join("share/man/man1/boathook-old.1")).unwrap();
    said(&site.run(&["install"]));
    assert!(man.join("boathook-old.1").symlink_metadata().is_err());
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn pages_of_a_package_are_not_hidden_and_those_without_a_place_are_not_linked() {
    for packaged in [true, false] {
        let site = Site::with_containerd();
        let share = site.path("usr/local/share");
        if packaged {
            site.add_program("boathook");
            fs::create_dir_all(&share).unwrap();
        }
        add_pages(&site, &["man/man1/boathook.1"]);
        said(&site.run(&["install"]));
        assert!(!share.join("man").exists());
    }
}

#[test]
fn the_programs_are_linked_into_the_path() {
    let site = Site::with_containerd();
    site.write("usr/local/bin/boathook-runtime", "theirs");
    let before = tree::snapshot(site.root());
    let text = said(&site.run(&["install"]));
    let kept = "/usr/local/bin/boathook-runtime exists and is kept\n";
    assert!(text.contains(kept), "{text}");
    assert!(text.ends_with("next:\n  boathook list\n"), "{text}");
    let target = fs::read_link(site.path("usr/local/bin/boathook")).unwrap();
    assert_eq!(target, Path::new("/opt/boathook/current/bin/boathook"));
    let text = said(&site.run(&["install"]));
    assert!(text.contains("nothing to do"), "{text}");
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_link_that_was_changed_since_stays() {
    let site = Site::with_containerd();
    let link = site.path("usr/local/bin/boathook");
    fs::create_dir_all(link.parent().unwrap()).unwrap();
    site.install("0.1.0", &[Engine::Containerd]);
    fs::remove_file(&link).unwrap();
    symlink("/opt/other", &link).unwrap();
    site.uninstall();
    assert_eq!(fs::read_link(link).unwrap(), Path::new("/opt/other"));
}

#[test]
fn a_program_of_a_package_is_not_hidden_by_a_link() {
    let site = Site::with_containerd();
    site.add_program("boathook-init");
    let bin = site.path("usr/local/bin");
    fs::create_dir_all(&bin).unwrap();
    said(&site.run(&["install"]));
    assert!(bin.join("boathook").symlink_metadata().is_ok());
    // The shell would find the program of an older release first, which would install itself again.
    assert!(bin.join("boathook-init").symlink_metadata().is_err());
}

/// Adds manual pages and completions to the release, as an archive has them.
fn add_pages(site: &Site, names: &[&str]) {
    for name in names {
        write(&site.release().join("share").join(name), name);
    }
}
