//! The choice of what is near each other.
//!
//! Of all choices the best has, in this order: the most different pieces of
//! hardware, the fewest NUMA nodes, the fewest groups, the fewest devices left
//! over in groups and then in nodes that it breaks into; and then comes what
//! stands first. A node and a group in it make a bin, and bins are what is
//! searched: their number is small, whatever the number of devices.

use std::collections::{BTreeMap, BTreeSet};

use super::bins;
use super::candidate::Candidate;

/// A piece of hardware with its available shares.
struct Hardware<'a> {
    numa: Option<u32>,
    group: Option<&'a str>,
    /// Places that are not chosen yet, the first one last.
    shares: Vec<usize>,
    taken: bool,
}

/// More nodes than these are not tried in every combination.
const MAX_NODES: usize = 12;

/// As many steps are made for all combinations together.
const MAX_STEPS_OF_ALL: usize = 5 * bins::MAX_STEPS;

/// The positions of `size` candidates, of which there are enough.
pub(super) fn choose(candidates: &[Candidate<'_>], size: usize) -> BTreeSet<usize> {
    let must = candidates.iter().filter(|candidate| candidate.must);
    let mut chosen: BTreeSet<usize> = must.map(|candidate| candidate.position).collect();
    let mut hardware = by_hardware(candidates);
    let wanted = size.saturating_sub(chosen.len());
    let free = hardware.iter().filter(|piece| !piece.taken).count();
    for index in best(&hardware, wanted.min(free)) {
        hardware[index].taken = true;
        chosen.extend(hardware[index].shares.pop());
    }
    // Only when there is not enough hardware: further shares, in turn.
    while chosen.len() < size {
        let before = chosen.len();
        for piece in &mut hardware {
            if chosen.len() < size {
                chosen.extend(piece.shares.pop());
            }
        }
        if chosen.len() == before {
            break;
        }
    }
    chosen
}

/// What has the most free shares comes first: load is spread.
fn by_hardware<'a>(candidates: &[Candidate<'a>]) -> Vec<Hardware<'a>> {
    let mut found: BTreeMap<&str, Hardware<'a>> = BTreeMap::new();
    for candidate in candidates.iter().rev() {
        let Candidate { numa, group, .. } = *candidate;
        let empty = || Hardware {
            numa,
            group,
            shares: Vec::new(),
            taken: false,
        };
        let piece = found.entry(candidate.hardware).or_insert_with(empty);
        if candidate.must {
            piece.taken = true;
        } else {
            piece.shares.push(candidate.position);
        }
    }
    let mut hardware: Vec<_> = found.into_values().collect();
    hardware.sort_by_key(|piece| {
        (
            std::cmp::Reverse(piece.shares.len()),
            piece.shares.last().copied(),
        )
    });
    hardware
}

