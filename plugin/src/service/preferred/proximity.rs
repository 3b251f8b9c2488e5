//! Improves a choice of devices, so that the devices are closer to each other: by direct links
//! first, then by the bus. The new choice is as good as the old one in NUMA nodes, groups and
//! shares. Only more direct links justify a different NUMA node.

use std::collections::BTreeMap;

use device_class::discover::Connections;

use super::placement::{Bins, Level, Slot};

/// The maximum number of equivalent bins that are compared. If there are more, the choice is not
/// changed.
const MAX_COMPARED_BINS: usize = 128;

/// The maximum number of choices that are all compared. There are 12,870 choices of 8 devices out
/// of 16.
const MAX_COMPARED_CHOICES: usize = 15_000;

/// The slots of one group, or a single slot without a group.
#[derive(Debug, Clone, Default)]
struct Bin {
    slots: Vec<usize>,
    free_units: usize,
    taken_units: usize,
    is_held: bool,
}

/// Exchanges bins that are taken completely for unused bins of the same size on the same NUMA node,
/// if the chosen devices are then closer to each other. The choice stays as good in every other
/// respect. A second pass also considers bins on other NUMA nodes, and changes the choice only if
/// its devices then have more direct links.
pub(super) fn bring_devices_together(
    slots: &[Slot<'_>],
    bins: &Bins,
    connections: &[&Connections],
    taken_units: &mut [usize],
) {
    let exchange = BinExchange {
        slots,
        bins,
        connections,
    };
    exchange.exchange_bins(taken_units, |numa_node| numa_node, |_, _| true);
    if connections.iter().any(|device| device.has_links()) {
        let has_more_links = |new: Cost, old: Cost| new[0] < old[0];
        exchange.exchange_bins(taken_units, |_| None, has_more_links);
    }
}

/// The cost of a choice, which is minimised. It consists of the negated bandwidth of direct links,
/// the number of pairs on different NUMA nodes, and the number of PCI bridges between all pairs.
/// Costs are compared in this order.
type Cost = [i64; 3];

fn sum_costs(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold(Cost::default(), |[a, b, c], [d, e, f]| {
        [a + d, b + e, c + f]
    })
}

/// The data for exchanging bins of devices for equivalent bins, to lower the cost of a choice.
struct BinExchange<'a> {
    slots: &'a [Slot<'a>],
    bins: &'a Bins,
    connections: &'a [&'a Connections],
}

impl BinExchange<'_> {
    /// Exchanges bins if `is_better` returns true for the new and the old cost. Two bins are
    /// equivalent only if `map_node` maps their NUMA nodes to the same value.
    fn exchange_bins(
        &self,
        taken_units: &mut [usize],
        map_node: impl Fn(Option<u32>) -> Option<u32>,
        is_better: impl Fn(Cost, Cost) -> bool,
    ) {
        // The bins by their mapped NUMA node, number of free units and number of slots. Bins with
        // the same key are equivalent.
        let mut equivalent_bins: BTreeMap<(Option<u32>, usize, usize), Vec<Bin>> = BTreeMap::new();
        let bins = self.collect_bins(taken_units);
        let is_exchangeable =
            |bin: &Bin| bin.taken_units > 0 && bin.taken_units == bin.free_units && !bin.is_held;
        if !bins.iter().any(is_exchangeable) {
            return;
        }
        for bin in bins {
            let is_all_or_none = bin.taken_units == 0 || bin.taken_units == bin.free_units;
            if is_all_or_none && !bin.is_held && bin.free_units > 0 {
                let numa_node = self.slots[bin.slots[0]].numa_node;
                let key = (map_node(numa_node), bin.free_units, bin.slots.len());
                equivalent_bins.entry(key).or_default().push(bin);
            }
        }
        for bins in equivalent_bins.into_values() {
            let chosen_bins = (0..bins.len()).filter(|bin| bins[*bin].taken_units > 0);
            let chosen_bins: Vec<usize> = chosen_bins.collect();
            if chosen_bins.is_empty()
                || chosen_bins.len() == bins.len()
                || bins.len() > MAX_COMPARED_BINS
            {
                continue;
            }
            let is_in_bins = |index: usize| bins.iter().any(|bin| bin.slots.contains(&index));
            let is_chosen = |index: usize| taken_units[index] > 0 || self.slots[index].is_held;
            let fixed_slots =
                (0..self.slots.len()).filter(|index| is_chosen(*index) && !is_in_bins(*index));
            let fixed_slots: Vec<usize> = fixed_slots.collect();
            let distances = self.measure_distances(&bins, &fixed_slots);
            let (new_cost, new_bins) = distances.find_cheapest(chosen_bins.len());
            if !is_better(new_cost, distances.compute_total_cost(&chosen_bins)) {
                continue;
            }
            for (number, bin) in bins.iter().enumerate() {
                for index in &bin.slots {
                    taken_units[*index] = if new_bins.contains(&number) {
                        self.slots[*index].free_units
                    } else {
                        0
                    };
                }
            }
        }
    }

    /// Returns the groups as bins, in the order of their bin numbers.
    fn collect_bins(&self, taken_units: &[usize]) -> Vec<Bin> {
        let mut bins: Vec<Bin> = vec![Bin::default(); self.slots.len()];
        for (index, slot) in self.slots.iter().enumerate() {
            let bin = &mut bins[self.bins.bin_number(index, Level::Group)];
            bin.slots.push(index);
            bin.free_units += slot.free_units;
            bin.taken_units += taken_units[index];
            bin.is_held |= slot.is_held;
        }
        bins.retain(|bin| !bin.slots.is_empty());
        bins
    }

    fn measure_distances(&self, bins: &[Bin], fixed_slots: &[usize]) -> Distances {
        let sum_pair_costs = |bin: &Bin, other_slots: &[usize]| {
            let pairs = bin
                .slots
                .iter()
                .flat_map(|a| other_slots.iter().map(move |b| (*a, *b)));
            sum_costs(pairs.map(|(a, b)| self.compute_pair_cost(a, b)))
        };
        let to_fixed_slots = bins
            .iter()
            .map(|bin| sum_pair_costs(bin, fixed_slots))
            .collect();
        let to_bins = |bin: &Bin| {
            bins.iter()
                .map(|other| sum_pair_costs(bin, &other.slots))
                .collect()
        };
        Distances {
            to_fixed_slots,
            between_bins: bins.iter().map(to_bins).collect(),
        }
    }

    fn compute_pair_cost(&self, one: usize, other: usize) -> Cost {
        let (device, other_device) = (self.connections[one], self.connections[other]);
        let to_cost = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 1_000_000);
        let is_crossing = self.slots[one].numa_node != self.slots[other].numa_node;
        [
            -to_cost(device.bandwidth(other_device)),
            i64::from(is_crossing),
            to_cost(device.distance(other_device)),
        ]
    }
}

