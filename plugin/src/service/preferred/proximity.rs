//! Improves a choice of devices, so that the devices are closer to each other. Direct links between
//! devices count first, then the distance on the bus. The new choice has as many NUMA nodes, groups
//! and shares as the old one. It uses a different NUMA node only if this gives more direct links.

use std::collections::BTreeMap;

use device_class::discover::Connections;

use super::placement::{Bins, CandidateDevice, TopologyLevel};

/// The maximum number of equivalent bins (groups of devices) that are compared with each other. If
/// there are more, the choice of these bins is not changed.
const MAX_COMPARED_BINS: usize = 128;

/// The maximum number of choices for which the search compares all of them. For example, there are
/// 12,870 choices of 8 devices out of 16.
const MAX_COMPARED_CHOICES: usize = 15_000;

/// Devices that are chosen or exchanged together: the devices of one group, or a single device that
/// has no group.
#[derive(Debug, Clone, Default)]
struct Bin {
    device_indices: Vec<usize>,
    free_units: usize,
    taken_units: usize,
    has_required_units: bool,
}

/// Exchanges bins (groups of devices) for others if the chosen devices are then closer to each
/// other. A completely taken bin is exchanged for an unused bin of the same size on the same NUMA
/// node. The choice stays as good in every other respect. A second pass also considers bins on
/// other NUMA nodes, and changes the choice only if its devices then have more direct links.
pub(super) fn improve_proximity(
    devices: &[CandidateDevice<'_>],
    bins: &Bins,
    connections: &[&Connections],
    taken_units: &mut [usize],
) {
    let exchange = BinExchange {
        devices,
        bins,
        connections,
    };
    exchange.exchange_bins(taken_units, |numa_node| numa_node, |_, _| true);
    if connections.iter().any(|device| device.has_links()) {
        let has_more_links = |new: Cost, old: Cost| new[0] < old[0];
        exchange.exchange_bins(taken_units, |_| None, has_more_links);
    }
}

/// The cost of a choice of devices, which is minimised. Its three numbers are the negated bandwidth
/// of direct links, the number of pairs on different NUMA nodes, and the number of PCI bridges
/// between all pairs. Costs are compared in this order.
type Cost = [i64; 3];

fn sum_costs(costs: impl Iterator<Item = Cost>) -> Cost {
    costs.fold(Cost::default(), |[a, b, c], [d, e, f]| {
        [a + d, b + e, c + f]
    })
}

/// Exchanges bins of devices for equivalent bins, to lower the cost of a choice.
struct BinExchange<'a> {
    devices: &'a [CandidateDevice<'a>],
    bins: &'a Bins,
    connections: &'a [&'a Connections],
}

impl BinExchange<'_> {
    /// Exchanges chosen bins for equivalent bins if `is_better(new_cost, old_cost)` is true. Two
    /// bins are equivalent only if `map_numa_node` maps their NUMA nodes to the same value.
    fn exchange_bins(
        &self,
        taken_units: &mut [usize],
        map_numa_node: impl Fn(Option<u32>) -> Option<u32>,
        is_better: impl Fn(Cost, Cost) -> bool,
    ) {
        // Groups the bins by mapped NUMA node, number of free units and number of devices. Bins
        // with the same key are equivalent.
        let mut equivalent_bins: BTreeMap<(Option<u32>, usize, usize), Vec<Bin>> = BTreeMap::new();
        let bins = self.collect_bins(taken_units);
        let is_exchangeable = |bin: &Bin| {
            bin.taken_units > 0 && bin.taken_units == bin.free_units && !bin.has_required_units
        };
        if !bins.iter().any(is_exchangeable) {
            return;
        }
        for bin in bins {
            let is_all_or_none = bin.taken_units == 0 || bin.taken_units == bin.free_units;
            if is_all_or_none && !bin.has_required_units && bin.free_units > 0 {
                let numa_node = self.devices[bin.device_indices[0]].numa_node;
                let key = (
                    map_numa_node(numa_node),
                    bin.free_units,
                    bin.device_indices.len(),
                );
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
            let is_in_bins =
                |index: usize| bins.iter().any(|bin| bin.device_indices.contains(&index));
            let is_chosen =
                |index: usize| taken_units[index] > 0 || self.devices[index].has_required_units;
            let fixed_indices =
                (0..self.devices.len()).filter(|index| is_chosen(*index) && !is_in_bins(*index));
            let fixed_indices: Vec<usize> = fixed_indices.collect();
            let bin_costs = self.compute_bin_costs(&bins, &fixed_indices);
            let (new_cost, new_bins) = bin_costs.find_cheapest_choice(chosen_bins.len());
            if !is_better(new_cost, bin_costs.compute_total_cost(&chosen_bins)) {
                continue;
            }
            for (number, bin) in bins.iter().enumerate() {
                for index in &bin.device_indices {
                    taken_units[*index] = if new_bins.contains(&number) {
                        self.devices[*index].free_units
                    } else {
                        0
                    };
                }
            }
        }
    }

    /// Returns one bin for each group of devices, and for each device that has no group. The order
    /// is that of the bin numbers.
    fn collect_bins(&self, taken_units: &[usize]) -> Vec<Bin> {
        let mut bins: Vec<Bin> = vec![Bin::default(); self.devices.len()];
        for (index, device) in self.devices.iter().enumerate() {
            let bin = &mut bins[self.bins.bin_number(index, TopologyLevel::Group)];
            bin.device_indices.push(index);
            bin.free_units += device.free_units;
            bin.taken_units += taken_units[index];
            bin.has_required_units |= device.has_required_units;
        }
        bins.retain(|bin| !bin.device_indices.is_empty());
        bins
    }

    fn compute_bin_costs(&self, bins: &[Bin], fixed_indices: &[usize]) -> BinCosts {
        let sum_pair_costs = |bin: &Bin, other_indices: &[usize]| {
            let pairs = bin.device_indices.iter().flat_map(|index| {
                other_indices
                    .iter()
                    .map(move |other_index| (*index, *other_index))
            });
            sum_costs(pairs.map(|(index, other_index)| self.compute_pair_cost(index, other_index)))
        };
        let fixed_device_costs = bins
            .iter()
            .map(|bin| sum_pair_costs(bin, fixed_indices))
            .collect();
        let to_bins = |bin: &Bin| {
            bins.iter()
                .map(|other_bin| sum_pair_costs(bin, &other_bin.device_indices))
                .collect()
        };
        BinCosts {
            fixed_device_costs,
            bin_pair_costs: bins.iter().map(to_bins).collect(),
        }
    }

    fn compute_pair_cost(&self, index: usize, other_index: usize) -> Cost {
        let (connections, other_connections) =
            (self.connections[index], self.connections[other_index]);
        let to_cost = |count: usize| i64::try_from(count).unwrap_or(i64::MAX / 1_000_000);
        let is_crossing = self.devices[index].numa_node != self.devices[other_index].numa_node;
        [
            -to_cost(connections.bandwidth(other_connections)),
            i64::from(is_crossing),
            to_cost(connections.distance(other_connections)),
        ]
    }
}

