//! Implements the default placement: a best-fit choice of devices for one container. The functions
//! do no I/O.
//!
//! A device consists of one unit or, if it is shared, of several. The units of a container are
//! packed into as few devices, groups and NUMA nodes as possible. If only a part of a device, group
//! or node is needed, the smallest sufficient one is chosen, so that large free sets stay complete
//! for later requests.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A device of which at least one unit can be allocated, or which the container already has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot<'a> {
    pub(super) numa_node: Option<u32>,
    pub(super) group: Option<&'a str>,
    /// The number of free units of the device.
    pub(super) free_units: usize,
    /// Whether the container already has units of the device.
    pub(super) is_held: bool,
}

/// Returns the number of units to take from each slot. The sum is `unit_count`, or less if fewer
/// units are free. Units near those that the container already has are preferred.
pub(super) fn pack_units(slots: &[Slot<'_>], bins: &Bins, unit_count: usize) -> Vec<usize> {
    let taken_units = vec![0; slots.len()];
    let mut packer = Packer {
        slots,
        bins,
        taken_units,
    };
    let mut remaining = unit_count;
    for level in [Level::Device, Level::Group, Level::Node] {
        let mut is_held_bin = vec![false; slots.len()];
        for (index, slot) in slots.iter().enumerate() {
            is_held_bin[bins.bin_number(index, level)] |= slot.is_held;
        }
        let near_slots =
            (0..slots.len()).filter(|index| is_held_bin[bins.bin_number(*index, level)]);
        remaining -= packer.take_units(&near_slots.collect::<Vec<_>>(), remaining);
    }
    packer.take_units(&(0..slots.len()).collect::<Vec<_>>(), remaining);
    packer.taken_units
}

/// Returns the smallest slot that has `unit_count` free units. If the container already has units
/// of one device, only that device is considered. Returns `None` if no slot fits.
pub(super) fn find_best_fit(slots: &[Slot<'_>], bins: &Bins, unit_count: usize) -> Option<usize> {
    let taken_units = vec![0; slots.len()];
    let packer = Packer {
        slots,
        bins,
        taken_units,
    };
    let held_slots: Vec<usize> = (0..slots.len())
        .filter(|index| slots[*index].is_held)
        .collect();
    match held_slots.as_slice() {
        [] => packer.find_smallest_slot(
            &(0..slots.len()).collect::<Vec<_>>(),
            unit_count,
            Level::Device,
        ),
        [only] => (slots[*only].free_units >= unit_count).then_some(*only),
        _ => None,
    }
}

/// The levels at which slots are grouped into bins, from the smallest bins to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Device,
    Group,
    Node,
}

/// The number of each slot's bin at each [`Level`]. The bins of a level are numbered from 0, in the
/// order of NUMA nodes, then groups, then slots. A device without a group forms a group alone.
#[derive(Debug)]
pub(super) struct Bins([Vec<usize>; 3]);

impl Bins {
    pub(super) fn new(slots: &[Slot<'_>]) -> Self {
        let mut sorted_slots: Vec<usize> = (0..slots.len()).collect();
        sorted_slots.sort_by_key(|index| (slots[*index].numa_node, slots[*index].group));
        let [mut devices, mut groups, mut nodes] = [(); 3].map(|()| vec![0; slots.len()]);
        let (mut group, mut node) = (0, 0);
        for (number, index) in sorted_slots.iter().enumerate() {
            if number > 0 {
                let (slot, previous_slot) = (&slots[*index], &slots[sorted_slots[number - 1]]);
                let is_other_node = slot.numa_node != previous_slot.numa_node;
                node += usize::from(is_other_node);
                let is_same_group =
                    !is_other_node && slot.group.is_some() && slot.group == previous_slot.group;
                group += usize::from(!is_same_group);
            }
            devices[*index] = number;
            groups[*index] = group;
            nodes[*index] = node;
        }
        Bins([devices, groups, nodes])
    }

    /// Returns the number of the bin that contains a slot, at a level.
    pub(super) fn bin_number(&self, slot: usize, level: Level) -> usize {
        self.0[level as usize][slot]
    }
}

struct Packer<'a> {
    slots: &'a [Slot<'a>],
    bins: &'a Bins,
    taken_units: Vec<usize>,
}

