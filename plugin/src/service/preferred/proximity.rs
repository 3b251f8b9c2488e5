//! Improves a choice of devices, so that the devices are closer to each other. Direct links between
//! devices count first, then the distance on the bus. The new choice has as many NUMA nodes, groups
//! and shares as the old one. It uses a different NUMA node only if this gives more direct links.

use std::collections::BTreeMap;

use device_class::discover::Connections;

use super::placement::{CandidateDevice, TopologyDomains, TopologyLevel};

/// The maximum number of equivalent groups of devices that are compared with each other. If
/// there are more, the choice of these groups is not changed.
const MAX_COMPARED_GROUPS: usize = 128;

/// The maximum number of choices for which the search compares all of them. For example, there are
/// 12,870 choices of 8 devices out of 16.
const MAX_COMPARED_CHOICES: usize = 15_000;

/// Devices that are chosen or exchanged together: the devices of one group, or a single device that
/// has no group.
#[derive(Debug, Clone, Default)]
struct DeviceGroup {
    device_indices: Vec<usize>,
    free_units: usize,
    taken_units: usize,
    has_required_units: bool,
}

/// Exchanges groups of devices for others if the chosen devices are then closer to each
/// other. A completely taken group is exchanged for an unused group of the same size on the same
/// NUMA node. The choice stays as good in every other respect. A second pass also considers groups
/// on other NUMA nodes, and changes the choice only if its devices then have more direct links.
pub(super) fn improve_proximity(
    devices: &[CandidateDevice<'_>],
    domains: &TopologyDomains,
    connections: &[&Connections],
    taken_units: &mut [usize],
) {
    let exchange = GroupExchange {
        devices,
        domains,
        connections,
    };
    exchange.exchange_groups(taken_units, |numa_node| numa_node, |_, _| true);
    if connections.iter().any(|device| device.has_links()) {
        let has_more_links = |new: Cost, old: Cost| new[0] < old[0];
        exchange.exchange_groups(taken_units, |_| None, has_more_links);
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

/// Exchanges groups of devices for equivalent groups, to lower the cost of a choice.
struct GroupExchange<'a> {
    devices: &'a [CandidateDevice<'a>],
    domains: &'a TopologyDomains,
    connections: &'a [&'a Connections],
}

