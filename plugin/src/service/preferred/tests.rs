//! Which devices are chosen, and how long it takes.

mod vendors;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::discover::Connections;
use device_class::host::RecordedHost;

use super::*;
use crate::catalog::fixture::{device, resource, scanned};
use crate::catalog::{AdvertisedDevice, Terms};

/// A resource of a class with `placement = "spread"`.
/// Pseudo-random numbers, the same each time (Knuth, MMIX).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

fn spread(devices: Vec<AdvertisedDevice>) -> Resource {
    placed(Preference::Spread, devices)
}

fn placed(placement: Preference, devices: Vec<AdvertisedDevice>) -> Resource {
    let packed = resource(devices.clone());
    let terms = Terms {
        placement,
        ..Terms::clone(&packed.terms)
    };
    Resource::new(packed.name, Arc::new(terms), devices)
}

/// A device from a line such as `gpu-0 numa=1 group=a share-of=x`.
fn parsed(line: &str) -> AdvertisedDevice {
    let mut words = line.split(' ');
    let mut parsed = device(words.next().unwrap());
    let (mut bus, mut name, mut peers) = (None, None, BTreeSet::new());
    for word in words {
        match word.split_once('=').unwrap() {
            ("numa", node) => parsed.numa = Some(node.parse().unwrap()),
            ("group", group) => parsed.group = Some(group.to_owned()),
            ("bus", path) => bus = Some(PathBuf::from(path)),
            ("name", text) => name = Some(text.to_owned()),
            ("peers", list) => peers = list.split(',').map(str::to_owned).collect(),
            ("share-of", id) => parsed.share_of = Some(Arc::new(id.to_owned().try_into().unwrap())),
            other => panic!("{other:?}"),
        }
    }
    parsed.connections = Arc::new(Connections::new(bus, name, peers));
    parsed
}

