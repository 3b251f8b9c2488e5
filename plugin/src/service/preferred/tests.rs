//! Tests of the chosen devices, and of the time that a choice takes.

mod vendors;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device_class::DeviceClass;
use device_class::discover::Connections;
use device_class::host::RecordedHost;

use super::*;
use crate::catalog::fixture::{device, resource, scan_recorded_host};
use crate::catalog::{AdvertisedDevice, ResourceProperties};

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

fn placed(placement: PlacementPolicy, devices: Vec<AdvertisedDevice>) -> Resource {
    let packed = resource(devices.clone());
    let properties = ResourceProperties {
        placement,
        ..ResourceProperties::clone(&packed.properties)
    };
    Resource::new(packed.name, Arc::new(properties), devices)
}

/// A device from a line such as `gpu-0 numa=1 group=a share-of=x`.
fn parsed(line: &str) -> AdvertisedDevice {
    let mut words = line.split(' ');
    let mut parsed = device(words.next().unwrap());
    let (mut bus, mut name, mut peers) = (None, None, BTreeMap::new());
    for word in words {
        match word.split_once('=').unwrap() {
            ("numa", node) => parsed.numa_node = Some(node.parse().unwrap()),
            ("group", group) => parsed.group = Some(group.to_owned()),
            ("bus", path) => bus = Some(PathBuf::from(path)),
            ("name", text) => name = Some(text.to_owned()),
            ("peers", list) => {
                for peer in list.split(',') {
                    *peers.entry(peer.to_owned()).or_default() += 1;
                }
            }
            ("share-of", id) => {
                parsed.shared_device_id = Some(Arc::new(id.to_owned().try_into().unwrap()))
            }
            other => panic!("{other:?}"),
        }
    }
    parsed.connections = Arc::new(Connections::new(bus, name, peers));
    parsed
}

fn ids(list: &str) -> Vec<String> {
    list.split_whitespace().map(str::to_owned).collect()
}

/// Parses several such lines, which are separated by commas.
fn parse_devices(lines: &str) -> Vec<AdvertisedDevice> {
    lines.split(", ").map(parsed).collect()
}

/// The ids of a resource's devices but those that are in use.
fn free(resource: &Resource, taken: &str) -> Vec<String> {
    let ids = resource
        .devices()
        .iter()
        .map(|device| device.id.to_string());
    let taken: Vec<&str> = taken.split_whitespace().collect();
    ids.filter(|id| !taken.contains(&&**id)).collect()
}

/// The choice among devices of which some are in use.
fn chosen(resource: &Resource, taken: &str, must: &str, size: usize) -> String {
    let free = free(resource, taken);
    let chosen = choose_devices(resource, &free, &ids(must), size);
    chosen.unwrap().join(" ")
}

#[test]
fn devices_that_go_well_together_are_chosen() {
    let by_numa = "a numa=0, b numa=1, c numa=0, d numa=1, e numa=1";
    let groups = "a group=x, b group=y, c group=x, d group=y, e group=x";
    let both = "a numa=0 group=x, b numa=1 group=y, c numa=0, d numa=1 group=y";
    let shares = "a0 share-of=a, a1 share-of=a, b0 share-of=b, b1 share-of=b, c0 share-of=c";
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
        let chosen = chosen(&resource(parse_devices(devices)), "", must, size);
        assert_eq!(chosen, wanted, "{size} of {devices} with {must:?}");
    }
}

#[test]
fn spread_devices_are_chosen_if_the_class_configures_it() {
    let by_numa = "a numa=0, b numa=0, c numa=0, d numa=1, e numa=1";
    let groups = "a numa=0 group=x, b numa=0 group=x, c numa=0 group=y, d numa=1 group=z, \
        e numa=1 group=z";
    let shares = "a0 share-of=a, a1 share-of=a, b0 share-of=b, b1 share-of=b, b2 share-of=b";
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
        let spread = placed(PlacementPolicy::Spread, parse_devices(devices));
        let chosen = chosen(&spread, taken, must, size);
        assert_eq!(chosen, wanted, "{size} of {devices} with {must:?}");
    }
}

/// NVIDIA's plugin distributes replicas, and packs whole GPUs.
#[test]
fn shares_are_spread_and_whole_devices_packed_if_the_class_configures_it() {
    let shares = "a0 share-of=a, a1 share-of=a, b0 share-of=b, b1 share-of=b";
    let wholes = "a numa=0, b numa=1, c numa=0, d numa=1";
    for (devices, wanted) in [(shares, "a0 b0"), (wholes, "a c")] {
        let resource = placed(PlacementPolicy::SpreadShares, parse_devices(devices));
        assert_eq!(chosen(&resource, "", "", 2), wanted);
    }
}

