//! Improves a choice of devices so that they are closer to each other: by direct connections
//! first, then by the bus. The new choice is as good in NUMA nodes, groups and shares; only more
//! direct connections justify a different NUMA node.

use std::collections::BTreeMap;

use device_class::discover::Connections;

use super::placement::{Bins, Level, Slot};

/// The maximum number of equivalent bins that are compared. If there are more, the choice stays as
/// it is.
const MAX_BINS: usize = 128;

/// The maximum number of choices that are compared exhaustively. For 8 of 16 devices there are
/// 12,870.
const MAX_CHOICES: usize = 15_000;

/// The slots of one group, or a single slot without a group.
#[derive(Debug, Clone, Default)]
struct Bin {
    slots: Vec<usize>,
    free: usize,
    taken: usize,
    held: bool,
}

/// Exchanges bins that are taken completely for untouched bins of the same size on the same NUMA
/// node, if the chosen devices are then closer. The choice stays as good in every other respect. A
/// second pass also considers other NUMA nodes, and changes the choice only if its devices have
/// more direct connections.
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
    near.exchange_bins(taken, |numa| numa, |_, _| true);
    if connections.iter().any(|device| device.has_links()) {
        let has_more_links = |new: Cost, old: Cost| new[0] < old[0];
        near.exchange_bins(taken, |_| None, has_more_links);
    }
}

/// The cost of a choice, which is minimised. The numbers are compared in this order: the negated
/// bandwidth of direct connections, the number of pairs on different NUMA nodes, and the number of
/// PCI bridges between all pairs.
type Cost = [i64; 3];

fn sum_costs(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold(Cost::default(), |[a, b, c], [d, e, f]| {
        [a + d, b + e, c + f]
    })
}

/// Exchanges bins of devices for equivalent ones to lower the cost.
struct BinExchange<'a> {
    slots: &'a [Slot<'a>],
    bins: &'a Bins,
    connections: &'a [&'a Connections],
}

impl BinExchange<'_> {
    /// Exchanges bins if `is_better` holds for the new and the old cost. Bins are equivalent only
    /// if `node` maps their NUMA nodes to the same value.
    fn exchange_bins(
        &self,
        taken: &mut [usize],
        node: impl Fn(Option<u32>) -> Option<u32>,
        is_better: impl Fn(Cost, Cost) -> bool,
    ) {
        // The equivalent bins, by NUMA node, free units and number of slots.
        let mut equivalent_bins: BTreeMap<(Option<u32>, usize, usize), Vec<Bin>> = BTreeMap::new();
        let bins = self.collect_bins(taken);
        let is_exchanged = |bin: &Bin| bin.taken > 0 && bin.taken == bin.free && !bin.held;
        if !bins.iter().any(is_exchanged) {
            return;
        }
        for bin in bins {
            let is_whole = bin.taken == 0 || bin.taken == bin.free;
            if is_whole && !bin.held && bin.free > 0 {
                let numa = self.slots[bin.slots[0]].numa;
                let sort = (node(numa), bin.free, bin.slots.len());
                equivalent_bins.entry(sort).or_default().push(bin);
            }
        }
        for bins in equivalent_bins.into_values() {
            let present = (0..bins.len()).filter(|bin| bins[*bin].taken > 0);
            let present: Vec<usize> = present.collect();
            if present.is_empty() || present.len() == bins.len() || bins.len() > MAX_BINS {
                continue;
            }
            let is_here = |at: usize| bins.iter().any(|bin| bin.slots.contains(&at));
            let is_chosen = |at: usize| taken[at] > 0 || self.slots[at].held;
            let fixed = (0..self.slots.len()).filter(|at| is_chosen(*at) && !is_here(*at));
            let fixed: Vec<usize> = fixed.collect();
            let distances = self.measure_distances(&bins, &fixed);
            let (cost, near) = distances.find_cheapest(present.len());
            if !is_better(cost, distances.total_cost(&present)) {
                continue;
            }
            for (number, bin) in bins.iter().enumerate() {
                for at in &bin.slots {
                    taken[*at] = if near.contains(&number) {
                        self.slots[*at].free
                    } else {
                        0
                    };
                }
            }
        }
    }

    /// Returns the bins in the order of their numbers.
    fn collect_bins(&self, taken: &[usize]) -> Vec<Bin> {
        let mut bins: Vec<Bin> = vec![Bin::default(); self.slots.len()];
        for (at, slot) in self.slots.iter().enumerate() {
            let bin = &mut bins[self.bins.bin_number(at, Level::Group)];
            bin.slots.push(at);
            bin.free += slot.free;
            bin.taken += taken[at];
            bin.held |= slot.held;
        }
        bins.retain(|bin| !bin.slots.is_empty());
        bins
    }

    fn measure_distances(&self, bins: &[Bin], fixed: &[usize]) -> Distances {
        let apart = |one: &Bin, other: &[usize]| {
            let pairs = one
                .slots
                .iter()
                .flat_map(|a| other.iter().map(move |b| (*a, *b)));
            sum_costs(pairs.map(|(a, b)| self.pair_cost(a, b)))
        };
        let to_fixed = bins.iter().map(|bin| apart(bin, fixed)).collect();
        let to_others = |one: &Bin| bins.iter().map(|other| apart(one, &other.slots)).collect();
        Distances {
            to_fixed,
            between: bins.iter().map(to_others).collect(),
        }
    }

    fn pair_cost(&self, one: usize, other: usize) -> Cost {
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

/// The costs between each pair of bins, and between each bin and the slots that stay chosen.
struct Distances {
    to_fixed: Vec<Cost>,
    between: Vec<Vec<Cost>>,
}

impl Distances {
    /// Returns the cost of adding a bin to other bins.
    fn added_cost(&self, bin: usize, others: &[usize]) -> Cost {
        let others = others.iter().map(|other| self.between[bin][*other]);
        sum_costs(others.chain([self.to_fixed[bin]]))
    }

    fn total_cost(&self, bins: &[usize]) -> Cost {
        sum_costs((0..bins.len()).map(|at| self.added_cost(bins[at], &bins[..at])))
    }

    /// Returns the cheapest choice of `wanted` bins; of equal ones the first. If there are too
    /// many choices to compare, each bin is extended greedily by the cheapest others, and these
    /// results are compared.
    fn find_cheapest(&self, wanted: usize) -> (Cost, Vec<usize>) {
        let count = self.to_fixed.len();
        if count_choices(count, wanted) <= MAX_CHOICES {
            let mut best: Option<(Cost, Vec<usize>)> = None;
            self.search_all_choices(Cost::default(), &mut Vec::new(), wanted, &mut best);
            return best.unwrap_or_default();
        }
        let all = 0..count;
        let grown = all.clone().map(|first| {
            let mut chosen = vec![first];
            while chosen.len() < wanted {
                let rest = all.clone().filter(|bin| !chosen.contains(bin));
                let next = rest.min_by_key(|bin| (self.added_cost(*bin, &chosen), *bin));
                chosen.extend(next);
            }
            chosen.sort_unstable();
            (self.total_cost(&chosen), chosen)
        });
        grown.min().unwrap_or_default()
    }

    /// Tries every way to complete `chosen`, which has the cost `cost`, with later bins, and
    /// updates `best`.
    fn search_all_choices(
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
            let added = sum_costs([cost, self.added_cost(bin, chosen)].into_iter());
            chosen.push(bin);
            self.search_all_choices(added, chosen, wanted, best);
            chosen.pop();
        }
    }
}

/// Returns the number of ways to choose `wanted` of `count`, or some number above [`MAX_CHOICES`].
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