fn ids(list: &str) -> Vec<String> {
    list.split(' ')
        .filter(|id| !id.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn devices_that_go_well_together_are_chosen() {
    let by_numa = &["a numa=0", "b numa=1", "c numa=0", "d numa=1", "e numa=1"][..];
    let groups = &[
        "a group=x",
        "b group=y",
        "c group=x",
        "d group=y",
        "e group=x",
    ][..];
    let both = &[
        "a numa=0 group=x",
        "b numa=1 group=y",
        "c numa=0",
        "d numa=1 group=y",
    ][..];
    let shares = &[
        "a0 share-of=a",
        "a1 share-of=a",
        "b0 share-of=b",
        "b1 share-of=b",
        "c0 share-of=c",
    ][..];
    for (devices, must, size, wanted) in [
        // One node is enough, and the smaller one is not needed for more.
        (by_numa, "", 2, "a c"),
        (by_numa, "", 3, "b d e"),
        (by_numa, "", 4, "a b d e"),
        // The node that is in use anyway.
        (by_numa, "b", 2, "b d"),
        (by_numa, "a", 3, "a b c"),
        // A whole group, and the rest of the other stays whole.
        (groups, "", 2, "b d"),
        (groups, "", 3, "a c e"),
        (groups, "a", 2, "a c"),
        (both, "", 2, "b d"),
        // The smallest device that is enough, or as few as possible.
        (shares, "", 1, "c0"),
        (shares, "", 2, "a0 a1"),
        (shares, "", 3, "a0 a1 c0"),
        (shares, "", 4, "a0 a1 b0 b1"),
        (shares, "a1", 2, "a0 a1"),
        (shares, "", 5, "a0 a1 b0 b1 c0"),
        (shares, "", 0, ""),
    ] {
        let all: Vec<AdvertisedDevice> = devices.iter().map(|line| parsed(line)).collect();
        let available: Vec<String> = all.iter().map(|device| device.id.to_string()).collect();
        let chosen = preferred(&resource(all), &available, &ids(must), size).unwrap();
        assert_eq!(chosen, ids(wanted), "{size} of {devices:?} with {must:?}");
    }
}

#[test]
fn spread_devices_are_chosen_if_the_class_configures_it() {
    let by_numa = &["a numa=0", "b numa=0", "c numa=0", "d numa=1", "e numa=1"][..];
    let groups = &[
        "a numa=0 group=x",
        "b numa=0 group=x",
        "c numa=0 group=y",
        "d numa=1 group=z",
        "e numa=1 group=z",
    ][..];
    let shares = &[
        "a0 share-of=a",
        "a1 share-of=a",
        "b0 share-of=b",
        "b1 share-of=b",
        "b2 share-of=b",
    ][..];
    for (devices, taken, must, size, wanted) in [
        (by_numa, "", "", 2, "a d"),
        (by_numa, "", "", 4, "a b d e"),
        (by_numa, "", "a", 2, "a d"),
        (by_numa, "", "a d", 3, "a b d"),
        // Of the fuller node, what is of another group.
        (groups, "", "", 3, "a c d"),
        (groups, "", "a", 3, "a c d"),
        // The hardware of which others have least, and all of it first.
        (shares, "", "", 2, "a0 b0"),
        (shares, "a0", "", 1, "b0"),
        (shares, "b0 b1", "", 1, "a0"),
        (shares, "", "", 3, "a0 a1 b0"),
        (shares, "", "b0", 2, "a0 b0"),
        (shares, "", "", 5, "a0 a1 b0 b1 b2"),
        (shares, "", "", 0, ""),
    ] {
        let all: Vec<AdvertisedDevice> = devices.iter().map(|line| parsed(line)).collect();
        let available = all.iter().map(|device| device.id.to_string());
        let available: Vec<String> = available.filter(|id| !ids(taken).contains(id)).collect();
        let chosen = preferred(&spread(all), &available, &ids(must), size).unwrap();
        assert_eq!(chosen, ids(wanted), "{size} of {devices:?} with {must:?}");
    }
}

/// NVIDIA's plugin distributes replicas, and packs whole GPUs.
#[test]
fn shares_are_spread_and_whole_devices_packed_if_the_class_configures_it() {
    let shares = [
        "a0 share-of=a",
        "a1 share-of=a",
        "b0 share-of=b",
        "b1 share-of=b",
    ];
    let wholes = ["a numa=0", "b numa=1", "c numa=0", "d numa=1"];
    for (devices, wanted) in [(shares, "a0 b0"), (wholes, "a c")] {
        let all: Vec<AdvertisedDevice> = devices.iter().map(|line| parsed(line)).collect();
        let available: Vec<String> = all.iter().map(|device| device.id.to_string()).collect();
        let resource = placed(Preference::SpreadShares, all);
        let chosen = preferred(&resource, &available, &[], 2).unwrap();
        assert_eq!(chosen, ids(wanted));
    }
}

/// 8 GB of eight GPUs with 80 GB come from one GPU, and a partly used GPU is filled
/// before an unused one.
#[test]
fn shares_are_of_one_device_if_the_class_configures_it() {
    let gigabytes = |gpu: u32| (0..80).map(move |n| parsed(&format!("{gpu}::{n} share-of={gpu}")));
    let devices: Vec<AdvertisedDevice> = (0..8).flat_map(gigabytes).collect();
    let packed = resource(devices.clone());
    let terms = Terms {
        one_device: true,
        ..Terms::clone(&packed.terms)
    };
    let memory = Resource::new(packed.name, Arc::new(terms), devices);
    let all = memory.devices().iter().map(|device| device.id.to_string());
    let all: Vec<String> = all.collect();
    let gpus = |chosen: &[String]| -> BTreeSet<String> {
        let gpu = |id: &String| id.split_once(':').unwrap().0.to_owned();
        chosen.iter().map(gpu).collect()
    };
    let chosen = preferred(&memory, &all, &[], 8).unwrap();
    assert_eq!((chosen.len(), gpus(&chosen).len()), (8, 1));
    let in_use = |id: &&String| !["6::1", "6::2", "6::3"].contains(&id.as_str());
    let free: Vec<String> = all.iter().filter(in_use).cloned().collect();
    assert_eq!(
        gpus(&preferred(&memory, &free, &[], 77).unwrap()),
        ["6".to_owned()].into()
    );
    assert_ne!(
        gpus(&preferred(&memory, &free, &[], 78).unwrap()),
        ["6".to_owned()].into()
    );
    assert_eq!(
        gpus(&preferred(&memory, &free, &ids("2::9"), 8).unwrap()),
        ["2".to_owned()].into()
    );
    for (must, size) in [("", 81), ("2::9 3::9", 3)] {
        let refused = preferred(&memory, &free, &ids(must), size).unwrap_err();
        assert!(
            refused.to_string().contains("no single device has"),
            "{refused}"
        );
    }
}

#[test]
fn ten_thousand_shares_are_chosen_from_in_time() {
    let share = |n: u32| {
        let (hardware, numa, group) = (n / 10, n / 10 % 8, n / 10 % 125);
        parsed(&format!(
            "s{n} share-of=h{hardware} numa={numa} group=g{group}"
        ))
    };
    let devices: Vec<AdvertisedDevice> = (0..10_000).map(share).collect();
    let available: Vec<String> = devices.iter().map(|d| d.id.to_string()).collect();
    for (way, devices) in [
        ("packed", resource(devices.clone())),
        ("spread", spread(devices)),
    ] {
        for size in [16, 5_000, 9_999] {
            let since = Instant::now();
            let chosen = preferred(&devices, &available, &[], size).unwrap();
            let took = since.elapsed();
            assert_eq!(chosen.len(), size);
            // The goal is 50 ms; a debug build on a busy machine gets more.
            assert!(took < Duration::from_secs(20), "{took:?}");
            println!("{size} of 10,000, {way}: {took:?}");
        }
    }
}

#[test]
fn many_nodes_and_groups_are_chosen_from_in_time() {
    for (count, groups) in [(400, 120), (4000, 240)] {
        let line = |n: u32| format!("d{n} numa={} group=g{}", n % 12, n * 7919 % groups);
        let devices = resource((0..count).map(|n| parsed(&line(n))).collect());
        let all = devices.devices().iter().map(|d| d.id.to_string());
        let available: Vec<String> = all.collect();
        let since = Instant::now();
        let chosen = preferred(&devices, &available, &[], available.len() / 2).unwrap();
        let took = since.elapsed();
        assert_eq!(chosen.len(), available.len() / 2);
        // Tens of milliseconds in a release build. One for each set of
        // nodes, it would be a hundred times as long.
        assert!(took < Duration::from_secs(20), "{took:?}");
        println!("half of {count}: {took:?}");
    }
}

/// Four GPUs of one node, each with an XGMI link to one below the other switch.
#[test]
fn linked_devices_are_chosen_before_those_below_one_switch() {
    let class = include_str!("../../../../device-class/classes/amd-gpu.toml");
    let name = "amd-gpu".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, "amd-gpu.toml".as_ref(), class).unwrap();
    let host = include_str!("../../../../device-class/testdata/amd-gpu/xgmi/host.txt");
    let host = RecordedHost::parse(host).unwrap();
    let chosen = |class: &DeviceClass, free: &str, must: &str, size: usize| {
        let classes = std::slice::from_ref(class);
        let found = scanned(classes, &host).inventory;
        let resource = found.values().next().unwrap();
        preferred(resource, &ids(free), &ids(must), size)
            .unwrap()
            .join(" ")
    };
    let all = "0000:11:00.0 0000:12:00.0 0000:21:00.0 0000:22:00.0";
    assert_eq!(chosen(&class, all, "", 2), "0000:11:00.0 0000:21:00.0");
    let must = "0000:22:00.0";
    assert_eq!(chosen(&class, all, must, 2), "0000:12:00.0 0000:22:00.0");
    // The linked one is not free: the same switch.
    let three = "0000:12:00.0 0000:21:00.0 0000:22:00.0";
    assert_eq!(
        chosen(&class, three, "0000:21:00.0", 2),
        "0000:21:00.0 0000:22:00.0"
    );
    // Without links the switch decides.
    let mut without = class.clone();
    without.spec.device.links = None;
    assert_eq!(chosen(&without, all, "", 2), "0000:11:00.0 0000:12:00.0");
    assert_eq!(chosen(&without, all, must, 2), "0000:21:00.0 0000:22:00.0");
}

#[test]
fn the_bus_decides_only_among_choices_that_are_equal_otherwise() {
    let bus = |id: &str, rest: &str, path: &str| {
        format!("{id} {rest} bus=/sys/devices/pci0000:00/{path}")
    };
    let devices = [
        bus("a", "numa=0", "00/10/a"),
        bus("b", "numa=0", "00/20/b"),
        bus("c", "numa=0", "00/10/c"),
        bus("d", "numa=1", "00/20/d"),
        bus("e", "numa=0", "00/20/e"),
    ];
    let packed = resource(devices.iter().map(|line| parsed(line)).collect());
    for (free, must, size, wanted) in [
        ("a b c d e", "", 2, "a c"),
        ("a b c d e", "b", 2, "b e"),
        ("a b c d e", "e", 3, "a b e"),
        ("a b c d e", "", 4, "a b c e"),
        // Another node is needed in any case.
        ("a b c d e", "d", 2, "b d"),
        // Not `b d`: they are below one switch, but of different nodes.
        ("a b d", "", 2, "a b"),
    ] {
        let found = preferred(&packed, &ids(free), &ids(must), size).unwrap();
        assert_eq!(found.join(" "), wanted, "{must} {size} of {free}");
    }
}

/// As with XGMI: a link across NUMA nodes is faster than the bus of one node, and the
/// vendor's plugin (internal/pkg/allocator) weighs it so.
#[test]
fn direct_links_outweigh_numa_nodes() {
    let linked = |id: &str, numa: u32, peers: &str| {
        format!("{id} numa={numa} bus=/sys/devices/pci000{numa}:00/00/{id} name={id} peers={peers}")
    };
    let resource_of = |lines: &[String]| resource(lines.iter().map(|line| parsed(line)).collect());
    let choose = |resource: &Resource, must: &str, size: usize| {
        let all: Vec<String> = resource
            .devices()
            .iter()
            .map(|d| d.id.to_string())
            .collect();
        preferred(resource, &all, &ids(must), size)
            .unwrap()
            .join(" ")
    };
    // Two groups of four, each on both nodes.
    let hive = |name: &str| -> Vec<String> {
        let names: Vec<String> = (0..4).map(|at| format!("{name}{at}")).collect();
        let device = |at: usize| linked(&names[at], u32::from(at > 1), &names.join(","));
        (0..4).map(device).collect()
    };
    let hives = resource_of(&[hive("a"), hive("b")].concat());
    for (must, size, wanted) in [
        ("", 2, "a0 a1"),
        ("", 3, "a0 a1 a2"),
        ("", 4, "a0 a1 a2 a3"),
        ("b3", 2, "b2 b3"),
        ("b1", 4, "b0 b1 b2 b3"),
    ] {
        assert_eq!(choose(&hives, must, size), wanted, "{size} with {must:?}");
    }
    // As many links with fewer nodes, or on the node with less left over.
    let pairs = resource_of(&[
        linked("a", 0, "b"),
        linked("b", 0, "a"),
        linked("c", 0, "d"),
        linked("d", 0, "c"),
        linked("e", 1, "f"),
        linked("f", 1, "e"),
    ]);
    assert_eq!(choose(&pairs, "", 2), "e f");
    assert_eq!(choose(&pairs, "", 4), "a b c d");
    // The bus alone does not outweigh a node.
    let (near, far) = ("bus=/sys/devices/0/0", "bus=/sys/devices");
    let lines = [
        format!("a numa=0 {far}/1/a"),
        format!("b numa=0 {far}/2/b"),
        format!("c numa=1 {near}/c"),
        format!("d numa=1 {near}/d"),
        "e numa=1 name=e peers=x".to_owned(),
    ];
    assert_eq!(choose(&resource_of(&lines), "", 2), "a b");
}
