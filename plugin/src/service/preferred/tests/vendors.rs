//! The choices of the vendors' plugins.

use super::*;

/// As NVIDIA's plugin with `distributed` (internal/rm/allocate.go): the next share is one of
/// the GPU of which the fewest are in use, and of equal ones of another GPU.
#[test]
fn shares_come_from_the_device_of_which_the_fewest_are_in_use() {
    let shares = ["a", "b"].iter().flat_map(|gpu| {
        let share = move |number| format!("{gpu}{number} numa=0 share-of={gpu}");
        (0..4).map(share)
    });
    let all: Vec<AdvertisedDevice> = shares.map(|line| parsed(&line)).collect();
    for (taken, must, size, wanted) in [
        ("", "", 2, "a0 b0"),
        ("b0", "", 2, "a0 b1"),
        ("a0 a1", "", 2, "b0 b1"),
        ("a0 a1", "", 3, "a2 b0 b1"),
        ("a0 a1", "a2", 3, "a2 b0 b1"),
        ("a0 a1", "b0", 2, "b0 b1"),
    ] {
        let resource = placed(PlacementPolicy::SpreadShares, all.clone());
        let chosen = chosen(&resource, taken, must, size);
        assert_eq!(chosen, wanted, "{size} beside {taken} with {must}");
    }
}

/// The choices of AMD's plugin for its own topologies (internal/pkg/allocator,
/// TestBestPolicyAllocator): eight GPUs in two fully linked halves; eight linked GPUs with
/// eight partitions each, of which the last has seven.
#[test]
fn partitions_and_linked_devices_are_chosen_as_by_the_vendors_plugin() {
    let whole = |gpu: usize| {
        let half = if gpu < 4 { "1,2,3,4" } else { "5,6,7,8" };
        let (numa, number) = (gpu / 4, gpu + 1);
        format!("t{number} numa={numa} group=g{gpu} name={number} peers={half}")
    };
    let wholes: Vec<String> = (0..8).map(whole).collect();
    let all: Vec<String> = (0..63).map(|node| format!("n{node}")).collect();
    let part = |node: usize| {
        let (gpu, numa, peers) = (node / 8, node / 32, all.join(","));
        let id = match node % 8 {
            0 => format!("t{}", gpu + 1),
            _ => format!("x{node}"),
        };
        format!("{id} numa={numa} group=g{gpu} name=n{node} peers={peers}")
    };
    let parts: Vec<String> = (0..63).map(part).collect();
    let latter = "t3 t4 t5 t6 t7 t8";
    let ten = "t5 x33 x34 x35 x36 x37 x38 x39 x58 x59";
    for (devices, available, taken, must, size, wanted) in [
        (&wholes, "", "", "", 1, "t1"),
        (&wholes, "", "", "", 3, "t1 t2 t3"),
        (&wholes, "", "", "", 5, "t1 t2 t3 t4 t5"),
        (&wholes, latter, "", "", 3, "t5 t6 t7"),
        (&parts, "", "", "", 1, "t8"),
        (&parts, "", "", "", 3, "t8 x57 x58"),
        (&parts, "", "", "", 5, "t8 x57 x58 x59 x60"),
        (&parts, latter, "", "", 3, "t5 t6 t7"),
        (&parts, latter, "", "t5", 3, "t5 t6 t7"),
        // The vendor's takes t1 and its parts, which are as near to each other.
        (&parts, "", "", "", 8, "t5 x33 x34 x35 x36 x37 x38 x39"),
        (&parts, "", "", "", 7, "t8 x57 x58 x59 x60 x61 x62"),
        (&parts, "", "t8 x57 x58", "", 4, "x59 x60 x61 x62"),
        (&parts, "", "t1 t2 t3 t4 t8 x57", "", 10, ten),
    ] {
        let resource = resource(devices.iter().map(|line| parsed(line)).collect());
        let mut free = free(&resource, taken);
        free.retain(|id| available.is_empty() || ids(available).contains(id));
        let chosen = choose_devices(&resource, &free, &ids(must), size).unwrap();
        assert_eq!(chosen, ids(wanted), "{size} beside {taken} with {must}");
    }
}

