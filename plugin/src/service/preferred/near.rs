//! Improves a choice of devices, so that they are nearer to each other: by direct connections
//! first, then by the bus. The improved choice is as good for NUMA nodes, groups and shares.
//! Only direct connections outweigh a NUMA node.

use std::collections::BTreeMap;

use device_class::discover::Connections;

use super::placement::{Bins, Level, Slot};

/// The maximum number of interchangeable bins. With more of them the choice is not changed.
const MAX_BINS: usize = 128;

/// The largest number of choices of which each is compared: all halves of 16 devices are
/// 12,870.
const MAX_CHOICES: usize = 15_000;

/// The slots of one group, or one slot without a group.
#[derive(Debug, Clone, Default)]
struct Bin {
    slots: Vec<usize>,
    free: usize,
    taken: usize,
    held: bool,
}

/// Exchanges bins that are taken whole for untouched ones of the same size on the same
/// NUMA node, if the chosen devices are then nearer to each other. The choice stays as
/// good in every other respect. Then, if devices of other nodes have more direct
/// connections with each other, these are taken.
pub(super) fn bring_together(
    slots: &[Slot<'_>],
    bins: &Bins,
    connections: &[&Connections],
    taken: &mut [usize],
) {
    let near = BinExchange {
        slots,
        bins,
        connections,
    };
    near.exchange(taken, |numa| numa, |_, _| true);
    if connections.iter().any(|device| device.has_links()) {
        let has_more_links = |new: Cost, old: Cost| new[0] < old[0];
        near.exchange(taken, |_| None, has_more_links);
    }
}

/// The cost to minimise, compared from the first number: the bandwidth of direct connections,
/// negative; pairs on different NUMA nodes; bridges between all of them.
type Cost = [i64; 3];

fn sum(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold(Cost::default(), |[a, b, c], [d, e, f]| {
        [a + d, b + e, c + f]
    })
}

/// Exchanges bins of devices for equivalent ones, to lower the cost.
struct BinExchange<'a> {
    slots: &'a [Slot<'a>],
    bins: &'a Bins,
    connections: &'a [&'a Connections],
}

impl BinExchange<'_> {
    /// Exchanges bins whose NUMA nodes are the same to `node`, if the new cost
    /// `is_better` than the old one.
    fn exchange(
        &self,
        taken: &mut [usize],
        node: impl Fn(Option<u32>) -> Option<u32>,
        is_better: impl Fn(Cost, Cost) -> bool,
    ) {
        // The bins by what makes them equivalent to each other.
        let mut sorts: BTreeMap<(Option<u32>, usize, usize), Vec<Bin>> = BTreeMap::new();
        let bins = self.bins(taken);
        let is_exchanged = |bin: &Bin| bin.taken > 0 && bin.taken == bin.free && !bin.held;
        if !bins.iter().any(is_exchanged) {
            return;
        }
        for bin in bins {
            let is_whole = bin.taken == 0 || bin.taken == bin.free;
            if is_whole && !bin.held && bin.free > 0 {
                let numa = self.slots[bin.slots[0]].numa;
                let sort = (node(numa), bin.free, bin.slots.len());
                sorts.entry(sort).or_default().push(bin);
            }
        }
        for bins in sorts.into_values() {
            let present = (0..bins.len()).filter(|bin| bins[*bin].taken > 0);
            let present: Vec<usize> = present.collect();
            if present.is_empty() || present.len() == bins.len() || bins.len() > MAX_BINS {
                continue;
            }
            let is_here = |at: usize| bins.iter().any(|bin| bin.slots.contains(&at));
            let is_chosen = |at: usize| taken[at] > 0 || self.slots[at].held;
            let fixed = (0..self.slots.len()).filter(|at| is_chosen(*at) && !is_here(*at));
            let fixed: Vec<usize> = fixed.collect();
            let distances = self.distances(&bins, &fixed);
            let (cost, near) = distances.nearest(present.len());
            if !is_better(cost, distances.cost(&present)) {
                continue;
            }
            for (number, bin) in bins.iter().enumerate() {
                for at in &bin.slots {
                    taken[*at] = match near.contains(&number) {
                        true => self.slots[*at].free,
                        false => 0,
                    };
                }
            }
        }
    }

    /// Returns the groups, and the slots without a group, in the order of their numbers.
    fn bins(&self, taken: &[usize]) -> Vec<Bin> {
        let mut bins: Vec<Bin> = vec![Bin::default(); self.slots.len()];
        for (at, slot) in self.slots.iter().enumerate() {
            let bin = &mut bins[self.bins.number(at, Level::Group)];
            bin.slots.push(at);
            bin.free += slot.free;
            bin.taken += taken[at];
            bin.held |= slot.held;
        }
        bins.retain(|bin| !bin.slots.is_empty());
        bins
    }

    fn distances(&self, bins: &[Bin], fixed: &[usize]) -> Distances {
        let apart = |one: &Bin, other: &[usize]| {
            let pairs = one
                .slots
                .iter()
                .flat_map(|a| other.iter().map(move |b| (*a, *b)));
            sum(pairs.map(|(a, b)| self.pair(a, b)))
        };
        let to_fixed = bins.iter().map(|bin| apart(bin, fixed)).collect();
        let to_others = |one: &Bin| bins.iter().map(|other| apart(one, &other.slots)).collect();
        Distances {
            to_fixed,
            between: bins.iter().map(to_others).collect(),
        }
    }

    fn pair(&self, one: usize, other: usize) -> Cost {
        let (device, other_device) = (self.connections[one], self.connections[other]);
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 1_000_000);
        let is_crossing = self.slots[one].numa != self.slots[other].numa;
        [
            -number(device.bandwidth(other_device)),
            i64::from(is_crossing),
            number(device.distance(other_device)),
        ]
    }
}

