//! What else may be in the place of a file that the installer reads or writes.

use std::time::Instant;

use harness::damage::{self, Damage};

use crate::site::{Site, complaint, fixture, said};

/// Files of engines and of the installation, on a host on which they matter.
const FILES: [(&str, &str, &str); 5] = [
    (
        "containerd/1.7-kubeadm",
        "containerd",
        "etc/containerd/config.toml",
    ),
    ("docker/empty-object", "dockerd", "etc/docker/daemon.json"),
    (
        "crio/1.36-package",
        "crio",
        "etc/crio/hooks.d/99-boathook.json",
    ),
    (
        "containerd/1.7-kubeadm",
        "containerd",
        "opt/boathook/state/containerd.json",
    ),
    (
        "containerd/1.7-kubeadm",
        "containerd",
        "opt/boathook/state/config.toml",
    ),
];

#[test]
fn each_file_is_named_and_not_waited_for() {
    for (before, program, file) in FILES {
        for damage in Damage::kinds() {
            let site = Site::new(&fixture(before));
            site.add_program(program);
            said(&site.run(&["install"]));
            let path = site.path(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            damage.put(&path).unwrap();
            let start = Instant::now();
            for arguments in [&["status"][..], &["install"], &["uninstall"]] {
                let ran = site.run(arguments);
                println!(
                    "{file} {damage:?} {arguments:?}: {} {:?}",
                    ran.status,
                    String::from_utf8_lossy(&ran.stderr)
                );
            }
            assert!(damage.spares_victim(&path), "{file}: {damage:?}");
            assert!(start.elapsed() < damage::LIMIT, "{file}: {damage:?}");
        }
    }
}
