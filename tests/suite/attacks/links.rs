//! Images with links in every place that the hook writes to, which lead to a
//! volume or to the host (CVE-2024-0133, CVE-2024-0134, CVE-2025-23267).

use std::fs;

use harness::demo_host::DemoHost;
use harness::privilege;
use harness::rootfs::Rootfs;

use super::volume::{DATA, Volume, put_link};
use super::{Kind, chosen, container, host_with_tools};
use crate::lab::{Lab, on_each_cgroup_version};
use crate::tree::listing;

on_each_cgroup_version!(
    links_to_a_volume,
    links_to_the_host,
    the_places_are_written_to,
);

/// A path that the hook writes to, and the attacker's file at it in the volume.
const PLACES: [(Rootfs, &str, &str); 18] = [
    (Rootfs::Glibc, "/etc/ld.so.cache", "ld.so.cache"),
    (Rootfs::Glibc, "/etc/ld.so.cache", "shadow"),
    (Rootfs::GlibcWithoutCache, "/etc/ld.so.cache", "ld.so.cache"),
    (Rootfs::GlibcWithoutCache, "/etc/ld.so.conf", "ld.so.conf"),
    (
        Rootfs::GlibcWithoutCache,
        "/etc/ld.so.conf.d",
        "ld.so.conf.d",
    ),
    (Rootfs::Glibc, "/etc/ld.so.conf.d", "ld.so.conf.d"),
    (
        Rootfs::Glibc,
        "/etc/ld.so.conf.d/00-boathook.conf",
        "00-boathook.conf",
    ),
    (
        Rootfs::Glibc,
        "/etc/ld.so.conf.d/00-boathook.conf",
        "shadow",
    ),
    (Rootfs::GlibcWithoutCache, "/etc", "etc"),
    (
        Rootfs::Musl,
        "/etc/ld-musl-x86_64.path",
        "ld-musl-x86_64.path",
    ),
    (Rootfs::Musl, "/etc", "etc"),
    (Rootfs::Glibc, "/usr/lib/boathook", "boathook"),
    (Rootfs::Empty, "/usr/lib", "lib"),
    (Rootfs::Empty, "/usr", "usr"),
    (Rootfs::Busybox, "/usr/bin/npu-tool", "npu-tool"),
    (Rootfs::Busybox, "/etc/npu.conf", "npu.conf"),
    (Rootfs::Busybox, "/var/lib/npu", "npu"),
    (Rootfs::Empty, "/var", "var"),
];

/// How a link leads to a path of the container.
#[derive(Clone, Copy, Debug)]
enum Route {
    Absolute,
    Upwards,
    SelfRoot,
    InitRoot,
    SecondLink,
}

impl Route {
    const ALL: [Self; 5] = [
        Self::Absolute,
        Self::Upwards,
        Self::SelfRoot,
        Self::InitRoot,
        Self::SecondLink,
    ];

    fn to(self, path: &str) -> String {
        match self {
            Self::Absolute => path.to_string(),
            Self::Upwards => format!("../../../../../../../..{path}"),
            Self::SelfRoot => format!("/proc/self/root{path}"),
            Self::InitRoot => format!("/proc/1/root{path}"),
            Self::SecondLink => format!("/hop{path}"),
        }
    }
}

/// The places that can be made on this machine.
fn places() -> Vec<(Rootfs, &'static str, &'static str)> {
    let musl = privilege::missing_for_musl();
    if let Some(reason) = &musl {
        skip::report("attacks on musl's path file", reason);
    }
    PLACES
        .into_iter()
        .filter(|(rootfs, ..)| *rootfs != Rootfs::Musl || musl.is_none())
        .collect()
}

/// The container may start or not; the volume must not change.
fn links_to_a_volume(lab: &Lab) {
    let host = host_with_tools();
    let mut variations = Vec::new();
    for place in places() {
        for kind in Kind::ALL {
            for full in [true, false] {
                variations.extend(Route::ALL.map(|route| (place, kind, full, route)));
            }
        }
    }
    for ((rootfs, place, name), kind, full, route) in chosen(variations, 18) {
        let case = format!("{place} of {rootfs:?} to {name}, {route:?}, {kind:?}, full: {full}");
        let volume = if full {
            Volume::full()
        } else {
            Volume::empty()
        };
        let builder = volume.mounted(container(&host, rootfs));
        let bundle = kind.of(builder).build().unwrap();
        if matches!(route, Route::SecondLink) {
            put_link(&bundle, "/hop", ".");
        }
        put_link(&bundle, place, &route.to(&format!("{DATA}/{name}")));
        drop(lab.runc.create(&bundle));
        volume.assert_untouched(&case);
        lab.assert_nothing_left(&bundle);
    }
}

/// The same with links that name the volume as the host does.
fn links_to_the_host(lab: &Lab) {
    let host = host_with_tools();
    let mut variations = Vec::new();
    for place in places() {
        variations.extend(Route::ALL.map(|route| (place, route)));
    }
    for ((rootfs, place, name), route) in chosen(variations, 12) {
        let volume = Volume::full();
        let bundle = container(&host, rootfs).build().unwrap();
        if matches!(route, Route::SecondLink) {
            put_link(&bundle, "/hop", ".");
        }
        let target = format!("{}/{name}", volume.path().display());
        put_link(&bundle, place, &route.to(&target));
        drop(lab.runc.create(&bundle));
        volume.assert_untouched(&format!("{place} of {rootfs:?}, {route:?}"));
        lab.assert_nothing_left(&bundle);
    }
}

/// Without a link the hook writes to these places: the tests above test
/// something.
fn the_places_are_written_to(lab: &Lab) {
    let host = host_with_tools();
    let mut images: Vec<Rootfs> = Vec::new();
    for (rootfs, ..) in places() {
        if !images.contains(&rootfs) {
            images.push(rootfs);
        }
    }
    for rootfs in images {
        let bundle = container(&host, rootfs).build().unwrap();
        let before = listing(&bundle.rootfs());
        drop(lab.runc.create(&bundle).unwrap());
        let after = listing(&bundle.rootfs());
        let new: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
        for (_, place, _) in places().iter().filter(|(of, ..)| *of == rootfs) {
            assert!(
                new.iter().any(|line| line.starts_with(place)),
                "{place} of {rootfs:?}: {new:#?}"
            );
        }
    }
    assert!(fs::exists(host.node(DemoHost::UNLIKE)).unwrap());
}