/// The costs of each pair of bins, and of each bin together with the fixed devices. A fixed device
/// is chosen, and belongs to none of the bins that can be exchanged.
struct BinCosts {
    fixed_device_costs: Vec<Cost>,
    bin_pair_costs: Vec<Vec<Cost>>,
}

impl BinCosts {
    /// Returns the cost that a bin adds if it is chosen in addition to `other_bins`.
    fn compute_added_cost(&self, bin: usize, other_bins: &[usize]) -> Cost {
        let pair_costs = other_bins
            .iter()
            .map(|other_bin| self.bin_pair_costs[bin][*other_bin]);
        sum_costs(pair_costs.chain([self.fixed_device_costs[bin]]))
    }

    fn compute_total_cost(&self, bins: &[usize]) -> Cost {
        sum_costs((0..bins.len()).map(|index| self.compute_added_cost(bins[index], &bins[..index])))
    }

    /// Returns the cheapest choice of `bin_count` bins with its cost, or the first of several
    /// equally cheap choices. If there are more than [`MAX_COMPARED_CHOICES`], compares only one
    /// choice for each bin. That choice begins with the bin, and always adds the bin with the least
    /// additional cost.
    fn find_cheapest_choice(&self, bin_count: usize) -> (Cost, Vec<usize>) {
        let total_count = self.fixed_device_costs.len();
        if count_choices(total_count, bin_count) <= MAX_COMPARED_CHOICES {
            let mut best_choice: Option<(Cost, Vec<usize>)> = None;
            self.search_all_choices(
                Cost::default(),
                &mut Vec::new(),
                bin_count,
                &mut best_choice,
            );
            return best_choice.unwrap_or_default();
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

    /// Tries every way to extend `chosen_bins` with later bins to `bin_count` bins. `cost` is the
    /// cost of `chosen_bins`. Updates `best_choice` whenever a complete choice is cheaper.
    fn search_all_choices(
        &self,
        cost: Cost,
        chosen_bins: &mut Vec<usize>,
        bin_count: usize,
        best_choice: &mut Option<(Cost, Vec<usize>)>,
    ) {
        if chosen_bins.len() == bin_count {
            if best_choice
                .as_ref()
                .is_none_or(|(best_cost, _)| cost < *best_cost)
            {
                *best_choice = Some((cost, chosen_bins.clone()));
            }
            return;
        }
        let missing_count = bin_count - chosen_bins.len();
        let first_bin = chosen_bins.last().map_or(0, |last_bin| last_bin + 1);
        for bin in first_bin..=self.fixed_device_costs.len() - missing_count {
            let new_cost = sum_costs([cost, self.compute_added_cost(bin, chosen_bins)].into_iter());
            chosen_bins.push(bin);
            self.search_all_choices(new_cost, chosen_bins, bin_count, best_choice);
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