/// 8 GB of eight GPUs with 80 GB come from one GPU, and a partly used GPU is filled
/// before an unused one.
#[test]
fn shares_are_of_one_device_if_the_class_configures_it() {
    let gigabytes = |gpu: u32| (0..80).map(move |n| parsed(&format!("{gpu}::{n} share-of={gpu}")));
    let devices: Vec<AdvertisedDevice> = (0..8).flat_map(gigabytes).collect();
    let packed = resource(devices.clone());
    let properties = ResourceProperties {
        requires_one_device: true,
        ..ResourceProperties::clone(&packed.properties)
    };
    let memory = Resource::new(packed.name, Arc::new(properties), devices);
    let gpus = |taken: &str, must: &str, size: usize| -> BTreeSet<String> {
        let chosen = ids(&chosen(&memory, taken, must, size));
        assert_eq!(chosen.len(), size);
        let gpu = |id: &String| id.split_once(':').unwrap().0.to_owned();
        chosen.iter().map(gpu).collect()
    };
    let in_use = "6::1 6::2 6::3";
    assert_eq!(gpus("", "", 8).len(), 1);
    assert_eq!(gpus(in_use, "", 77), ["6".to_owned()].into());
    assert_ne!(gpus(in_use, "", 78), ["6".to_owned()].into());
    assert_eq!(gpus(in_use, "2::9", 8), ["2".to_owned()].into());
    for (must, size) in [("", 81), ("2::9 3::9", 3)] {
        let free = free(&memory, in_use);
        let refused = choose_devices(&memory, &free, &ids(must), size).unwrap_err();
        let wanted = "no single device has";
        assert!(refused.to_string().contains(wanted), "{refused}");
    }
}

#[test]
fn ten_thousand_shares_are_chosen_from_in_time() {
    let share = |n: u32| {
        let (hardware, numa, group) = (n / 10, n / 10 % 8, n / 10 % 125);
        let line = format!("s{n} share-of=h{hardware} numa={numa} group=g{group}");
        parsed(&line)
    };
    let devices: Vec<AdvertisedDevice> = (0..10_000).map(share).collect();
    for way in [PlacementPolicy::Packed, PlacementPolicy::Spread] {
        let devices = placed(way, devices.clone());
        let available = free(&devices, "");
        for size in [16, 5_000, 9_999] {
            let since = Instant::now();
            let chosen = choose_devices(&devices, &available, &[], size).unwrap();
            let took = since.elapsed();
            assert_eq!(chosen.len(), size);
            // The goal is 50 ms; a debug build on a busy machine gets more.
            assert!(took < Duration::from_secs(20), "{took:?}");
            println!("{size} of 10,000, {way:?}: {took:?}");
        }
    }
}

#[test]
fn many_nodes_and_groups_are_chosen_from_in_time() {
    for (count, groups) in [(400, 120), (4000, 240)] {
        let line = |n: u32| format!("d{n} numa={} group=g{}", n % 12, n * 7919 % groups);
        let devices = resource((0..count).map(|n| parsed(&line(n))).collect());
        let available = free(&devices, "");
        let since = Instant::now();
        let chosen = choose_devices(&devices, &available, &[], available.len() / 2).unwrap();
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
    let two = |class: &DeviceClass, taken: &str, must: &str| {
        let found = scan_recorded_host(std::slice::from_ref(class), &host).resources;
        chosen(found.values().next().unwrap(), taken, must, 2)
    };
    let must = "0000:22:00.0";
    assert_eq!(two(&class, "", ""), "0000:11:00.0 0000:21:00.0");
    assert_eq!(two(&class, "", must), "0000:12:00.0 0000:22:00.0");
    // The linked one is not free: the same switch.
    let chosen = two(&class, "0000:11:00.0", "0000:21:00.0");
    assert_eq!(chosen, "0000:21:00.0 0000:22:00.0");
    // Without links the switch decides.
    let mut without = class.clone();
    without.spec.device.links = None;
    assert_eq!(two(&without, "", ""), "0000:11:00.0 0000:12:00.0");
    assert_eq!(two(&without, "", must), "0000:21:00.0 0000:22:00.0");
}

#[test]
fn the_bus_decides_only_among_choices_that_are_equal_otherwise() {
    let bus = "bus=/sys/devices/pci0000:00/00";
    let devices = format!(
        "a numa=0 {bus}/10/a, b numa=0 {bus}/20/b, c numa=0 {bus}/10/c, d numa=1 {bus}/20/d, \
         e numa=0 {bus}/20/e"
    );
    let packed = resource(parse_devices(&devices));
    for (taken, must, size, wanted) in [
        ("", "", 2, "a c"),
        ("", "b", 2, "b e"),
        ("", "e", 3, "a b e"),
        ("", "", 4, "a b c e"),
        // Another node is needed in any case.
        ("", "d", 2, "b d"),
        // Not `b d`: they are below one switch, but of different nodes.
        ("c e", "", 2, "a b"),
    ] {
        let chosen = chosen(&packed, taken, must, size);
        assert_eq!(chosen, wanted, "{must} {size} without {taken}");
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
    let choose = |resource, must, size| chosen(resource, "", must, size);
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
    let devices = parse_devices(&format!(
        "a numa=0 {far}/1/a, b numa=0 {far}/2/b, c numa=1 {near}/c, d numa=1 {near}/d, \
         e numa=1 name=e peers=x"
    ));
    assert_eq!(choose(&resource(devices), "", 2), "a b");
}
