//! The choice of devices that are far apart.
//!
//! The best choice has, in this order: each piece of hardware as few times as possible,
//! NUMA nodes as even as possible, groups as even as possible, the hardware with the
//! fewest shares in use; of equal ones the first. Evenness is measured by the sum of
//! squares, to which each further share adds more than the one before: therefore the
//! best choice is found by repeatedly taking the share that adds the least.

use std::collections::{BTreeMap, BTreeSet};

/// One available device, or share of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    /// Its index in the resource.
    pub(super) position: usize,
    /// The hardware that it is, or is a share of.
    pub(super) hardware: &'a str,
    pub(super) numa: Option<u32>,
    pub(super) group: Option<&'a str>,
    /// Whether it must be chosen.
    pub(super) must: bool,
    /// How many shares of its hardware are not available.
    pub(super) used: usize,
}

/// A piece of hardware with its available shares.
struct Hardware<'a> {
    numa: Option<u32>,
    group: Option<&'a str>,
    /// Indices that are not chosen yet, the first one last.
    shares: Vec<usize>,
    /// How many of its shares the container has.
    chosen: usize,
    /// How many of its shares others have.
    used: usize,
}

impl Hardware<'_> {
    /// The better choice is less.
    fn rank(&self) -> Rank {
        let first = self.shares.last().copied().unwrap_or(usize::MAX);
        (self.used, first)
    }
}

/// Shares in use, and the index.
type Rank = (usize, usize);

/// How many shares of a node or a group are chosen already.
type Load = usize;

/// Hardware of one node and one group; or, without a group, one piece.
struct Bin {
    load: Load,
    free: BTreeSet<(Rank, usize)>,
}

impl Bin {
    fn rank(&self) -> Option<(Load, Rank)> {
        Some((self.load, self.free.first()?.0))
    }
}

#[derive(Default)]
struct Node {
    load: Load,
    bins: BTreeSet<((Load, Rank), usize)>,
}

impl Node {
    fn rank(&self) -> Option<(Load, (Load, Rank))> {
        Some((self.load, self.bins.first()?.0))
    }
}

/// The positions of `size` candidates, of which there are enough.
pub(super) fn choose(candidates: &[Candidate<'_>], size: usize) -> BTreeSet<usize> {
    let must = candidates.iter().filter(|candidate| candidate.must);
    let mut chosen: BTreeSet<usize> = must.map(|candidate| candidate.position).collect();
    let mut hardware = by_hardware(candidates);
    while chosen.len() < size {
        let rest = hardware.iter().filter(|piece| !piece.shares.is_empty());
        let Some(least) = rest.map(|piece| piece.chosen).min() else {
            break;
        };
        let wanted = size - chosen.len();
        chosen.extend(round(&mut hardware, least, wanted));
    }
    chosen
}

fn by_hardware<'a>(candidates: &[Candidate<'a>]) -> Vec<Hardware<'a>> {
    let mut found: BTreeMap<&str, Hardware<'a>> = BTreeMap::new();
    for candidate in candidates.iter().rev() {
        let empty = || Hardware {
            numa: candidate.numa,
            group: candidate.group,
            shares: Vec::new(),
            chosen: 0,
            used: candidate.used,
        };
        let piece = found.entry(candidate.hardware).or_insert_with(empty);
        if candidate.must {
            piece.chosen += 1;
        } else {
            piece.shares.push(candidate.position);
        }
    }
    found.into_values().collect()
}

