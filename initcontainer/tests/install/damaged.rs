//! Something else, such as a pipe, a link or a directory, is at the path of a file that the
//! installer reads or writes. The installer must name the path, must not block, and must not change
//! the target of a link.

use std::fs;
use std::time::Instant;

use harness::damage::{self, Damage};

use crate::site::{Site, complaint, fixture, said};

/// Fixtures, each with the engine's program and a file of the engine.
const OF_ENGINES: [(&str, &str, &str); 2] = [
    (
        "containerd/1.7-kubeadm",
        "containerd",
        "etc/containerd/config.toml",
    ),
    ("docker/empty-object", "dockerd", "etc/docker/daemon.json"),
];

/// Fixtures, each with the engine's program and a file that only the installer writes.
const OWN: [(&str, &str, &str); 3] = [
    (
        "crio/1.36-package",
        "crio",
        "etc/crio/hooks.d/99-boathook.json",
    ),
    (
        "crio/1.36-package",
        "crio",
        "etc/crio/crio.conf.d/99-boathook.conf",
    ),
    (
        "containerd/1.7-kubeadm",
        "containerd",
        "opt/boathook/state/containerd.json",
    ),
];

/// Checks that each command ends in time, and that a failure because of the file names the file.
fn run_beside(damage: Damage, (before, program, file): (&str, &str, &str)) {
    let site = Site::new(&fixture(before));
    site.add_program(program);
    said(&site.run(&["install"]));
    let path = site.path(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    damage.put(&path).unwrap();
    let start = Instant::now();
    site.run(&["status"]);
    let is_regular = matches!(damage, Damage::Writable | Damage::ForeignOwner);
    let is_own = OWN.iter().any(|(_, _, own)| *own == file);
    let ran = site.run(&["install"]);
    if is_regular || (damage == Damage::DanglingLink && !is_own) {
        said(&ran);
    } else {
        let message = complaint(&ran);
        assert!(message.contains(file), "{file}: {damage:?}: {message}");
    }
    // A link of the administrator at the path of an engine's file is followed, so its target may
    // change.
    if is_own || !damage.is_link() {
        assert!(damage.spares_victim(&path), "{file}: {damage:?}");
    }
    site.run(&["uninstall"]);
    assert!(start.elapsed() < damage::LIMIT, "{file}: {damage:?}");
}

#[test]
fn a_file_of_an_engine() {
    for file in OF_ENGINES {
        Damage::kinds()
            .into_iter()
            .for_each(|damage| run_beside(damage, file));
    }
}

#[test]
fn a_file_of_the_installation() {
    for file in OWN {
        Damage::kinds()
            .into_iter()
            .for_each(|damage| run_beside(damage, file));
    }
}
