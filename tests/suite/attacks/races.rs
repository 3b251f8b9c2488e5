//! Links and directories that are exchanged while the hook works
//! (CVE-2024-0132, CVE-2025-23359, CVE-2026-24260).

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use harness::bundle::Bundle;
use harness::rootfs::Rootfs;
use memchr::memmem;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::volume::{DATA, SECRET, Volume, put_link};
use super::{container, host_with_tools, long};
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    a_link_in_a_shared_volume,
    a_file_of_the_image,
    a_directory_of_the_image,
);

/// The rounds of each race. The long run prints how far it is.
pub(super) fn rounds() -> impl Iterator<Item = usize> {
    let count = if long() { 1000 } else { 12 };
    (0..count).inspect(move |round| {
        if round % 100 == 0 && *round > 0 {
            eprintln!("{round} of {count} rounds");
        }
    })
}

/// Runs `body` while another thread exchanges the names of each pair again and again.
pub(super) fn while_exchanging(pairs: &[(&Path, &Path)], body: impl FnOnce()) {
    let exchange = |(one, other): &(&Path, &Path)| {
        renameat2(
            AT_FDCWD,
            *one,
            AT_FDCWD,
            *other,
            RenameFlags::RENAME_EXCHANGE,
        )
    };
    // There and back: the names are right.
    for pair in pairs.iter().chain(pairs) {
        exchange(pair).unwrap();
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                // A name may be replaced meanwhile, which is part of the race.
                let _ = pairs.iter().try_for_each(exchange);
            }
        });
        let result = catch_unwind(AssertUnwindSafe(body));
        ended.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}

/// Two links in the volume: to a file of the image and to root's own.
fn a_link_in_a_shared_volume(lab: &Lab) {
    race(lab, "a volume", |volume, bundle| {
        let [cache, copy] = ["/etc/ld.so.cache", "/etc/own"].map(|path| bundle.in_rootfs(path));
        fs::copy(cache, copy).unwrap();
        let (own, secret) = (volume.path().join("own"), volume.path().join("other"));
        symlink("/etc/own", &own).unwrap();
        symlink("shadow", &secret).unwrap();
        put_link(bundle, "/etc/ld.so.cache", &format!("{DATA}/own"));
        while_exchanging(&[(&own, &secret)], || drop(lab.runc.create(bundle)));
        fs::remove_file(own).unwrap();
        fs::remove_file(secret).unwrap();
    });
}

/// The image's own file and a link to root's.
fn a_file_of_the_image(lab: &Lab) {
    race_in_the_image(lab, "/etc/ld.so.cache", "ld.so.cache");
}

/// The image's own directory and a link to one in the volume.
fn a_directory_of_the_image(lab: &Lab) {
    race_in_the_image(lab, "/etc", "etc");
    race_in_the_image(lab, "/usr", "usr");
}

fn race_in_the_image(lab: &Lab, place: &str, name: &str) {
    race(lab, place, |_, bundle| {
        let link = bundle.in_rootfs("/link");
        symlink(format!("{DATA}/{name}"), &link).unwrap();
        while_exchanging(&[(&bundle.in_rootfs(place), &link)], || {
            drop(lab.runc.create(bundle));
        });
    });
}

fn race(lab: &Lab, place: &str, attack: impl Fn(&Volume, &Bundle)) {
    let host = host_with_tools();
    for round in rounds() {
        let volume = Volume::full();
        let container = volume.mounted(container(&host, Rootfs::Glibc));
        let bundle = container.build().unwrap();
        attack(&volume, &bundle);
        volume.assert_untouched(&format!("{place}, round {round}"));
        assert_no_secret_in(&bundle.rootfs(), round);
        lab.assert_nothing_left(&bundle);
    }
}

/// Nothing in the image has the contents of a file that only root may read.
fn assert_no_secret_in(top: &Path, round: usize) {
    let mut waiting: Vec<PathBuf> = vec![top.join("etc"), top.join("link")];
    // Most programs of an image are one file of busybox, which is read once.
    let mut read_files = BTreeSet::new();
    while let Some(path) = waiting.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            waiting.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if metadata.is_file() && read_files.insert((metadata.dev(), metadata.ino())) {
            let text = fs::read(&path).unwrap();
            let leaked = memmem::find(&text, SECRET.as_bytes());
            assert!(leaked.is_none(), "{} in round {round}", path.display());
        }
    }
}
