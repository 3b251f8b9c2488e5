//! Implements the default placement: a best-fit choice of devices for one container. The functions
//! do no I/O.
//!
//! A device consists of one unit or, if it is shared, of several units. The units of a container
//! are packed into as few devices, groups and NUMA nodes as possible. If only a part of a device,
//! group or node is needed, the smallest sufficient device, group or node is chosen, so that large
//! free sets stay complete for later requests.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A device that has a free unit, or of which the kubelet requires a unit. A unit is one share of a
/// device, or the whole device if it is not shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CandidateDevice<'a> {
    pub(super) numa_node: Option<u32>,
    pub(super) group: Option<&'a str>,
    pub(super) free_units: usize,
    /// Whether the kubelet requires units of the device for the container.
    pub(super) has_required_units: bool,
}

/// Returns the number of units to take from each device. The sum is `unit_count`, or less if fewer
/// units are free. Prefers units near those that the kubelet requires.
pub(super) fn pack_units(
    devices: &[CandidateDevice<'_>],
    domains: &TopologyDomains,
    unit_count: usize,
) -> Vec<usize> {
    let taken_units = vec![0; devices.len()];
    let mut packer = Packer {
        devices,
        domains,
        taken_units,
    };
    let mut remaining_units = unit_count;
    for level in [
        TopologyLevel::Device,
        TopologyLevel::Group,
        TopologyLevel::NumaNode,
    ] {
        let mut is_required_domain = vec![false; devices.len()];
        for (index, device) in devices.iter().enumerate() {
            is_required_domain[domains.domain_number(index, level)] |= device.has_required_units;
        }
        let near_indices = (0..devices.len())
            .filter(|index| is_required_domain[domains.domain_number(*index, level)]);
        remaining_units -= packer.take_units(&near_indices.collect::<Vec<_>>(), remaining_units);
    }
    packer.take_units(&(0..devices.len()).collect::<Vec<_>>(), remaining_units);
    packer.taken_units
}

/// Returns the smallest device that has `unit_count` free units. If units of one device are
/// required, only that device is considered. Returns `None` if no device fits.
pub(super) fn find_best_fit(
    devices: &[CandidateDevice<'_>],
    domains: &TopologyDomains,
    unit_count: usize,
) -> Option<usize> {
    let taken_units = vec![0; devices.len()];
    let packer = Packer {
        devices,
        domains,
        taken_units,
    };
    let required_indices: Vec<usize> = (0..devices.len())
        .filter(|index| devices[*index].has_required_units)
        .collect();
    match required_indices.as_slice() {
        [] => packer.find_device_in_smallest_domain(
            &(0..devices.len()).collect::<Vec<_>>(),
            unit_count,
            TopologyLevel::Device,
        ),
        [index] => (devices[*index].free_units >= unit_count).then_some(*index),
        _ => None,
    }
}

/// The levels at which devices are grouped into domains, from the smallest domains to the largest.
/// A domain is one device, one group of devices, or one NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopologyLevel {
    Device,
    Group,
    NumaNode,
}

/// For each device, the number of its domain at each [`TopologyLevel`]. The domains of a level are
/// numbered from 0, in the order of NUMA nodes, then groups, then devices. A device without a group
/// forms a group alone.
#[derive(Debug)]
pub(super) struct TopologyDomains([Vec<usize>; 3]);

impl TopologyDomains {
    pub(super) fn new(devices: &[CandidateDevice<'_>]) -> Self {
        let mut sorted_indices: Vec<usize> = (0..devices.len()).collect();
        sorted_indices.sort_by_key(|index| (devices[*index].numa_node, devices[*index].group));
        let [mut device_domains, mut group_domains, mut node_domains] =
            [(); 3].map(|()| vec![0; devices.len()]);
        let (mut group, mut node) = (0, 0);
        for (number, index) in sorted_indices.iter().enumerate() {
            if number > 0 {
                let (device, previous_device) =
                    (&devices[*index], &devices[sorted_indices[number - 1]]);
                let is_other_node = device.numa_node != previous_device.numa_node;
                node += usize::from(is_other_node);
                let is_same_group = !is_other_node
                    && device.group.is_some()
                    && device.group == previous_device.group;
                group += usize::from(!is_same_group);
            }
            device_domains[*index] = number;
            group_domains[*index] = group;
            node_domains[*index] = node;
        }
        TopologyDomains([device_domains, group_domains, node_domains])
    }

    /// Returns the number of the domain at `level` that contains the device with the index
    /// `device_index`.
    pub(super) fn domain_number(&self, device_index: usize, level: TopologyLevel) -> usize {
        self.0[level as usize][device_index]
    }
}

struct Packer<'a> {
    devices: &'a [CandidateDevice<'a>],
    domains: &'a TopologyDomains,
    taken_units: Vec<usize>,
}