/// The distances of bins from the slots that are chosen in any case, and from each other.
struct Distances {
    to_fixed: Vec<Cost>,
    between: Vec<Vec<Cost>>,
}

impl Distances {
    /// Returns the cost of adding a bin to other bins.
    fn added(&self, bin: usize, others: &[usize]) -> Cost {
        let others = others.iter().map(|other| self.between[bin][*other]);
        sum(others.chain([self.to_fixed[bin]]))
    }

    fn cost(&self, bins: &[usize]) -> Cost {
        sum((0..bins.len()).map(|at| self.added(bins[at], &bins[..at])))
    }

    /// Returns the `wanted` bins that are nearest to each other and to the fixed slots; of equal
    /// ones the first. If there are too many choices to compare all, each bin in turn is
    /// extended by the nearest ones, and these are compared.
    fn nearest(&self, wanted: usize) -> (Cost, Vec<usize>) {
        let count = self.to_fixed.len();
        if count_choices(count, wanted) <= MAX_CHOICES {
            let mut best: Option<(Cost, Vec<usize>)> = None;
            self.compare_all(Cost::default(), &mut Vec::new(), wanted, &mut best);
            return best.unwrap_or_default();
        }
        let all = 0..count;
        let grown = all.clone().map(|first| {
            let mut chosen = vec![first];
            while chosen.len() < wanted {
                let rest = all.clone().filter(|bin| !chosen.contains(bin));
                let next = rest.min_by_key(|bin| (self.added(*bin, &chosen), *bin));
                chosen.extend(next);
            }
            chosen.sort_unstable();
            (self.cost(&chosen), chosen)
        });
        grown.min().unwrap_or_default()
    }

    /// Compares each way to add later bins to `chosen`, whose cost is `cost`, with the best one.
    fn compare_all(
        &self,
        cost: Cost,
        chosen: &mut Vec<usize>,
        wanted: usize,
        best: &mut Option<(Cost, Vec<usize>)>,
    ) {
        if chosen.len() == wanted {
            if best.as_ref().is_none_or(|(known, _)| cost < *known) {
                *best = Some((cost, chosen.clone()));
            }
            return;
        }
        let missing = wanted - chosen.len();
        let first = chosen.last().map_or(0, |last| last + 1);
        for bin in first..=self.to_fixed.len() - missing {
            let added = sum([cost, self.added(bin, chosen)].into_iter());
            chosen.push(bin);
            self.compare_all(added, chosen, wanted, best);
            chosen.pop();
        }
    }
}

/// The number of ways to choose `wanted` of `count`, or a larger number than [`MAX_CHOICES`].
fn count_choices(count: usize, wanted: usize) -> usize {
    let mut choices: usize = 1;
    for taken in 0..wanted.min(count - wanted) {
        choices = choices * (count - taken) / (taken + 1);
        if choices > MAX_CHOICES {
            break;
        }
    }
    choices
}