/// The indices of `wanted` pieces that are not taken and go well with those
/// that are.
fn best(hardware: &[Hardware<'_>], wanted: usize) -> Vec<usize> {
    // Bins that are in use already cost nothing.
    let taken = || hardware.iter().filter(|piece| piece.taken);
    let nodes_in_use: BTreeSet<_> = taken().map(|piece| piece.numa).collect();
    let groups_in_use: BTreeSet<_> = taken()
        .filter_map(|piece| Some((piece.numa, piece.group?)))
        .collect();
    let bins = make_bins(hardware);
    let free = |bin: &Bin<'_>| {
        bin.group
            .is_some_and(|group| groups_in_use.contains(&(bin.numa, group)))
    };
    let mut chosen: Vec<usize> = bins
        .iter()
        .filter(|bin| free(bin))
        .flat_map(|bin| &bin.members)
        .copied()
        .collect();
    chosen.truncate(wanted);
    let wanted = wanted - chosen.len();
    if wanted == 0 {
        return chosen;
    }
    let bins: Vec<Bin<'_>> = bins.into_iter().filter(|bin| !free(bin)).collect();
    let sets = node_sets(&bins, &nodes_in_use, wanted);
    // Nobody else is answered meanwhile: many sets share the time of a few.
    let steps = bins::MAX_STEPS.min(MAX_STEPS_OF_ALL / sets.len().max(1));
    let choices = sets.into_iter().filter_map(|nodes| {
        let usable: Vec<&Bin<'_>> = bins
            .iter()
            .filter(|bin| nodes.contains(&bin.numa))
            .collect();
        let sizes: Vec<usize> = usable.iter().map(|bin| bin.members.len()).collect();
        let picked = bins::fewest(&sizes, wanted, steps)?;
        let in_bins: usize = picked.iter().map(|bin| sizes[*bin]).sum();
        let in_nodes: usize = sizes.iter().sum();
        let members = picked.iter().flat_map(|bin| &usable[*bin].members).copied();
        Some((
            (picked.len(), in_bins, in_nodes),
            members.take(wanted).collect::<Vec<_>>(),
        ))
    });
    chosen.extend(
        choices
            .min_by_key(|(cost, _)| *cost)
            .map(|(_, members)| members)
            .unwrap_or_default(),
    );
    chosen
}

/// Hardware of one node and one group.
struct Bin<'a> {
    numa: Option<u32>,
    group: Option<&'a str>,
    members: Vec<usize>,
}

/// What has no group is a bin by itself.
fn make_bins<'a>(hardware: &[Hardware<'a>]) -> Vec<Bin<'a>> {
    let mut places: BTreeMap<(Option<u32>, &str), usize> = BTreeMap::new();
    let mut bins: Vec<Bin<'a>> = Vec::new();
    for (index, piece) in hardware
        .iter()
        .enumerate()
        .filter(|(_, piece)| !piece.taken)
    {
        let (numa, group) = (piece.numa, piece.group);
        let new = bins.len();
        let place = group.map_or(new, |group| *places.entry((numa, group)).or_insert(new));
        if place == new {
            bins.push(Bin {
                numa,
                group,
                members: Vec::new(),
            });
        }
        bins[place].members.push(index);
    }
    bins
}

type Nodes = BTreeSet<Option<u32>>;

/// The smallest sets of nodes that hold enough, with those that are in use
/// anyway: all such sets, or one where there are very many nodes.
fn node_sets(bins: &[Bin<'_>], in_use: &Nodes, wanted: usize) -> Vec<Nodes> {
    let mut sizes: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    for bin in bins {
        *sizes.entry(bin.numa).or_default() += bin.members.len();
    }
    let held: usize = sizes
        .iter()
        .filter(|(node, _)| in_use.contains(node))
        .map(|(_, size)| size)
        .sum();
    let mut others: Vec<(Option<u32>, usize)> = sizes
        .into_iter()
        .filter(|(node, _)| !in_use.contains(node))
        .collect();
    others.sort_by_key(|(node, size)| (std::cmp::Reverse(*size), *node));
    let mut sum = held;
    let largest = others.iter().take_while(|(_, size)| {
        let more = sum < wanted;
        sum += size;
        more
    });
    let fewest = largest.count();
    let with = |extra: &mut dyn Iterator<Item = Option<u32>>| {
        in_use.iter().copied().chain(extra).collect()
    };
    if others.len() > MAX_NODES {
        return vec![with(&mut others.iter().take(fewest).map(|(node, _)| *node))];
    }
    let sets = (0u32..1 << others.len()).filter(|set| set.count_ones() as usize == fewest);
    let chosen = |set: u32| {
        others
            .iter()
            .enumerate()
            .filter(move |(at, _)| set >> at & 1 == 1)
    };
    let enough =
        sets.filter(|set| held + chosen(*set).map(|(_, (_, size))| size).sum::<usize>() >= wanted);
    enough
        .map(|set| with(&mut chosen(set).map(|(_, (node, _))| *node)))
        .collect()
}