impl GroupExchange<'_> {
    /// Exchanges chosen groups for equivalent groups if `is_better(new_cost, old_cost)` is true.
    /// Two groups are equivalent only if `map_numa_node` maps their NUMA nodes to the same value.
    fn exchange_groups(
        &self,
        taken_units: &mut [usize],
        map_numa_node: impl Fn(Option<u32>) -> Option<u32>,
        is_better: impl Fn(Cost, Cost) -> bool,
    ) {
        // Sorts the groups by mapped NUMA node, number of free units and number of devices. Groups
        // with the same key are equivalent.
        let mut equivalent_groups: BTreeMap<(Option<u32>, usize, usize), Vec<DeviceGroup>> =
            BTreeMap::new();
        let groups = self.collect_groups(taken_units);
        let is_exchangeable = |group: &DeviceGroup| {
            group.taken_units > 0
                && group.taken_units == group.free_units
                && !group.has_required_units
        };
        if !groups.iter().any(is_exchangeable) {
            return;
        }
        for group in groups {
            let is_all_or_none = group.taken_units == 0 || group.taken_units == group.free_units;
            if is_all_or_none && !group.has_required_units && group.free_units > 0 {
                let numa_node = self.devices[group.device_indices[0]].numa_node;
                let key = (
                    map_numa_node(numa_node),
                    group.free_units,
                    group.device_indices.len(),
                );
                equivalent_groups.entry(key).or_default().push(group);
            }
        }
        for groups in equivalent_groups.into_values() {
            let chosen_groups = (0..groups.len()).filter(|group| groups[*group].taken_units > 0);
            let chosen_groups: Vec<usize> = chosen_groups.collect();
            if chosen_groups.is_empty()
                || chosen_groups.len() == groups.len()
                || groups.len() > MAX_COMPARED_GROUPS
            {
                continue;
            }
            let is_in_groups = |index: usize| {
                groups
                    .iter()
                    .any(|group| group.device_indices.contains(&index))
            };
            let is_chosen =
                |index: usize| taken_units[index] > 0 || self.devices[index].has_required_units;
            let fixed_indices =
                (0..self.devices.len()).filter(|index| is_chosen(*index) && !is_in_groups(*index));
            let fixed_indices: Vec<usize> = fixed_indices.collect();
            let group_costs = self.compute_group_costs(&groups, &fixed_indices);
            let (new_cost, new_groups) = group_costs.find_cheapest_combination(chosen_groups.len());
            if !is_better(new_cost, group_costs.compute_total_cost(&chosen_groups)) {
                continue;
            }
            for (number, group) in groups.iter().enumerate() {
                for index in &group.device_indices {
                    taken_units[*index] = if new_groups.contains(&number) {
                        self.devices[*index].free_units
                    } else {
                        0
                    };
                }
            }
        }
    }

    /// Returns one entry for each group of devices, and for each device that has no group. The
    /// order is that of the group numbers.
    fn collect_groups(&self, taken_units: &[usize]) -> Vec<DeviceGroup> {
        let mut groups: Vec<DeviceGroup> = vec![DeviceGroup::default(); self.devices.len()];
        for (index, device) in self.devices.iter().enumerate() {
            let group = &mut groups[self.domains.domain_number(index, TopologyLevel::Group)];
            group.device_indices.push(index);
            group.free_units += device.free_units;
            group.taken_units += taken_units[index];
            group.has_required_units |= device.has_required_units;
        }
        groups.retain(|group| !group.device_indices.is_empty());
        groups
    }

    fn compute_group_costs(&self, groups: &[DeviceGroup], fixed_indices: &[usize]) -> GroupCosts {
        let sum_pair_costs = |group: &DeviceGroup, other_indices: &[usize]| {
            let pairs = group.device_indices.iter().flat_map(|index| {
                other_indices
                    .iter()
                    .map(move |other_index| (*index, *other_index))
            });
            sum_costs(pairs.map(|(index, other_index)| self.compute_pair_cost(index, other_index)))
        };
        let fixed_device_costs = groups
            .iter()
            .map(|group| sum_pair_costs(group, fixed_indices))
            .collect();
        let to_groups = |group: &DeviceGroup| {
            groups
                .iter()
                .map(|other_group| sum_pair_costs(group, &other_group.device_indices))
                .collect()
        };
        GroupCosts {
            fixed_device_costs,
            group_pair_costs: groups.iter().map(to_groups).collect(),
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

/// The costs of each pair of groups, and of each group together with the fixed devices. A fixed
/// device is chosen, and belongs to none of the groups that can be exchanged.
struct GroupCosts {
    fixed_device_costs: Vec<Cost>,
    group_pair_costs: Vec<Vec<Cost>>,
}

impl GroupCosts {
    /// Returns the cost that a group adds if it is chosen in addition to `other_groups`.
    fn compute_added_cost(&self, group: usize, other_groups: &[usize]) -> Cost {
        let pair_costs = other_groups
            .iter()
            .map(|other_group| self.group_pair_costs[group][*other_group]);
        sum_costs(pair_costs.chain([self.fixed_device_costs[group]]))
    }

    fn compute_total_cost(&self, groups: &[usize]) -> Cost {
        sum_costs(
            (0..groups.len()).map(|index| self.compute_added_cost(groups[index], &groups[..index])),
        )
    }

    /// Returns the cheapest choice of `group_count` groups with its cost, or the first of several
    /// equally cheap choices. If there are more than [`MAX_COMPARED_CHOICES`], compares only one
    /// choice for each group. That choice begins with the group, and always adds the group with the
    /// least additional cost.
    fn find_cheapest_combination(&self, group_count: usize) -> (Cost, Vec<usize>) {
        let total_count = self.fixed_device_costs.len();
        if count_combinations(total_count, group_count) <= MAX_COMPARED_CHOICES {
            let mut best_choice: Option<(Cost, Vec<usize>)> = None;
            self.search_combinations(
                Cost::default(),
                &mut Vec::new(),
                group_count,
                &mut best_choice,
            );
            return best_choice.unwrap_or_default();
        }
        let all_groups = 0..total_count;
        let greedy_choices = all_groups.clone().map(|first_group| {
            let mut chosen_groups = vec![first_group];
            while chosen_groups.len() < group_count {
                let other_groups = all_groups
                    .clone()
                    .filter(|group| !chosen_groups.contains(group));
                let next_group = other_groups
                    .min_by_key(|group| (self.compute_added_cost(*group, &chosen_groups), *group));
                chosen_groups.extend(next_group);
            }
            chosen_groups.sort_unstable();
            (self.compute_total_cost(&chosen_groups), chosen_groups)
        });
        greedy_choices.min().unwrap_or_default()
    }

    /// Tries every way to extend `chosen_groups` with later groups to `group_count` groups. `cost`
    /// is the cost of `chosen_groups`. Updates `best_choice` whenever a complete choice is cheaper.
    fn search_combinations(
        &self,
        cost: Cost,
        chosen_groups: &mut Vec<usize>,
        group_count: usize,
        best_choice: &mut Option<(Cost, Vec<usize>)>,
    ) {
        if chosen_groups.len() == group_count {
            if best_choice
                .as_ref()
                .is_none_or(|(best_cost, _)| cost < *best_cost)
            {
                *best_choice = Some((cost, chosen_groups.clone()));
            }
            return;
        }
        let missing_count = group_count - chosen_groups.len();
        let first_group = chosen_groups.last().map_or(0, |last_group| last_group + 1);
        for group in first_group..=self.fixed_device_costs.len() - missing_count {
            let new_cost =
                sum_costs([cost, self.compute_added_cost(group, chosen_groups)].into_iter());
            chosen_groups.push(group);
            self.search_combinations(new_cost, chosen_groups, group_count, best_choice);
            chosen_groups.pop();
        }
    }
}

/// Returns the number of ways to choose `chosen_count` items out of `total_count`, or any number
/// above [`MAX_COMPARED_CHOICES`] if there are more.
fn count_combinations(total_count: usize, chosen_count: usize) -> usize {
    let mut choices: usize = 1;
    for factor_index in 0..chosen_count.min(total_count - chosen_count) {
        choices = choices * (total_count - factor_index) / (factor_index + 1);
        if choices > MAX_COMPARED_CHOICES {
            break;
        }
    }
    choices
}
