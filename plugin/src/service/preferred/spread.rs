//! Implements the placement `spread`, which chooses devices for a container that are far apart.
//!
//! The best choice has as few shares of each physical device as possible. The further criteria are,
//! in this order: an even use of NUMA nodes, an even use of groups, physical devices with few
//! shares in use, and the order of the devices. Unevenness is measured by the sum of squares, in
//! which each further share counts more than the share before. Therefore the best choice is found
//! by taking the share that adds the least, again and again. With
//! [`SpreadPriority::BalanceUsedShares`] there is another first criterion: the number of used
//! shares of each physical device, counted over all containers, is made as even as possible.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// An available device or share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CandidateShare<'a> {
    /// The position of the device or share in the list of the resource.
    pub(super) position: usize,
    /// The number of the physical device to which the device or share belongs.
    pub(super) physical_device_number: usize,
    pub(super) numa_node: Option<u32>,
    pub(super) group: Option<&'a str>,
    pub(super) is_required: bool,
    /// The number of shares of the same physical device that other containers have.
    pub(super) used_shares: usize,
}

/// A physical device, with the shares of it that the kubelet offers for the container.
struct PhysicalDevice<'a> {
    numa_node: Option<u32>,
    /// The key of the device's domain: its NUMA node and its group. If the device has no group, its
    /// number makes it a domain of its own.
    domain: (Option<u32>, Option<&'a str>, Option<usize>),
    /// The positions of shares that are not chosen yet, in descending order.
    free_shares: Vec<usize>,
    /// The number of shares of this physical device that were chosen for the container.
    chosen_shares: usize,
    /// The number of shares of this physical device that other containers have.
    used_shares: usize,
}

/// The first criterion by which shares are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpreadPriority {
    /// The container gets as few shares of each physical device as possible.
    SpreadOverDevices,
    /// The number of used shares of each physical device, counted over all containers, is as even
    /// as possible.
    BalanceUsedShares,
}

/// Chooses `share_count` candidates, and returns their positions in the resource. There must be at
/// least `share_count` candidates.
pub(super) fn choose_shares(
    candidates: &[CandidateShare<'_>],
    share_count: usize,
    priority: SpreadPriority,
) -> BTreeSet<usize> {
    let required_candidates = candidates.iter().filter(|candidate| candidate.is_required);
    let mut chosen_positions: BTreeSet<usize> = required_candidates
        .map(|candidate| candidate.position)
        .collect();
    let mut devices = group_by_physical_device(candidates);
    let node_numbers = assign_key_numbers(devices.iter().map(|device| device.numa_node));
    let domain_numbers = assign_key_numbers(devices.iter().map(|device| device.domain));
    // The number of chosen shares on each NUMA node, and the number in each domain. A domain
    // consists of the devices of one group on one node.
    let (mut chosen_by_node, mut chosen_by_domain) =
        (vec![0; devices.len()], vec![0; devices.len()]);
    for (index, device) in devices.iter().enumerate() {
        chosen_by_node[node_numbers[index]] += device.chosen_shares;
        chosen_by_domain[domain_numbers[index]] += device.chosen_shares;
    }
    let compute_cost = |device: &PhysicalDevice<'_>| {
        let priority_cost = match priority {
            SpreadPriority::SpreadOverDevices => 0,
            SpreadPriority::BalanceUsedShares => device.used_shares + device.chosen_shares,
        };
        Some((
            priority_cost,
            device.chosen_shares,
            device.used_shares,
            *device.free_shares.last()?,
        ))
    };
    // For each domain, a queue orders its physical devices by cost. For each node, a queue orders
    // its domains by the cost of their first physical device. A choice on one node does not change
    // the order on another node.
    let mut domain_queues: Vec<BinaryHeap<_>> = vec![BinaryHeap::new(); devices.len()];
    let mut node_of_domain = vec![0; devices.len()];
    for (index, device) in devices.iter().enumerate() {
        domain_queues[domain_numbers[index]]
            .extend(compute_cost(device).map(|cost| Reverse((cost, index))));
        node_of_domain[domain_numbers[index]] = node_numbers[index];
    }
    let find_first_device =
        |domain: usize, domain_queues: &[BinaryHeap<_>], chosen_by_domain: &[usize]| {
            let Reverse(((priority_cost, chosen_shares, used_shares, share), index)) =
                *domain_queues[domain].peek()?;
            Some(Reverse((
                (
                    priority_cost,
                    chosen_shares,
                    chosen_by_domain[domain],
                    used_shares,
                    share,
                ),
                index,
            )))
        };
    let mut node_queues: Vec<BinaryHeap<_>> = vec![BinaryHeap::new(); devices.len()];
    for domain in 0..devices.len() {
        node_queues[node_of_domain[domain]].extend(find_first_device(
            domain,
            &domain_queues,
            &chosen_by_domain,
        ));
    }
    node_queues.retain(|queue| !queue.is_empty());
    while chosen_positions.len() < share_count {
        let first_devices = node_queues.iter_mut().filter_map(|queue| {
            let Reverse(((priority_cost, chosen_shares, domain, used_shares, share), index)) =
                *queue.peek()?;
            let cost = (
                priority_cost,
                chosen_shares,
                chosen_by_node[node_numbers[index]],
                domain,
                used_shares,
                share,
            );
            Some((cost, index, queue))
        });
        let Some((_, index, queue)) = first_devices.min_by_key(|(cost, ..)| *cost) else {
            break;
        };
        let (domain, device) = (domain_numbers[index], &mut devices[index]);
        chosen_positions.extend(device.free_shares.pop());
        device.chosen_shares += 1;
        chosen_by_node[node_numbers[index]] += 1;
        chosen_by_domain[domain] += 1;
        domain_queues[domain].pop();
        domain_queues[domain].extend(compute_cost(device).map(|cost| Reverse((cost, index))));
        queue.pop();
        queue.extend(find_first_device(domain, &domain_queues, &chosen_by_domain));
    }
    chosen_positions
}

