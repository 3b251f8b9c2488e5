//! Implements the default placement: a best-fit choice of devices for one container, without I/O.
//!
//! A device has one unit or, if it is shared, several. Units are packed into as few devices,
//! groups and NUMA nodes as possible. Of those that are used in part, the smallest sufficient one
//! is chosen, so that large free sets stay complete for later requests.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A device with free units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot<'a> {
    pub(super) numa: Option<u32>,
    pub(super) group: Option<&'a str>,
    /// The number of free units of the device.
    pub(super) free: usize,
    /// Whether the container already has units of the device.
    pub(super) held: bool,
}

/// Returns the number of units to take from each slot. Their sum is `wanted`, or all free units if
/// there are fewer. Units near those that the container already has are preferred.
pub(super) fn pack(slots: &[Slot<'_>], bins: &Bins, wanted: usize) -> Vec<usize> {
    let taken = vec![0; slots.len()];
    let mut packer = Packer { slots, bins, taken };
    let mut rest = wanted;
    for level in [Level::Device, Level::Group, Level::Node] {
        let mut held = vec![false; slots.len()];
        for (at, slot) in slots.iter().enumerate() {
            held[bins.bin_number(at, level)] |= slot.held;
        }
        let near = (0..slots.len()).filter(|at| held[bins.bin_number(*at, level)]);
        rest -= packer.take_units(&near.collect::<Vec<_>>(), rest);
    }
    packer.take_units(&(0..slots.len()).collect::<Vec<_>>(), rest);
    packer.taken
}

/// Returns the smallest slot that has `wanted` free units. Returns `None` if no slot has as many,
/// or if the container already has units of another device.
pub(super) fn find_best_fit(slots: &[Slot<'_>], bins: &Bins, wanted: usize) -> Option<usize> {
    let taken = vec![0; slots.len()];
    let packer = Packer { slots, bins, taken };
    let held: Vec<usize> = (0..slots.len()).filter(|at| slots[*at].held).collect();
    match held.as_slice() {
        [] => packer.find_smallest(&(0..slots.len()).collect::<Vec<_>>(), wanted, Level::Device),
        [only] => (slots[*only].free >= wanted).then_some(*only),
        _ => None,
    }
}

/// The levels at which slots form bins, from the smallest bins to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Device,
    Group,
    Node,
}

/// The bin number of each slot at each [`Level`]. At each level bins are numbered from 0 in the
/// order of their NUMA nodes, then groups, then slots. A device without a group is a group of its
/// own.
#[derive(Debug)]
pub(super) struct Bins([Vec<usize>; 3]);

impl Bins {
    pub(super) fn new(slots: &[Slot<'_>]) -> Self {
        let mut order: Vec<usize> = (0..slots.len()).collect();
        order.sort_by_key(|at| (slots[*at].numa, slots[*at].group));
        let [mut devices, mut groups, mut nodes] = [(); 3].map(|()| vec![0; slots.len()]);
        let (mut group, mut node) = (0, 0);
        for (number, at) in order.iter().enumerate() {
            if number > 0 {
                let (slot, before) = (&slots[*at], &slots[order[number - 1]]);
                let is_other_node = slot.numa != before.numa;
                node += usize::from(is_other_node);
                let is_same = !is_other_node && slot.group.is_some() && slot.group == before.group;
                group += usize::from(!is_same);
            }
            devices[*at] = number;
            groups[*at] = group;
            nodes[*at] = node;
        }
        Bins([devices, groups, nodes])
    }

    /// Returns the number of the bin that contains a slot.
    pub(super) fn bin_number(&self, at: usize, level: Level) -> usize {
        self.0[level as usize][at]
    }
}

struct Packer<'a> {
    slots: &'a [Slot<'a>],
    bins: &'a Bins,
    taken: Vec<usize>,
}