/// The NVLinks between the GPUs of a DGX-1 with V100, by GPU, as `nvidia-smi topo -m` prints
/// them (NV1, NV2).
const DGX_1: [[usize; 8]; 8] = [
    [0, 1, 1, 2, 2, 0, 0, 0],
    [1, 0, 2, 1, 0, 2, 0, 0],
    [1, 2, 0, 2, 0, 0, 1, 0],
    [2, 1, 2, 0, 0, 0, 0, 1],
    [2, 0, 0, 0, 0, 1, 1, 2],
    [0, 2, 0, 0, 1, 0, 2, 1],
    [0, 0, 1, 0, 1, 2, 0, 2],
    [0, 0, 0, 1, 2, 1, 2, 0],
];

/// As many links as NVIDIA's plugin finds (go-gpuallocator, best effort) or more: as many as
/// any choice has.
#[test]
fn no_choice_of_linked_devices_has_more_links() {
    let line = |gpu: usize| {
        let peers = (0..8).flat_map(|peer| vec![peer.to_string(); DGX_1[gpu][peer]]);
        let peers: Vec<String> = peers.collect();
        let numa = gpu / 4;
        format!(
            "{gpu} numa={numa} group=g{gpu} name={gpu} peers={}",
            peers.join(",")
        )
    };
    let mesh = resource((0..8).map(|gpu| parsed(&line(gpu))).collect());
    let links = |set: u32| -> usize {
        let has = |gpu: usize| set >> gpu & 1 == 1;
        let pairs = (0..8).flat_map(|one| (0..one).map(move |other| (one, other)));
        let pairs = pairs.filter(|(one, other)| has(*one) && has(*other));
        pairs.map(|(one, other)| DGX_1[one][other]).sum()
    };
    let names = |set: u32| -> Vec<String> {
        let gpus = (0..8).filter(|gpu| set >> gpu & 1 == 1);
        gpus.map(|gpu: u32| gpu.to_string()).collect()
    };
    for free in 1..1u32 << 8 {
        for must in [0, 1 << free.trailing_zeros()] {
            for size in 1..=free.count_ones() {
                let size = usize::try_from(size).unwrap();
                let chosen = choose_devices(&mesh, &names(free), &names(must), size).unwrap();
                let chosen = chosen.iter().map(|gpu| 1 << gpu.parse::<u32>().unwrap());
                let chosen: u32 = chosen.sum();
                let sets = (1..1u32 << 8).filter(|set| {
                    set & !free == 0 && must & !set == 0 && set.count_ones() as usize == size
                });
                let most = sets.map(links).max().unwrap();
                assert_eq!(
                    links(chosen),
                    most,
                    "{size} of {free:08b} with {must:08b}: {chosen:08b}"
                );
            }
        }
    }
}

/// A hop of XGMI less is more bandwidth: a ring of six GPUs.
#[test]
fn devices_with_fewer_hops_between_them_are_chosen() {
    let class = include_str!("../../../../../device-class/classes/amd-gpu.toml");
    let name = "amd-gpu".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, "amd-gpu.toml".as_ref(), class).unwrap();
    let host = include_str!("../../../../../device-class/testdata/amd-gpu/xgmi/host.txt");
    // All are linked, over two hops but for the pairs of the recorded host.
    let mut lines = Vec::new();
    let mut rest = host.lines().peekable();
    while let Some(line) = rest.next() {
        lines.push(line.to_owned());
        if line == "| type 2" {
            let from = rest.next().unwrap();
            let to = rest.next().unwrap();
            let weight = rest.next().unwrap();
            let is_cpu = to == "| node_to 0";
            if !is_cpu {
                lines.pop();
                lines.push("| type 11".to_owned());
            }
            lines.extend([from.to_owned(), to.to_owned()]);
            lines.push(if is_cpu { weight } else { "| weight 30" }.to_owned());
        }
    }
    let host = RecordedHost::parse(&(lines.join("\n") + "\n")).unwrap();
    let found = scan_recorded_host(std::slice::from_ref(&class), &host).resources;
    let resource = found.values().next().unwrap();
    assert_eq!(chosen(resource, "", "", 2), "0000:11:00.0 0000:21:00.0");
    assert_eq!(
        chosen(resource, "", "0000:22:00.0", 2),
        "0000:12:00.0 0000:22:00.0"
    );
}