impl Packer<'_> {
    fn count_free_units(&self, index: usize) -> usize {
        self.devices[index].free_units - self.taken_units[index]
    }

    /// Returns the number of free units in each domain of `level`, such as each NUMA node. Only the
    /// devices at `device_indices` are counted.
    fn count_free_units_by_domain(
        &self,
        device_indices: &[usize],
        level: TopologyLevel,
    ) -> Vec<usize> {
        let mut free_units = vec![0; self.devices.len()];
        for index in device_indices {
            free_units[self.domains.domain_number(*index, level)] += self.count_free_units(*index);
        }
        free_units
    }

    /// Takes up to `unit_count` units from the devices at `device_indices`. Returns the number of
    /// units that it has taken.
    fn take_units(&mut self, device_indices: &[usize], unit_count: usize) -> usize {
        let free_units = device_indices
            .iter()
            .map(|index| self.count_free_units(*index))
            .sum();
        let unit_count = unit_count.min(free_units);
        if unit_count > 0 {
            self.take_nearest_units(device_indices, unit_count);
        }
        unit_count
    }

    /// Takes `unit_count` units from the devices at `device_indices`, which must have at least so
    /// many free units. Takes them from one device if possible, otherwise from one group, otherwise
    /// from one NUMA node, and otherwise from several nodes.
    fn take_nearest_units(&mut self, device_indices: &[usize], unit_count: usize) {
        if let Some(index) =
            self.find_device_in_smallest_domain(device_indices, unit_count, TopologyLevel::Device)
        {
            self.taken_units[index] += unit_count;
        } else if let Some(index) =
            self.find_device_in_smallest_domain(device_indices, unit_count, TopologyLevel::Group)
        {
            let group_indices = self.filter_by_domain(
                device_indices,
                self.domains.domain_number(index, TopologyLevel::Group),
                TopologyLevel::Group,
            );
            self.take_largest_domains(&group_indices, unit_count, TopologyLevel::Device);
        } else if let Some(node) = self.find_node_with_fewest_groups(device_indices, unit_count) {
            let node_indices = self.filter_by_domain(device_indices, node, TopologyLevel::NumaNode);
            self.take_largest_domains(&node_indices, unit_count, TopologyLevel::Group);
        } else {
            self.take_largest_domains(device_indices, unit_count, TopologyLevel::NumaNode);
        }
    }

    /// Takes all free units of the largest domain, then of the next one, as long as more units are
    /// needed than the largest domain has. Takes the last units from the other domains.
    fn take_largest_domains(
        &mut self,
        device_indices: &[usize],
        unit_count: usize,
        level: TopologyLevel,
    ) {
        let domain_sums = self
            .count_free_units_by_domain(device_indices, level)
            .into_iter()
            .enumerate();
        let mut units_by_domain: Vec<(usize, usize)> = domain_sums
            .filter(|(_, domain_units)| *domain_units > 0)
            .collect();
        units_by_domain.sort_by_key(|(_, domain_units)| Reverse(*domain_units));
        let mut remaining_units = unit_count;
        let mut is_domain_exhausted = vec![false; self.devices.len()];
        for (domain, domain_units) in units_by_domain {
            if domain_units >= remaining_units {
                break;
            }
            remaining_units -= domain_units;
            is_domain_exhausted[domain] = true;
        }
        let (exhausted_indices, other_indices): (Vec<usize>, Vec<usize>) = device_indices
            .iter()
            .partition(|index| is_domain_exhausted[self.domains.domain_number(**index, level)]);
        for index in exhausted_indices {
            self.taken_units[index] = self.devices[index].free_units;
        }
        self.take_units(&other_indices, remaining_units);
    }

    /// Returns the number of the NUMA node from which [`Packer::take_largest_domains`] can take
    /// `unit_count` units out of the fewest groups. Of several such nodes, prefers the node whose
    /// last group keeps the fewest free units, then the node with the fewest free units, then the
    /// first node.
    fn find_node_with_fewest_groups(
        &self,
        device_indices: &[usize],
        unit_count: usize,
    ) -> Option<usize> {
        let free_by_group = self.count_free_units_by_domain(device_indices, TopologyLevel::Group);
        let mut is_counted_group = vec![false; self.devices.len()];
        // The key is the number of a NUMA node. The value is the index of the node's first device,
        // and the number of free units in each group of the node.
        let mut nodes: BTreeMap<usize, (usize, Vec<usize>)> = BTreeMap::new();
        for index in device_indices {
            let node = self.domains.domain_number(*index, TopologyLevel::NumaNode);
            let (_, sizes) = nodes.entry(node).or_insert((*index, Vec::new()));
            let group = self.domains.domain_number(*index, TopologyLevel::Group);
            if !std::mem::replace(&mut is_counted_group[group], true) {
                sizes.push(free_by_group[group]);
            }
        }
        let costs = nodes
            .into_iter()
            .filter_map(|(node, (first_index, mut sizes))| {
                sizes.sort_unstable();
                let free_units: usize = sizes.iter().sum();
                let mut remaining_units = unit_count;
                let mut group_count = 1;
                while *sizes.last()? < remaining_units {
                    remaining_units -= sizes.pop()?;
                    group_count += 1;
                }
                let last_size = sizes.into_iter().find(|size| *size >= remaining_units)?;
                Some((
                    group_count,
                    last_size - remaining_units,
                    free_units,
                    first_index,
                    node,
                ))
            });
        costs.min().map(|(.., node)| node)
    }

    fn filter_by_domain(
        &self,
        device_indices: &[usize],
        domain: usize,
        level: TopologyLevel,
    ) -> Vec<usize> {
        let is_in_domain = |index: &&usize| self.domains.domain_number(**index, level) == domain;
        device_indices
            .iter()
            .filter(is_in_domain)
            .copied()
            .collect()
    }

    /// Returns a device in the smallest domain that has `unit_count` free units. Of several domains
    /// of this size, prefers the domain in the smallest group, then the domain in the smallest NUMA
    /// node, then the first domain.
    fn find_device_in_smallest_domain(
        &self,
        device_indices: &[usize],
        unit_count: usize,
        level: TopologyLevel,
    ) -> Option<usize> {
        let free_by_domain = [level, TopologyLevel::Group, TopologyLevel::NumaNode]
            .map(|level| self.count_free_units_by_domain(device_indices, level));
        let get_domain_sizes = |index: usize| {
            [
                free_by_domain[0][self.domains.domain_number(index, level)],
                free_by_domain[1][self.domains.domain_number(index, TopologyLevel::Group)],
                free_by_domain[2][self.domains.domain_number(index, TopologyLevel::NumaNode)],
            ]
        };
        let sufficient_indices = device_indices
            .iter()
            .filter(|index| get_domain_sizes(**index)[0] >= unit_count);
        sufficient_indices
            .copied()
            .min_by_key(|index| (get_domain_sizes(*index), *index))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::service::preferred::tests::Dice;

    fn device(free: usize, numa: u32, group: &'static str, held: bool) -> CandidateDevice<'static> {
        CandidateDevice {
            numa_node: Some(numa),
            group: (!group.is_empty()).then_some(group),
            free_units: free,
            has_required_units: held,
        }
    }

    #[test]
    fn units_come_from_as_few_devices_as_possible_with_the_least_left_over() {
        let sizes = |free: &[usize]| -> Vec<CandidateDevice<'static>> {
            free.iter()
                .map(|free| device(*free, 0, "", false))
                .collect()
        };
        for (free, wanted, taken) in [
            // Eight GPUs of 80 GB: one has room for a container.
            (&[80; 8][..], 8, vec![8, 0, 0, 0, 0, 0, 0, 0]),
            // The one in use has room.
            (&[10, 4, 10], 1, vec![0, 1, 0]),
            (&[10, 4, 10], 5, vec![5, 0, 0]),
            (&[4, 2, 4], 6, vec![4, 2, 0]),
            (&[4, 2, 4], 10, vec![4, 2, 4]),
            (&[2, 2], 5, vec![2, 2]),
            (&[], 1, vec![]),
        ] {
            let devices = sizes(free);
            let found = pack_units(&devices, &TopologyDomains::new(&devices), wanted);
            assert_eq!(found, taken, "{wanted} of {free:?}");
        }
        for (free, wanted, at) in [
            (&[10, 4, 10][..], 4, Some(1)),
            (&[10, 4, 10], 5, Some(0)),
            (&[10, 4, 10], 11, None),
            (&[], 1, None),
        ] {
            let devices = sizes(free);
            let found = find_best_fit(&devices, &TopologyDomains::new(&devices), wanted);
            assert_eq!(found, at, "{wanted} of {free:?}");
        }
    }

    #[test]
    fn a_device_that_is_held_comes_first() {
        let devices = [
            device(4, 0, "", false),
            device(9, 0, "", true),
            device(4, 1, "", false),
        ];
        let domains = TopologyDomains::new(&devices);
        assert_eq!(find_best_fit(&devices, &domains, 3), Some(1));
        assert_eq!(find_best_fit(&devices, &domains, 10), None);
        assert_eq!(pack_units(&devices, &domains, 3), [0, 3, 0]);
        assert_eq!(pack_units(&devices, &domains, 12), [3, 9, 0]);
    }

    /// Up to seven devices with up to three free units.
    fn devices(dice: &mut Dice) -> Vec<CandidateDevice<'static>> {
        let (nodes, groups) = (1 + dice.below(3), 1 + dice.below(3));
        let count = 1 + dice.below(7);
        let device = |_| CandidateDevice {
            numa_node: (dice.below(4) > 0).then(|| u32::try_from(dice.below(nodes)).unwrap()),
            group: (dice.below(3) > 0).then(|| ["a", "b", "c"][dice.below(groups)]),
            free_units: dice.below(4),
            has_required_units: false,
        };
        (0..count).map(device).collect()
    }

    /// The number of domains from which units are taken.
    fn used(devices: &[CandidateDevice<'_>], taken: &[usize], level: TopologyLevel) -> usize {
        let used = (0..taken.len()).filter(|at| taken[*at] > 0);
        let domain = |at: usize| {
            let CandidateDevice {
                numa_node, group, ..
            } = devices[at];
            match (level, group) {
                (TopologyLevel::NumaNode, _) => (numa_node, None, None),
                (TopologyLevel::Group, Some(_)) => (numa_node, group, None),
                (TopologyLevel::Group, None) | (TopologyLevel::Device, _) => {
                    (numa_node, group, Some(at))
                }
            }
        };
        let domains: BTreeSet<_> = used.map(domain).collect();
        domains.len()
    }

    /// Against every choice that there is: never more nodes than needed; and
    /// one group, and one device, where one is enough.
    #[test]
    fn no_choice_has_fewer_nodes_and_one_domain_is_used_where_one_is_enough() {
        let mut dice = Dice(6);
        for _ in 0..300 {
            let devices = devices(&mut dice);
            let free: usize = devices.iter().map(|device| device.free_units).sum();
            let domains = TopologyDomains::new(&devices);
            for wanted in 1..=free {
                let taken = pack_units(&devices, &domains, wanted);
                assert_eq!(taken.iter().sum::<usize>(), wanted);
                let mut pairs = taken.iter().zip(&devices);
                assert!(pairs.all(|(taken, device)| *taken <= device.free_units));
                let sets = 1u32..1 << devices.len();
                let enough = sets.filter_map(|set| {
                    let take = |(at, device): (usize, &CandidateDevice<'_>)| {
                        device.free_units * (set >> at & 1) as usize
                    };
                    let whole: Vec<usize> = devices.iter().enumerate().map(take).collect();
                    (whole.iter().sum::<usize>() >= wanted).then_some(whole)
                });
                let (mut node_count, mut group_count, mut device_count) =
                    (usize::MAX, usize::MAX, usize::MAX);
                for whole in enough {
                    node_count = node_count.min(used(&devices, &whole, TopologyLevel::NumaNode));
                    group_count = group_count.min(used(&devices, &whole, TopologyLevel::Group));
                    device_count = device_count.min(used(&devices, &whole, TopologyLevel::Device));
                }
                let context = format!("{wanted} of {devices:?}: {taken:?}");
                assert_eq!(
                    used(&devices, &taken, TopologyLevel::NumaNode),
                    node_count,
                    "{context}"
                );
                let of = |level| used(&devices, &taken, level);
                assert!(
                    group_count > 1 || of(TopologyLevel::Group) == 1,
                    "{context}"
                );
                assert!(
                    device_count > 1 || of(TopologyLevel::Device) == 1,
                    "{context}"
                );
            }
        }
    }
}
