//! What the vendors' plugins choose.

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
        let resource = placed(Preference::SpreadShares, all.clone());
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
        let chosen = preferred(&resource, &free, &ids(must), size).unwrap();
        assert_eq!(chosen, ids(wanted), "{size} beside {taken} with {must}");
    }
}