impl Packer<'_> {
    fn count_free(&self, index: usize) -> usize {
        self.slots[index].free_units - self.taken_units[index]
    }

    /// Returns the number of free units in each bin of `level`, such as each NUMA node. Only the
    /// units of the devices in `slots` are counted.
    fn sum_free_by_bin(&self, slots: &[usize], level: Level) -> Vec<usize> {
        let mut free_units = vec![0; self.slots.len()];
        for index in slots {
            free_units[self.bins.bin_number(*index, level)] += self.count_free(*index);
        }
        free_units
    }

    /// Takes up to `unit_count` units from `slots`. Returns the number of units that it has taken.
    fn take_units(&mut self, slots: &[usize], unit_count: usize) -> usize {
        let free_units = slots.iter().map(|index| self.count_free(*index)).sum();
        let unit_count = unit_count.min(free_units);
        if unit_count > 0 {
            self.take_nearest_units(slots, unit_count);
        }
        unit_count
    }

    /// Takes `unit_count` units from `slots`, which must have as many: from one device if possible,
    /// otherwise from one group, one node, or several nodes.
    fn take_nearest_units(&mut self, slots: &[usize], unit_count: usize) {
        if let Some(index) = self.find_smallest_slot(slots, unit_count, Level::Device) {
            self.taken_units[index] += unit_count;
        } else if let Some(index) = self.find_smallest_slot(slots, unit_count, Level::Group) {
            let members = self.slots_in_bin(
                slots,
                self.bins.bin_number(index, Level::Group),
                Level::Group,
            );
            self.take_largest_bins(&members, unit_count, Level::Device);
        } else if let Some(node) = self.find_node_of_fewest_groups(slots, unit_count) {
            let members = self.slots_in_bin(slots, node, Level::Node);
            self.take_largest_bins(&members, unit_count, Level::Group);
        } else {
            self.take_largest_bins(slots, unit_count, Level::Node);
        }
    }

    /// Takes all free units of the largest bins, until a single bin has enough units for the rest.
    fn take_largest_bins(&mut self, slots: &[usize], unit_count: usize, level: Level) {
        let sums = self.sum_free_by_bin(slots, level).into_iter().enumerate();
        let mut bins: Vec<(usize, usize)> = sums.filter(|(_, bin_units)| *bin_units > 0).collect();
        bins.sort_by_key(|(_, bin_units)| Reverse(*bin_units));
        let mut remaining = unit_count;
        let mut is_used_up = vec![false; self.slots.len()];
        for (bin, bin_units) in bins {
            if bin_units >= remaining {
                break;
            }
            remaining -= bin_units;
            is_used_up[bin] = true;
        }
        let (full_slots, other_slots): (Vec<usize>, Vec<usize>) = slots
            .iter()
            .partition(|index| is_used_up[self.bins.bin_number(**index, level)]);
        for index in full_slots {
            self.taken_units[index] = self.slots[index].free_units;
        }
        self.take_units(&other_slots, remaining);
    }

    /// Returns the number of the node from which [`Packer::take_largest_bins`] takes `unit_count`
    /// units out of the fewest groups. If several nodes are equal in this, the node with the fewest
    /// units left in the last group is chosen, then the smallest node, then the first one.
    fn find_node_of_fewest_groups(&self, slots: &[usize], unit_count: usize) -> Option<usize> {
        let free_by_group = self.sum_free_by_bin(slots, Level::Group);
        let mut is_counted_group = vec![false; self.slots.len()];
        // For each node: its first slot, and the numbers of free units of its groups.
        let mut nodes: BTreeMap<usize, (usize, Vec<usize>)> = BTreeMap::new();
        for index in slots {
            let node = self.bins.bin_number(*index, Level::Node);
            let (_, sizes) = nodes.entry(node).or_insert((*index, Vec::new()));
            let group = self.bins.bin_number(*index, Level::Group);
            if !std::mem::replace(&mut is_counted_group[group], true) {
                sizes.push(free_by_group[group]);
            }
        }
        let costs = nodes
            .into_iter()
            .filter_map(|(node, (first_slot, mut sizes))| {
                sizes.sort_unstable();
                let free_units: usize = sizes.iter().sum();
                let mut remaining = unit_count;
                let mut group_count = 1;
                while *sizes.last()? < remaining {
                    remaining -= sizes.pop()?;
                    group_count += 1;
                }
                let last_size = sizes.into_iter().find(|size| *size >= remaining)?;
                Some((
                    group_count,
                    last_size - remaining,
                    free_units,
                    first_slot,
                    node,
                ))
            });
        costs.min().map(|(.., node)| node)
    }

    fn slots_in_bin(&self, slots: &[usize], bin: usize, level: Level) -> Vec<usize> {
        let slots_in_bin = slots.iter();
        let slots_in_bin = slots_in_bin.filter(|index| self.bins.bin_number(**index, level) == bin);
        slots_in_bin.copied().collect()
    }

    /// Returns a slot of the smallest bin that has `unit_count` free units. If several bins are
    /// equal in this, the smallest group is chosen, then the smallest node, then the first slot.
    fn find_smallest_slot(
        &self,
        slots: &[usize],
        unit_count: usize,
        level: Level,
    ) -> Option<usize> {
        let free_by_bin =
            [level, Level::Group, Level::Node].map(|level| self.sum_free_by_bin(slots, level));
        let sizes = |index: usize| {
            [
                free_by_bin[0][self.bins.bin_number(index, level)],
                free_by_bin[1][self.bins.bin_number(index, Level::Group)],
                free_by_bin[2][self.bins.bin_number(index, Level::Node)],
            ]
        };
        let sufficient_slots = slots.iter().filter(|index| sizes(**index)[0] >= unit_count);
        sufficient_slots
            .copied()
            .min_by_key(|index| (sizes(*index), *index))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::service::preferred::tests::Dice;

    fn slot(free: usize, numa: u32, group: &'static str, held: bool) -> Slot<'static> {
        Slot {
            numa_node: Some(numa),
            group: (!group.is_empty()).then_some(group),
            free_units: free,
            is_held: held,
        }
    }

    #[test]
    fn units_come_from_as_few_devices_as_possible_with_the_least_left_over() {
        let sizes = |free: &[usize]| -> Vec<Slot<'static>> {
            free.iter().map(|free| slot(*free, 0, "", false)).collect()
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
            let slots = sizes(free);
            let found = pack_units(&slots, &Bins::new(&slots), wanted);
            assert_eq!(found, taken, "{wanted} of {free:?}");
        }
        for (free, wanted, at) in [
            (&[10, 4, 10][..], 4, Some(1)),
            (&[10, 4, 10], 5, Some(0)),
            (&[10, 4, 10], 11, None),
            (&[], 1, None),
        ] {
            let slots = sizes(free);
            let found = find_best_fit(&slots, &Bins::new(&slots), wanted);
            assert_eq!(found, at, "{wanted} of {free:?}");
        }
    }

    #[test]
    fn a_device_that_is_held_comes_first() {
        let slots = [
            slot(4, 0, "", false),
            slot(9, 0, "", true),
            slot(4, 1, "", false),
        ];
        let bins = Bins::new(&slots);
        assert_eq!(find_best_fit(&slots, &bins, 3), Some(1));
        assert_eq!(find_best_fit(&slots, &bins, 10), None);
        assert_eq!(pack_units(&slots, &bins, 3), [0, 3, 0]);
        assert_eq!(pack_units(&slots, &bins, 12), [3, 9, 0]);
    }

    /// Up to seven devices with up to three free units.
    fn slots(dice: &mut Dice) -> Vec<Slot<'static>> {
        let (nodes, groups) = (1 + dice.below(3), 1 + dice.below(3));
        let count = 1 + dice.below(7);
        let slot = |_| Slot {
            numa_node: (dice.below(4) > 0).then(|| u32::try_from(dice.below(nodes)).unwrap()),
            group: (dice.below(3) > 0).then(|| ["a", "b", "c"][dice.below(groups)]),
            free_units: dice.below(4),
            is_held: false,
        };
        (0..count).map(slot).collect()
    }

    /// The number of bins from which units are taken.
    fn used(slots: &[Slot<'_>], taken: &[usize], level: Level) -> usize {
        let used = (0..taken.len()).filter(|at| taken[*at] > 0);
        let bin = |at: usize| {
            let Slot {
                numa_node, group, ..
            } = slots[at];
            match (level, group) {
                (Level::Node, _) => (numa_node, None, None),
                (Level::Group, Some(_)) => (numa_node, group, None),
                (Level::Group, None) | (Level::Device, _) => (numa_node, group, Some(at)),
            }
        };
        let bins: BTreeSet<_> = used.map(bin).collect();
        bins.len()
    }

    /// Against every choice that there is: never more nodes than needed; and
    /// one group, and one device, where one is enough.
    #[test]
    fn no_choice_has_fewer_nodes_and_one_bin_is_used_where_one_is_enough() {
        let mut dice = Dice(6);
        for _ in 0..300 {
            let slots = slots(&mut dice);
            let free: usize = slots.iter().map(|slot| slot.free_units).sum();
            let bins = Bins::new(&slots);
            for wanted in 1..=free {
                let taken = pack_units(&slots, &bins, wanted);
                assert_eq!(taken.iter().sum::<usize>(), wanted);
                let mut pairs = taken.iter().zip(&slots);
                assert!(pairs.all(|(taken, slot)| *taken <= slot.free_units));
                let sets = 1u32..1 << slots.len();
                let enough = sets.filter_map(|set| {
                    let take =
                        |(at, slot): (usize, &Slot<'_>)| slot.free_units * (set >> at & 1) as usize;
                    let whole: Vec<usize> = slots.iter().enumerate().map(take).collect();
                    (whole.iter().sum::<usize>() >= wanted).then_some(whole)
                });
                let (mut nodes, mut groups, mut devices) = (usize::MAX, usize::MAX, usize::MAX);
                for whole in enough {
                    nodes = nodes.min(used(&slots, &whole, Level::Node));
                    groups = groups.min(used(&slots, &whole, Level::Group));
                    devices = devices.min(used(&slots, &whole, Level::Device));
                }
                let context = format!("{wanted} of {slots:?}: {taken:?}");
                assert_eq!(used(&slots, &taken, Level::Node), nodes, "{context}");
                let of = |level| used(&slots, &taken, level);
                assert!(groups > 1 || of(Level::Group) == 1, "{context}");
                assert!(devices > 1 || of(Level::Device) == 1, "{context}");
            }
        }
    }
}
