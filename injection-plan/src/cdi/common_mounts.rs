//! Moves the mounts that all devices of a CDI specification have in common to the `containerEdits`
//! of the specification itself. An engine applies these edits once to a container that requests any
//! of the devices. So the file lists a driver's libraries only once, and not for each device name.

use std::collections::BTreeSet;

use device_class::collect_by_insertion;

use super::SpecifiedDevice;
use super::spec::CdiMount;

/// Removes from the devices the mounts that all of them have, and returns these mounts. Removes no
/// mount if a device would then have no edits, because engines refuse such a device.
///
/// An engine applies the edits of the specification before those of a device. So a common mount is
/// not moved if its path is above or below the path of another mount of a device. In a different
/// order, one of the two mounts could hide the other.
pub(super) fn extract_common_mounts(devices: &mut [SpecifiedDevice]) -> Vec<CdiMount> {
    let [first_device, other_devices @ ..] = &*devices else {
        return Vec::new();
    };
    if other_devices.is_empty() {
        return Vec::new();
    }
    let other_mount_sets = other_devices
        .iter()
        .map(|device| collect_by_insertion(&device.container_edits.mounts));
    let mount_sets: Vec<BTreeSet<&CdiMount>> = other_mount_sets.collect();
    let first_mounts = first_device.container_edits.mounts.iter();
    let mounts = first_mounts.filter(|mount| mount_sets.iter().all(|set| set.contains(mount)));
    let mut shared_mounts: BTreeSet<CdiMount> = collect_by_insertion(mounts.cloned());
    loop {
        let all_mounts = devices
            .iter()
            .flat_map(|device| &device.container_edits.mounts);
        let other_mounts = all_mounts.filter(|mount| !shared_mounts.contains(mount));
        let device_mounts: BTreeSet<&CdiMount> = collect_by_insertion(other_mounts);
        let previous_count = shared_mounts.len();
        let mut remaining_mounts = shared_mounts.clone();
        remaining_mounts.retain(|mount| !device_mounts.iter().any(|other| mount.overlaps(other)));
        shared_mounts = remaining_mounts;
        if shared_mounts.len() == previous_count {
            break;
        }
    }
    let has_other_edits = |device: &SpecifiedDevice| {
        let mut edits = device.container_edits.clone();
        edits.mounts.retain(|mount| !shared_mounts.contains(mount));
        !edits.is_empty()
    };
    if !devices.iter().all(has_other_edits) {
        return Vec::new();
    }
    // The common mounts have the order of the mounts in the first device, which is the order of its
    // injection plan.
    let mut common_mounts = devices[0].container_edits.mounts.clone();
    common_mounts.retain(|mount| shared_mounts.contains(mount));
    for device in devices {
        let mounts = &mut device.container_edits.mounts;
        mounts.retain(|mount| !shared_mounts.contains(mount));
    }
    common_mounts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cdi::{ContainerEdits, Specification};

    /// Reads devices: `NAME: PATH PATH; NAME: …`. A path that begins with `+` is mounted from
    /// another file, and `node` stands for other edits.
    fn devices(text: &str) -> Vec<SpecifiedDevice> {
        let device = |text: &str| {
            let (name, paths) = text.trim().split_once(':').unwrap();
            let mut edits = ContainerEdits::default();
            for path in paths.split_whitespace() {
                if path == "node" {
                    edits.env.push("A=1".to_owned());
                    continue;
                }
                let container = path.trim_start_matches('+');
                edits.mounts.push(CdiMount {
                    host_path: format!("/host{path}").into(),
                    container_path: container.into(),
                    options: vec!["bind"],
                });
            }
            SpecifiedDevice {
                name: name.to_owned(),
                container_edits: edits,
            }
        };
        text.split(';').map(device).collect()
    }

    fn paths(mounts: &[CdiMount]) -> String {
        let paths = mounts
            .iter()
            .map(|mount| mount.container_path.to_string_lossy());
        paths.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_mount_of_every_device_is_common() {
        for (text, shared_mounts, alone) in [
            ("a: node /x /y; b: node /x", "/x", "/y | "),
            (
                "a: node /y /x; b: node /x /y; all: node /x /y",
                "/y /x",
                " |  | ",
            ),
            ("a: node /x; b: node /y", "", "/x | /y"),
            // The same path, and another file.
            ("a: node /x; b: node +/x", "", "/x | /x"),
            // One of the two could hide the other.
            ("a: node /x /x/y; b: node /x", "", "/x /x/y | /x"),
            ("a: node /x/y /x; b: node /x/y", "", "/x/y /x | /x/y"),
            ("a: node /x /y /x/z; b: node /x /y", "/y", "/x /x/z | /x"),
            ("a: node /xy /x; b: node /x", "/x", "/xy | "),
            // Engines refuse a device without edits.
            ("a: /x; b: /x", "", "/x | /x"),
            ("a: node /x; b: /x", "", "/x | /x"),
            // Nothing would be saved.
            ("a: node /x", "", "/x"),
        ] {
            let mut devices = devices(text);
            let taken = extract_common_mounts(&mut devices);
            assert_eq!(paths(&taken), shared_mounts, "{text}");
            let left = devices.iter().map(|it| paths(&it.container_edits.mounts));
            assert_eq!(left.collect::<Vec<_>>().join(" | "), alone, "{text}");
        }
    }

    #[test]
    fn a_part_of_the_devices_keeps_all_mounts() {
        let whole = "a: node /x /a; b: node /x /b; all: node /x /a /b";
        for (kept, expected) in [
            (&["a"][..], "a: node /x /a"),
            (&["a", "all"], "a: node /x /a; all: node /x /a /b"),
        ] {
            let specification = Specification::new("x.com/x".into(), devices(whole));
            let part = specification.filter_devices(|name| kept.contains(&name));
            let expected = Specification::new("x.com/x".into(), devices(expected));
            assert_eq!(part, Some(expected), "{kept:?}");
        }
        let specification = Specification::new("x.com/x".into(), devices(whole));
        assert_eq!(specification.filter_devices(|_| false), None);
    }
}