impl Packer<'_> {
    fn count_free(&self, at: usize) -> usize {
        self.slots[at].free - self.taken[at]
    }

    /// Returns the free units of the slots in `set`, added up by bin.
    fn sum_free_by_bin(&self, set: &[usize], level: Level) -> Vec<usize> {
        let mut free = vec![0; self.slots.len()];
        for at in set {
            free[self.bins.bin_number(*at, level)] += self.count_free(*at);
        }
        free
    }

    /// Takes up to `wanted` units from the slots in `set`, and returns how many it took.
    fn take_units(&mut self, set: &[usize], wanted: usize) -> usize {
        let free = set.iter().map(|at| self.count_free(*at)).sum();
        let wanted = wanted.min(free);
        if wanted > 0 {
            self.take_nearest(set, wanted);
        }
        wanted
    }

    /// Takes `wanted` units from the slots in `set`, which has enough: from one device if
    /// possible, otherwise from one group, one node, or several nodes.
    fn take_nearest(&mut self, set: &[usize], wanted: usize) {
        if let Some(at) = self.find_smallest(set, wanted, Level::Device) {
            self.taken[at] += wanted;
        } else if let Some(at) = self.find_smallest(set, wanted, Level::Group) {
            let members =
                self.slots_in_bin(set, self.bins.bin_number(at, Level::Group), Level::Group);
            self.take_largest_bins(&members, wanted, Level::Device);
        } else if let Some(node) = self.find_node_of_fewest_groups(set, wanted) {
            let members = self.slots_in_bin(set, node, Level::Node);
            self.take_largest_bins(&members, wanted, Level::Group);
        } else {
            self.take_largest_bins(set, wanted, Level::Node);
        }
    }

    /// Takes the largest bins completely, until one bin suffices for the rest.
    fn take_largest_bins(&mut self, set: &[usize], wanted: usize, level: Level) {
        let free = self.sum_free_by_bin(set, level).into_iter().enumerate();
        let mut bins: Vec<(usize, usize)> = free.filter(|(_, free)| *free > 0).collect();
        bins.sort_by_key(|(_, free)| Reverse(*free));
        let mut rest = wanted;
        let mut is_whole = vec![false; self.slots.len()];
        for (bin, free) in bins {
            if free >= rest {
                break;
            }
            rest -= free;
            is_whole[bin] = true;
        }
        let (full, others): (Vec<usize>, Vec<usize>) = set
            .iter()
            .partition(|at| is_whole[self.bins.bin_number(**at, level)]);
        for at in full {
            self.taken[at] = self.slots[at].free;
        }
        self.take_units(&others, rest);
    }

    /// Finds the node from which [`Packer::take_largest_bins`] takes `wanted` units out of the
    /// fewest groups. Ties are broken by the fewest units left in the last group, the smallest
    /// node, and the first one.
    fn find_node_of_fewest_groups(&self, set: &[usize], wanted: usize) -> Option<usize> {
        let by_group = self.sum_free_by_bin(set, Level::Group);
        let mut is_counted = vec![false; self.slots.len()];
        // The first slot of each node, and the free units of each of its groups.
        let mut nodes: BTreeMap<usize, (usize, Vec<usize>)> = BTreeMap::new();
        for at in set {
            let node = self.bins.bin_number(*at, Level::Node);
            let (_, sizes) = nodes.entry(node).or_insert((*at, Vec::new()));
            let group = self.bins.bin_number(*at, Level::Group);
            if !std::mem::replace(&mut is_counted[group], true) {
                sizes.push(by_group[group]);
            }
        }
        let costs = nodes.into_iter().filter_map(|(node, (first, mut sizes))| {
            sizes.sort_unstable();
            let free: usize = sizes.iter().sum();
            let mut rest = wanted;
            let mut count = 1;
            while *sizes.last()? < rest {
                rest -= sizes.pop()?;
                count += 1;
            }
            let last = sizes.into_iter().find(|size| *size >= rest)?;
            Some((count, last - rest, free, first, node))
        });
        costs.min().map(|(.., node)| node)
    }

    fn slots_in_bin(&self, set: &[usize], bin: usize, level: Level) -> Vec<usize> {
        let inside = set.iter();
        let inside = inside.filter(|at| self.bins.bin_number(**at, level) == bin);
        inside.copied().collect()
    }

    /// Finds a slot in the smallest bin with `wanted` free units. Ties are broken by the smallest
    /// group, the smallest node, and the first slot.
    fn find_smallest(&self, set: &[usize], wanted: usize, level: Level) -> Option<usize> {
        let free = [level, Level::Group, Level::Node].map(|level| self.sum_free_by_bin(set, level));
        let sizes = |at: usize| {
            [
                free[0][self.bins.bin_number(at, level)],
                free[1][self.bins.bin_number(at, Level::Group)],
                free[2][self.bins.bin_number(at, Level::Node)],
            ]
        };
        let fitting = set.iter().filter(|at| sizes(**at)[0] >= wanted);
        fitting.copied().min_by_key(|at| (sizes(*at), *at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::service::preferred::tests::Dice;

    fn slot(free: usize, numa: u32, group: &'static str, held: bool) -> Slot<'static> {
        Slot {
            numa: Some(numa),
            group: (!group.is_empty()).then_some(group),
            free,
            held,
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
            let found = pack(&slots, &Bins::new(&slots), wanted);
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
        assert_eq!(pack(&slots, &bins, 3), [0, 3, 0]);
        assert_eq!(pack(&slots, &bins, 12), [3, 9, 0]);
    }

    /// Up to seven devices with up to three free units.
    fn slots(dice: &mut Dice) -> Vec<Slot<'static>> {
        let (nodes, groups) = (1 + dice.below(3), 1 + dice.below(3));
        let count = 1 + dice.below(7);
        let slot = |_| Slot {
            numa: (dice.below(4) > 0).then(|| u32::try_from(dice.below(nodes)).unwrap()),
            group: (dice.below(3) > 0).then(|| ["a", "b", "c"][dice.below(groups)]),
            free: dice.below(4),
            held: false,
        };
        (0..count).map(slot).collect()
    }

    /// The number of bins from which units are taken.
    fn used(slots: &[Slot<'_>], taken: &[usize], level: Level) -> usize {
        let used = (0..taken.len()).filter(|at| taken[*at] > 0);
        let bin = |at: usize| {
            let Slot { numa, group, .. } = slots[at];
            match (level, group) {
                (Level::Node, _) => (numa, None, None),
                (Level::Group, Some(_)) => (numa, group, None),
                (Level::Group, None) | (Level::Device, _) => (numa, group, Some(at)),
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
            let free: usize = slots.iter().map(|slot| slot.free).sum();
            let bins = Bins::new(&slots);
            for wanted in 1..=free {
                let taken = pack(&slots, &bins, wanted);
                assert_eq!(taken.iter().sum::<usize>(), wanted);
                let mut pairs = taken.iter().zip(&slots);
                assert!(pairs.all(|(taken, slot)| *taken <= slot.free));
                let sets = 1u32..1 << slots.len();
                let enough = sets.filter_map(|set| {
                    let take =
                        |(at, slot): (usize, &Slot<'_>)| slot.free * (set >> at & 1) as usize;
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
