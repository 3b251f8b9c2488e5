//! Implements the placement that spreads a container's devices.
//!
//! The best choice uses each piece of hardware as few times as possible, then NUMA nodes as evenly
//! as possible, then groups as evenly as possible, then the hardware with the fewest shares in
//! use, then the first devices. Evenness is the sum of squares, to which each further share adds
//! more than the one before. Therefore the best choice results from repeatedly taking the share
//! that adds the least. With [`SpreadPriority::EvenUse`], the shares in use of each piece of hardware, by
//! any container, are made as even as possible before all of this.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// An available device or share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    /// The position of the device or share in the resource.
    pub(super) position: usize,
    /// The hardware number of the device or share.
    pub(super) hardware: usize,
    pub(super) numa: Option<u32>,
    pub(super) group: Option<&'a str>,
    pub(super) must: bool,
    /// The number of shares of the same device that other containers have.
    pub(super) used: usize,
}

/// A piece of hardware with its available shares.
struct Hardware<'a> {
    numa: Option<u32>,
    /// The NUMA node and the group. A device without a group is a group of its own.
    bin: (Option<u32>, Option<&'a str>, Option<usize>),
    /// The positions of shares that are not chosen yet, in reverse order.
    shares: Vec<usize>,
    /// The number of the device's shares that the container has.
    chosen: usize,
    /// The number of the device's shares that other containers have.
    used: usize,
}

/// The first criterion of the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpreadPriority {
    /// A container gets as few shares of each piece of hardware as possible.
    Apart,
    /// All devices have the same number of shares in use, by any container.
    EvenUse,
}

/// Chooses `size` candidates and returns their positions. There must be enough candidates.
pub(super) fn choose_shares(
    candidates: &[Candidate<'_>],
    size: usize,
    first: SpreadPriority,
) -> BTreeSet<usize> {
    let must = candidates.iter().filter(|candidate| candidate.must);
    let mut chosen: BTreeSet<usize> = must.map(|candidate| candidate.position).collect();
    let mut hardware = group_by_hardware(candidates);
    let nodes = number_keys(hardware.iter().map(|piece| piece.numa));
    let bins = number_keys(hardware.iter().map(|piece| piece.bin));
    // The number of chosen shares of each node and of each bin.
    let (mut on_node, mut in_bin) = (vec![0; hardware.len()], vec![0; hardware.len()]);
    for (at, piece) in hardware.iter().enumerate() {
        on_node[nodes[at]] += piece.chosen;
        in_bin[bins[at]] += piece.chosen;
    }
    let cost = |piece: &Hardware<'_>| {
        let in_use = match first {
            SpreadPriority::Apart => 0,
            SpreadPriority::EvenUse => piece.used + piece.chosen,
        };
        Some((in_use, piece.chosen, piece.used, *piece.shares.last()?))
    };
    // One queue orders the pieces of each bin, and another one the bins of each node by their
    // first pieces. A choice elsewhere changes neither order.
    let mut pieces: Vec<BinaryHeap<_>> = vec![BinaryHeap::new(); hardware.len()];
    let mut node_of_bin = vec![0; hardware.len()];
    for (at, piece) in hardware.iter().enumerate() {
        pieces[bins[at]].extend(cost(piece).map(|cost| Reverse((cost, at))));
        node_of_bin[bins[at]] = nodes[at];
    }
    let first_of_bin = |bin: usize, pieces: &[BinaryHeap<_>], in_bin: &[usize]| {
        let Reverse(((in_use, of_piece, used, share), at)) = *pieces[bin].peek()?;
        Some(Reverse(((in_use, of_piece, in_bin[bin], used, share), at)))
    };
    let mut queues: Vec<BinaryHeap<_>> = vec![BinaryHeap::new(); hardware.len()];
    for bin in 0..hardware.len() {
        queues[node_of_bin[bin]].extend(first_of_bin(bin, &pieces, &in_bin));
    }
    queues.retain(|queue| !queue.is_empty());
    while chosen.len() < size {
        let firsts = queues.iter_mut().filter_map(|queue| {
            let Reverse(((in_use, of_piece, bin, used, share), at)) = *queue.peek()?;
            let cost = (in_use, of_piece, on_node[nodes[at]], bin, used, share);
            Some((cost, at, queue))
        });
        let Some((_, at, queue)) = firsts.min_by_key(|(cost, ..)| *cost) else {
            break;
        };
        let (bin, piece) = (bins[at], &mut hardware[at]);
        chosen.extend(piece.shares.pop());
        piece.chosen += 1;
        on_node[nodes[at]] += 1;
        in_bin[bin] += 1;
        pieces[bin].pop();
        pieces[bin].extend(cost(piece).map(|cost| Reverse((cost, at))));
        queue.pop();
        queue.extend(first_of_bin(bin, &pieces, &in_bin));
    }
    chosen
}

fn group_by_hardware<'a>(candidates: &[Candidate<'a>]) -> Vec<Hardware<'a>> {
    let mut found: BTreeMap<usize, Hardware<'a>> = BTreeMap::new();
    for candidate in candidates.iter().rev() {
        let alone = candidate.group.is_none().then_some(candidate.hardware);
        let empty = || Hardware {
            numa: candidate.numa,
            bin: (candidate.numa, candidate.group, alone),
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

/// Assigns numbers from 0 to keys. Equal keys get the same number.
fn number_keys<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut numbers = BTreeMap::new();
    let number = |key| {
        let next = numbers.len();
        *numbers.entry(key).or_insert(next)
    };
    keys.map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::preferred::tests::Dice;

    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

    /// Up to eight candidates: hardware with shares, on nodes, in groups.
    fn candidates(dice: &mut Dice) -> Vec<Candidate<'static>> {
        let pieces = 1 + dice.below(8);
        let (nodes, groups) = (1 + dice.below(3), 1 + dice.below(4));
        let most = 1 + dice.below(2);
        let mut candidates = Vec::new();
        for hardware in 0..pieces {
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

    fn squares<K: Ord>(keys: impl Iterator<Item = K>) -> usize {
        let mut counts: BTreeMap<K, usize> = BTreeMap::new();
        keys.for_each(|key| *counts.entry(key).or_default() += 1);
        counts.values().map(|count| count * count).sum()
    }

    /// A device without a group is a group by itself.
    fn bin<'a>(candidate: &Candidate<'a>) -> (Option<u32>, Option<&'a str>, Option<usize>) {
        let alone = candidate.group.is_none().then_some(candidate.hardware);
        (candidate.numa, candidate.group, alone)
    }

    /// The cost to minimise, compared from the first number.
    fn cost(chosen: &[&Candidate<'_>]) -> Vec<usize> {
        vec![
            squares(chosen.iter().map(|candidate| candidate.hardware)),
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
                let positions = choose_shares(&all, size, SpreadPriority::Apart);
                let chosen: Vec<_> = positions.iter().map(|position| &all[*position]).collect();
                assert_eq!(cost(&chosen), costs.min().unwrap(), "{size} of {all:#?}");
            }
        }
    }
}
