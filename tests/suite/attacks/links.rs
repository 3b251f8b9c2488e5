//! Images with links in every place that the hook writes to, which lead to a
//! volume or to the host (CVE-2024-0133, CVE-2024-0134, CVE-2025-23267).

use std::fs;

use harness::bundle::BundleBuilder;
use harness::demo_host::DemoHost;
use harness::privilege;
use harness::rootfs::Rootfs;

use super::volume::{DATA, Volume, put_link};
use super::{KINDS, chosen, container, host_with_tools};
use crate::lab::{Lab, on_each_cgroup_version};
use crate::tree::listing;

on_each_cgroup_version!(
    links_to_a_volume,
    links_to_the_host,
    library_directories_that_lead_to_a_volume,
    the_places_are_written_to,
);

/// The paths that the hook writes to, each with the attacker's file at it in the volume.
const PLACES: [(Rootfs, &str); 5] = [
    (
        Rootfs::Glibc,
        "/etc/ld.so.cache ld.so.cache
        /etc/ld.so.cache shadow
        /etc/ld.so.conf.d ld.so.conf.d
        /etc/ld.so.conf.d/00-boathook.conf 00-boathook.conf
        /etc/ld.so.conf.d/00-boathook.conf shadow
        /usr/lib/boathook boathook
        /usr/lib/x86_64-linux-gnu/libdummy-npu.so.1 shadow
        /usr/lib/x86_64-linux-gnu/libdummy-npu.so.1 libdummy-npu.so.1",
    ),
    (
        Rootfs::GlibcWithoutCache,
        "/etc/ld.so.cache ld.so.cache
        /etc/ld.so.conf ld.so.conf
        /etc/ld.so.conf.d ld.so.conf.d
        /etc etc",
    ),
    (
        Rootfs::Musl,
        "/etc/ld-musl-x86_64.path ld-musl-x86_64.path
        /etc etc",
    ),
    (
        Rootfs::Empty,
        "/usr/lib lib
        /usr usr
        /var var",
    ),
    (
        Rootfs::Busybox,
        "/usr/bin/npu-tool npu-tool
        /usr/lib/libdummy-npu.so.1 shadow
        /etc/npu.conf npu.conf
        /var/lib/npu npu",
    ),
];

/// The prefix by which a link leads to a path of the container, which is added to it.
const ROUTES: [&str; 5] = [
    "",
    "../../../../../../../..",
    "/proc/self/root",
    "/proc/1/root",
    SECOND_LINK,
];
/// Itself a link to the root.
const SECOND_LINK: &str = "/hop";

/// The places that can be made on this machine.
fn places() -> Vec<(Rootfs, &'static str, &'static str)> {
    let musl = privilege::missing_for_musl();
    if let Some(reason) = &musl {
        skip::report("attacks on musl's path file", reason);
    }
    let made = PLACES
        .into_iter()
        .filter(|(rootfs, _)| *rootfs != Rootfs::Musl || musl.is_none());
    let lines = made.flat_map(|(rootfs, text)| text.lines().map(move |line| (rootfs, line)));
    let places = lines.map(|(rootfs, line)| {
        let (place, name) = line.trim().split_once(' ').unwrap();
        (rootfs, place, name)
    });
    places.collect()
}

/// The container may start or not; the volume must not change.
fn links_to_a_volume(lab: &Lab) {
    let host = host_with_tools();
    let mut variations = Vec::new();
    for place in places() {
        for kind in KINDS {
            for full in [true, false] {
                variations.extend(ROUTES.map(|route| (place, kind, full, route)));
            }
        }
    }
    for ((rootfs, place, name), (of, kind), full, route) in chosen(variations, 18) {
        let case = format!("{place} of {rootfs:?} to {name}, {route}, {of}, full: {full}");
        let volume = if full {
            Volume::full()
        } else {
            Volume::empty()
        };
        let builder = kind(volume.mounted(container(&host, rootfs)));
        let target = format!("{route}{DATA}/{name}");
        assert_untouched(lab, builder, &volume, (place, &target), &case);
    }
}

/// The same with links that name the volume as the host does.
fn links_to_the_host(lab: &Lab) {
    let host = host_with_tools();
    let mut variations = Vec::new();
    for place in places() {
        variations.extend(ROUTES.map(|route| (place, route)));
    }
    for ((rootfs, place, name), route) in chosen(variations, 12) {
        let volume = Volume::full();
        let target = format!("{route}{}/{name}", volume.path().display());
        let case = format!("{place} of {rootfs:?}, {route}");
        let builder = container(&host, rootfs);
        assert_untouched(lab, builder, &volume, (place, &target), &case);
    }
}

/// The directories in which libraries get links, or files with their names are covered.
fn library_directories_that_lead_to_a_volume(lab: &Lab) {
    let host = host_with_tools();
    for place in ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/searched"] {
        for route in ROUTES {
            for full in [true, false] {
                let volume = if full {
                    Volume::full()
                } else {
                    Volume::empty()
                };
                let builder = volume.mounted(container(&host, Rootfs::Busybox));
                let builder = builder.env("LD_LIBRARY_PATH", "/searched:/data:/loop");
                let case = format!("{place}, {route}, full: {full}");
                let target = format!("{route}{DATA}");
                assert_untouched(lab, builder, &volume, (place, &target), &case);
            }
        }
    }
}

/// Creates a container of an image with this link.
fn assert_untouched(
    lab: &Lab,
    builder: BundleBuilder,
    volume: &Volume,
    (place, target): (&str, &str),
    case: &str,
) {
    let bundle = builder.build().unwrap();
    put_link(&bundle, SECOND_LINK, ".");
    put_link(&bundle, place, target);
    drop(lab.runc.create(&bundle));
    volume.assert_untouched(case);
    lab.assert_nothing_left(&bundle);
}

/// Without a link the hook writes to these places: the tests above test
/// something.
fn the_places_are_written_to(lab: &Lab) {
    let host = host_with_tools();
    let mut images: Vec<Rootfs> = places().iter().map(|(rootfs, ..)| *rootfs).collect();
    images.dedup();
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
