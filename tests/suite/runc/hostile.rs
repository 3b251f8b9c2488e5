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

on_each_cgroup_version!(links_lead_nowhere_outside);

/// Each place is made a link to the host's victim, absolute and by `..`. The
/// container may start or not: what counts is the victim.
fn links_lead_nowhere_outside(lab: &Lab) {
    let places = [
        "/usr/lib/boathook",
        "/usr/lib",
        "/usr",
        "/etc",
        "/etc/ld.so.cache",
        "/etc/ld.so.conf.d",
        "/etc/ld.so.conf.d/00-boathook.conf",
    ];
    let host = DemoHost::new().unwrap();
    for place in places {
        for upwards in ["", "../../../../../../../.."] {
            let victim = Victim::new();
            let bundle = container(&host, Rootfs::Empty, "npu-3").build().unwrap();
            victim.put_link(&bundle, place, upwards);
            drop(lab.runc.create(&bundle));
            victim.assert_untouched(&format!("{upwards} {place}"));
            lab.assert_nothing_left(&bundle);
        }
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
