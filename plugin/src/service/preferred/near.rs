//! Of choices that are equal for NUMA nodes, groups and shares, the one whose devices
//! are nearest to each other: by direct connections, then by the bus.

use std::collections::BTreeMap;

use device_class::discover::Connections;
use device_class::placement::Slot;

/// With more bins of one sort than this, the choice stays as it is.
const MAX_BINS: usize = 128;

/// What distinguishes bins: NUMA node and group, or one slot without a group.
type Key<'a> = (Option<u32>, Option<&'a str>, Option<usize>);

/// Slots of one group, or one slot without a group.
#[derive(Debug, Default)]
struct Bin {
    slots: Vec<usize>,
    free: usize,
    taken: usize,
    held: bool,
}

/// Exchanges bins that are taken whole for untouched ones of the same size on the same
/// NUMA node, where that brings the chosen devices together. What was chosen stays as
/// good in every other respect.
pub(super) fn bring_together(
    slots: &[Slot<'_>],
    connections: &[&Connections],
    taken: &mut [usize],
) {
    let mut bins: BTreeMap<Key<'_>, Bin> = BTreeMap::new();
    for (at, slot) in slots.iter().enumerate() {
        let alone = slot.group.is_none().then_some(at);
        let bin = bins.entry((slot.numa, slot.group, alone)).or_default();
        bin.slots.push(at);
        bin.free += slot.free;
        bin.taken += taken[at];
        bin.held |= slot.held;
    }
    // Bins that can stand in for each other.
    let mut sorts: BTreeMap<(Option<u32>, usize, usize), Vec<Bin>> = BTreeMap::new();
    for ((numa, ..), bin) in bins {
        let is_whole = bin.taken == 0 || bin.taken == bin.free;
        if is_whole && !bin.held && bin.free > 0 {
            let sort = (numa, bin.free, bin.slots.len());
            sorts.entry(sort).or_default().push(bin);
        }
    }
    for bins in sorts.into_values() {
        let wanted = bins.iter().filter(|bin| bin.taken > 0).count();
        if wanted == 0 || wanted == bins.len() || bins.len() > MAX_BINS {
            continue;
        }
        let is_here = |at: usize| bins.iter().any(|bin| bin.slots.contains(&at));
        let fixed =
            (0..slots.len()).filter(|at| (taken[*at] > 0 || slots[*at].held) && !is_here(*at));
        let fixed: Vec<usize> = fixed.collect();
        let near = nearest(&bins, &fixed, connections, wanted);
        for (number, bin) in bins.iter().enumerate() {
            for at in &bin.slots {
                taken[*at] = match near.contains(&number) {
                    true => slots[*at].free,
                    false => 0,
                };
            }
        }
    }
}

/// `wanted` bins that are near to each other and to the fixed slots: grown from each
/// bin in turn by the nearest one, and the best of these; of equal ones the first.
fn nearest(
    bins: &[Bin],
    fixed: &[usize],
    connections: &[&Connections],
    wanted: usize,
) -> Vec<usize> {
    let apart = |one: &[usize], other: &[usize]| -> usize {
        let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (*a, *b)));
        pairs
            .map(|(a, b)| connections[a].distance(connections[b]))
            .sum()
    };
    let to_fixed: Vec<usize> = bins.iter().map(|bin| apart(&bin.slots, fixed)).collect();
    let between: Vec<Vec<usize>> = bins
        .iter()
        .map(|one| {
            bins.iter()
                .map(|other| apart(&one.slots, &other.slots))
                .collect()
        })
        .collect();
    let grown = (0..bins.len()).map(|first| {
        let mut chosen = vec![first];
        let mut total = to_fixed[first];
        while chosen.len() < wanted {
            let rest = (0..bins.len()).filter(|bin| !chosen.contains(bin));
            let cost = |bin: usize| {
                to_fixed[bin]
                    + chosen
                        .iter()
                        .map(|other| between[bin][*other])
                        .sum::<usize>()
            };
            let Some((cost, next)) = rest.map(|bin| (cost(bin), bin)).min() else {
                break;
            };
            total += cost;
            chosen.push(next);
        }
        chosen.sort_unstable();
        (total, chosen)
    });
    grown.min().map(|(_, chosen)| chosen).unwrap_or_default()
}