/// The costs between each pair of bins, and between each bin and the slots that remain chosen in
/// any case.
struct Distances {
    to_fixed_slots: Vec<Cost>,
    between_bins: Vec<Vec<Cost>>,
}

impl Distances {
    /// Returns the cost that a bin adds to a choice with the bins `other_bins`.
    fn compute_added_cost(&self, bin: usize, other_bins: &[usize]) -> Cost {
        let pair_costs = other_bins
            .iter()
            .map(|other_bin| self.between_bins[bin][*other_bin]);
        sum_costs(pair_costs.chain([self.to_fixed_slots[bin]]))
    }

    fn compute_total_cost(&self, bins: &[usize]) -> Cost {
        sum_costs((0..bins.len()).map(|index| self.compute_added_cost(bins[index], &bins[..index])))
    }

    /// Returns the cheapest choice of `bin_count` bins with its cost. Of equally cheap choices the
    /// first one is returned. If there are too many choices to compare, each bin is extended
    /// greedily by the bins that add the least cost, and only these choices are compared.
    fn find_cheapest(&self, bin_count: usize) -> (Cost, Vec<usize>) {
        let total_count = self.to_fixed_slots.len();
        if count_choices(total_count, bin_count) <= MAX_COMPARED_CHOICES {
            let mut best: Option<(Cost, Vec<usize>)> = None;
            self.search_all_choices(Cost::default(), &mut Vec::new(), bin_count, &mut best);
            return best.unwrap_or_default();
        }
        let all_bins = 0..total_count;
        let greedy_choices = all_bins.clone().map(|first_bin| {
            let mut chosen_bins = vec![first_bin];
            while chosen_bins.len() < bin_count {
                let other_bins = all_bins.clone().filter(|bin| !chosen_bins.contains(bin));
                let next_bin = other_bins
                    .min_by_key(|bin| (self.compute_added_cost(*bin, &chosen_bins), *bin));
                chosen_bins.extend(next_bin);
            }
            chosen_bins.sort_unstable();
            (self.compute_total_cost(&chosen_bins), chosen_bins)
        });
        greedy_choices.min().unwrap_or_default()
    }

    /// Tries every way to complete the bins `chosen_bins` with later bins to `bin_count` bins. `cost` is
    /// the cost of `chosen_bins`. Updates `best` whenever a complete choice is cheaper.
    fn search_all_choices(
        &self,
        cost: Cost,
        chosen_bins: &mut Vec<usize>,
        bin_count: usize,
        best: &mut Option<(Cost, Vec<usize>)>,
    ) {
        if chosen_bins.len() == bin_count {
            if best.as_ref().is_none_or(|(best_cost, _)| cost < *best_cost) {
                *best = Some((cost, chosen_bins.clone()));
            }
            return;
        }
        let missing_count = bin_count - chosen_bins.len();
        let first_bin = chosen_bins.last().map_or(0, |last_bin| last_bin + 1);
        for bin in first_bin..=self.to_fixed_slots.len() - missing_count {
            let new_cost = sum_costs([cost, self.compute_added_cost(bin, chosen_bins)].into_iter());
            chosen_bins.push(bin);
            self.search_all_choices(new_cost, chosen_bins, bin_count, best);
            chosen_bins.pop();
        }
    }
}

/// Returns the number of ways to choose `chosen_count` items out of `total_count`, or any number
/// above [`MAX_COMPARED_CHOICES`] if there are more.
fn count_choices(total_count: usize, chosen_count: usize) -> usize {
    let mut choices: usize = 1;
    for factor_index in 0..chosen_count.min(total_count - chosen_count) {
        choices = choices * (total_count - factor_index) / (factor_index + 1);
        if choices > MAX_COMPARED_CHOICES {
            break;
        }
    }
    choices
}