/// Takes one share of at most `wanted` pieces of which `least` are chosen.
fn round(hardware: &mut [Hardware<'_>], least: usize, wanted: usize) -> Vec<usize> {
    let (mut bins, mut nodes) = arranged(hardware, least);
    let mut taken = Vec::new();
    while taken.len() < wanted {
        let best = nodes
            .iter()
            .filter_map(|(numa, node)| Some((node.rank()?, *numa)));
        let Some((_, numa)) = best.min() else {
            break;
        };
        let Some(node) = nodes.get_mut(&numa) else {
            break;
        };
        let Some((_, bin_at)) = node.bins.pop_first() else {
            break;
        };
        let bin = &mut bins[bin_at];
        if let Some((_, piece)) = bin.free.pop_first() {
            taken.extend(hardware[piece].shares.pop());
            hardware[piece].chosen += 1;
        }
        (bin.load, node.load) = (bin.load + 1, node.load + 1);
        node.bins.extend(bin.rank().map(|rank| (rank, bin_at)));
    }
    taken
}

/// The chosen shares of bins and nodes, and the free shares of the
/// hardware of which `least` are chosen.
fn arranged(hardware: &[Hardware<'_>], least: usize) -> (Vec<Bin>, BTreeMap<Option<u32>, Node>) {
    let mut places: BTreeMap<(Option<u32>, &str), usize> = BTreeMap::new();
    let mut homes: Vec<Option<u32>> = Vec::new();
    let mut bins: Vec<Bin> = Vec::new();
    let mut nodes: BTreeMap<Option<u32>, Node> = BTreeMap::new();
    for (index, piece) in hardware.iter().enumerate() {
        let new = bins.len();
        let group = piece.group.map(|group| (piece.numa, group));
        let place = group.map_or(new, |group| *places.entry(group).or_insert(new));
        if place == new {
            let free = BTreeSet::new();
            bins.push(Bin { load: 0, free });
            homes.push(piece.numa);
        }
        bins[place].load += piece.chosen;
        nodes.entry(piece.numa).or_default().load += piece.chosen;
        if piece.chosen == least && !piece.shares.is_empty() {
            bins[place].free.insert((piece.rank(), index));
        }
    }
    for (at, bin) in bins.iter().enumerate() {
        let node = nodes.entry(homes[at]).or_default();
        node.bins.extend(bin.rank().map(|rank| (rank, at)));
    }
    (bins, nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost to minimise, compared from the first number.
    type Cost = Vec<usize>;

    /// Pseudo-random numbers, the same each time (Knuth, MMIX).
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % end
        }
    }

    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

    /// Up to eight candidates: hardware with shares, on nodes, in groups.
    fn candidates(dice: &mut Dice) -> Vec<Candidate<'static>> {
        let pieces = 1 + dice.below(8);
        let (nodes, groups) = (1 + dice.below(3), 1 + dice.below(4));
        let most = 1 + dice.below(2);
        let mut candidates = Vec::new();
        for hardware in NAMES.iter().take(pieces) {
            let numa = (dice.below(4) > 0).then(|| u32::try_from(dice.below(nodes)).unwrap());
            let group = (dice.below(3) > 0).then(|| NAMES[dice.below(groups)]);
            let used = dice.below(3);
            for _ in 0..=dice.below(most) {
                let (position, must) = (candidates.len(), dice.below(6) == 0);
                candidates.push(Candidate {
                    position,
                    hardware,
                    numa,
                    group,
                    must,
                    used,
                });
            }
        }
        candidates.truncate(8);
        candidates
    }

    fn hardware<'a>(chosen: &[&Candidate<'a>]) -> BTreeMap<&'a str, usize> {
        chosen
            .iter()
            .fold(BTreeMap::new(), |mut counts, candidate| {
                *counts.entry(candidate.hardware).or_default() += 1;
                counts
            })
    }

    fn squares<K: Ord>(keys: impl Iterator<Item = K>) -> usize {
        let mut counts: BTreeMap<K, usize> = BTreeMap::new();
        keys.for_each(|key| *counts.entry(key).or_default() += 1);
        counts.values().map(|count| count * count).sum()
    }

    /// A device without a group is a group by itself.
    fn bin<'a>(candidate: &Candidate<'a>) -> (Option<u32>, Option<&'a str>, &'a str) {
        let alone = candidate.group.map_or(candidate.hardware, |_| "");
        (candidate.numa, candidate.group, alone)
    }

    fn cost(chosen: &[&Candidate<'_>]) -> Cost {
        vec![
            hardware(chosen).values().map(|count| count * count).sum(),
            squares(chosen.iter().map(|candidate| candidate.numa)),
            squares(chosen.iter().map(|candidate| bin(candidate))),
            chosen.iter().map(|candidate| candidate.used).sum(),
        ]
    }

    /// Compared with all possible choices, for small sets.
    #[test]
    fn no_choice_is_better_than_the_one_that_is_made() {
        let mut dice = Dice(6);
        for _ in 0..400 {
            let all = candidates(&mut dice);
            let must = all.iter().filter(|candidate| candidate.must).count();
            for size in must..=all.len() {
                let subset = |set: u32| -> Vec<&Candidate<'_>> {
                    let inside = |c: &&Candidate<'_>| set >> c.position & 1 == 1;
                    all.iter().filter(inside).collect()
                };
                let sets = (0u32..1 << all.len()).filter(|set| set.count_ones() as usize == size);
                let with_must = |chosen: &Vec<&Candidate<'_>>| {
                    chosen.iter().filter(|candidate| candidate.must).count() == must
                };
                let costs = sets
                    .map(subset)
                    .filter(with_must)
                    .map(|chosen| cost(&chosen));
                let positions = choose(&all, size);
                let chosen: Vec<_> = positions.iter().map(|position| &all[*position]).collect();
                assert_eq!(cost(&chosen), costs.min().unwrap(), "{size} of {all:#?}");
            }
        }
    }
}