fn group_by_physical_device<'a>(candidates: &[CandidateShare<'a>]) -> Vec<PhysicalDevice<'a>> {
    let mut devices: BTreeMap<usize, PhysicalDevice<'a>> = BTreeMap::new();
    for candidate in candidates.iter().rev() {
        let own_group = candidate
            .group
            .is_none()
            .then_some(candidate.physical_device_number);
        let new_device = || PhysicalDevice {
            numa_node: candidate.numa_node,
            domain: (candidate.numa_node, candidate.group, own_group),
            free_shares: Vec::new(),
            chosen_shares: 0,
            used_shares: candidate.used_shares,
        };
        let device = devices
            .entry(candidate.physical_device_number)
            .or_insert_with(new_device);
        if candidate.is_required {
            device.chosen_shares += 1;
        } else {
            device.free_shares.push(candidate.position);
        }
    }
    devices.into_values().collect()
}

/// Returns a number for each key, counted from 0 in the order of first appearance. Equal keys get
/// the same number.
fn assign_key_numbers<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<usize> {
    let mut numbers = BTreeMap::new();
    let assign_number = |key| {
        let next_number = numbers.len();
        *numbers.entry(key).or_insert(next_number)
    };
    keys.map(assign_number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::preferred::tests::Dice;

    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

    /// Up to eight candidates: hardware with shares, on nodes, in groups.
    fn candidates(dice: &mut Dice) -> Vec<CandidateShare<'static>> {
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
                candidates.push(CandidateShare {
                    position,
                    physical_device_number: hardware,
                    numa_node: numa,
                    group,
                    is_required: must,
                    used_shares: used,
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
    fn domain<'a>(candidate: &CandidateShare<'a>) -> (Option<u32>, Option<&'a str>, Option<usize>) {
        let own_group = candidate
            .group
            .is_none()
            .then_some(candidate.physical_device_number);
        (candidate.numa_node, candidate.group, own_group)
    }

    /// The cost to minimise, compared from the first number.
    fn cost(chosen: &[&CandidateShare<'_>]) -> Vec<usize> {
        vec![
            squares(
                chosen
                    .iter()
                    .map(|candidate| candidate.physical_device_number),
            ),
            squares(chosen.iter().map(|candidate| candidate.numa_node)),
            squares(chosen.iter().map(|candidate| domain(candidate))),
            chosen.iter().map(|candidate| candidate.used_shares).sum(),
        ]
    }

    /// Compared with all possible choices, for small sets.
    #[test]
    fn no_choice_is_better_than_the_one_that_is_made() {
        let mut dice = Dice(6);
        for _ in 0..400 {
            let all = candidates(&mut dice);
            let must = all.iter().filter(|candidate| candidate.is_required).count();
            for share_count in must..=all.len() {
                let subset = |set: u32| -> Vec<&CandidateShare<'_>> {
                    let inside = |c: &&CandidateShare<'_>| set >> c.position & 1 == 1;
                    all.iter().filter(inside).collect()
                };
                let sets =
                    (0u32..1 << all.len()).filter(|set| set.count_ones() as usize == share_count);
                let with_must = |chosen: &Vec<&CandidateShare<'_>>| {
                    chosen
                        .iter()
                        .filter(|candidate| candidate.is_required)
                        .count()
                        == must
                };
                let costs = sets
                    .map(subset)
                    .filter(with_must)
                    .map(|chosen| cost(&chosen));
                let positions = choose_shares(&all, share_count, SpreadPriority::SpreadOverDevices);
                let chosen: Vec<_> = positions.iter().map(|position| &all[*position]).collect();
                assert_eq!(
                    cost(&chosen),
                    costs.min().unwrap(),
                    "{share_count} of {all:#?}"
                );
            }
        }
    }
}
