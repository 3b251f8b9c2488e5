//! Images that try to turn the hook against the host: links in every place
//! that it writes to. The host's files stay as they are.

use std::fs;
use std::os::unix::fs::symlink;

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use tempfile::TempDir;

use super::container;
use crate::lab::{Lab, on_each_cgroup_version};
use crate::tree::listing;

on_each_cgroup_version!(links_lead_nowhere_outside, the_places_are_written_to);

/// Where the hook writes, and an image in which that place can be replaced.
const PLACES: [(Rootfs, &str); 7] = [
    (Rootfs::GlibcWithoutCache, "/usr/lib/boathook"),
    (Rootfs::Empty, "/usr/lib"),
    (Rootfs::Empty, "/usr"),
    (Rootfs::GlibcWithoutCache, "/etc"),
    (Rootfs::GlibcWithoutCache, "/etc/ld.so.cache"),
    (Rootfs::GlibcWithoutCache, "/etc/ld.so.conf.d"),
    (
        Rootfs::GlibcWithoutCache,
        "/etc/ld.so.conf.d/00-boathook.conf",
    ),
];

/// Each place is made a link to the host's victim, absolute and by `..`. The
/// container may start or not: what counts is the victim.
fn links_lead_nowhere_outside(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for (rootfs, place) in PLACES {
        for upwards in ["", "../../../../../../../.."] {
            let victim = Victim::new();
            let bundle = container(&host, rootfs, "npu-3").build().unwrap();
            victim.put_link(&bundle, place, upwards);
            drop(lab.runc.create(&bundle));
            victim.assert_untouched(&format!("{upwards} {place}"));
            lab.assert_nothing_left(&bundle);
        }
    }
}

/// Without a link the hook comes to all these places: the test above tests
/// something.
fn the_places_are_written_to(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for (rootfs, place) in PLACES {
        let bundle = container(&host, rootfs, "npu-3").build().unwrap();
        let before = listing(&bundle.rootfs());
        drop(lab.runc.create(&bundle).unwrap());
        let new = listing(&bundle.rootfs())
            .into_iter()
            .filter(|line| !before.contains(line));
        assert!(
            new.into_iter().any(|line| line.starts_with(place)),
            "{place}"
        );
    }
}

/// A directory of the host that has something in every place that is written.
struct Victim {
    directory: TempDir,
    before: Vec<String>,
}

impl Victim {
    fn new() -> Self {
        let directory = harness::scratch::directory("victim").unwrap();
        for name in ["lib/boathook/lib", "boathook", "ld.so.conf.d", "lib64"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        for name in ["ld.so.cache", "ld.so.conf", "ld.so.conf.d/00-boathook.conf"] {
            fs::write(directory.path().join(name), "the host's own").unwrap();
        }
        let before = listing(directory.path());
        Self { directory, before }
    }

    /// Links `place` in the image to the victim, or to the file of the same
    /// name in it.
    fn put_link(&self, bundle: &Bundle, place: &str, upwards: &str) {
        let link = bundle.in_rootfs(place);
        if link.is_dir() {
            fs::remove_dir_all(&link).unwrap();
        }
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        let name = link.file_name().unwrap();
        let own = self.directory.path().join(name);
        let target = if own.is_file() {
            own
        } else {
            self.directory.path().to_path_buf()
        };
        symlink(format!("{upwards}{}", target.display()), &link).unwrap();
    }

    fn assert_untouched(&self, case: &str) {
        assert_eq!(listing(self.directory.path()), self.before, "{case}");
    }
}
