//! The default placement: a pure best-fit choice of devices for one container.
//!
//! A device has one unit or, where it is shared, several. Units are packed into
//! as few devices, groups and NUMA nodes as possible, and of those that are
//! used in part, the smallest that is sufficient: large free parts stay whole
//! for later requests.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A device with free units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot<'a> {
    pub(super) numa: Option<u32>,
    pub(super) group: Option<&'a str>,
    /// The number of units of the device that can be allocated.
    pub(super) free: usize,
    /// Whether the container has units of the device already.
    pub(super) held: bool,
}

/// Returns the number of units to take of each slot: `wanted` altogether, or all that are
/// free. Units near those that the container has already are preferred.
pub(super) fn pack(slots: &[Slot<'_>], wanted: usize) -> Vec<usize> {
    let taken = vec![0; slots.len()];
    let mut packer = Packer { slots, taken };
    let mut rest = wanted;
    for level in [Level::Device, Level::Group, Level::Node] {
        let held = (0..slots.len()).filter(|at| slots[*at].held);
        let held: BTreeSet<Bin<'_>> = held.map(|at| packer.bin(at, level)).collect();
        let near = (0..slots.len()).filter(|at| held.contains(&packer.bin(*at, level)));
        rest -= packer.take(&near.collect::<Vec<_>>(), rest);
    }
    packer.take(&(0..slots.len()).collect::<Vec<_>>(), rest);
    packer.taken
}

/// Returns the slot from which to take all `wanted` units, which is the smallest one with
/// enough free units. Returns `None` if no device has so many, or if the container has units
/// of another device.
pub(super) fn best_fit(slots: &[Slot<'_>], wanted: usize) -> Option<usize> {
    let taken = vec![0; slots.len()];
    let packer = Packer { slots, taken };
    let held: Vec<usize> = (0..slots.len()).filter(|at| slots[*at].held).collect();
    match held.as_slice() {
        [] => packer.smallest(&(0..slots.len()).collect::<Vec<_>>(), wanted, Level::Device),
        [only] => (slots[*only].free >= wanted).then_some(*only),
        _ => None,
    }
}

/// The kinds of sets of slots, the smallest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Device,
    Group,
    Node,
}

/// A device without a group is a group of its own.
type Bin<'a> = (Option<u32>, Option<&'a str>, Option<usize>);

struct Packer<'a> {
    slots: &'a [Slot<'a>],
    taken: Vec<usize>,
}

impl<'a> Packer<'a> {
    fn bin(&self, at: usize, level: Level) -> Bin<'a> {
        let Slot { numa, group, .. } = self.slots[at];
        match (level, group) {
            (Level::Node, _) => (numa, None, None),
            (Level::Group, Some(_)) => (numa, group, None),
            (Level::Group, None) | (Level::Device, _) => (numa, group, Some(at)),
        }
    }

    fn free(&self, at: usize) -> usize {
        self.slots[at].free - self.taken[at]
    }

    fn free_by_bin(&self, set: &[usize], level: Level) -> BTreeMap<Bin<'a>, usize> {
        let mut free = BTreeMap::new();
        for at in set {
            *free.entry(self.bin(*at, level)).or_default() += self.free(*at);
        }
        free
    }

    /// Takes up to `wanted` units of a set, and returns how many.
    fn take(&mut self, set: &[usize], wanted: usize) -> usize {
        let free = set.iter().map(|at| self.free(*at)).sum();
        let wanted = wanted.min(free);
        if wanted > 0 {
            self.pick(set, wanted);
        }
        wanted
    }

    /// Takes `wanted` units of a set that has them: of one device if one has
    /// enough, else of one group, else of one node, else of several.
    fn pick(&mut self, set: &[usize], wanted: usize) {
        if let Some(at) = self.smallest(set, wanted, Level::Device) {
            self.taken[at] += wanted;
        } else if let Some(at) = self.smallest(set, wanted, Level::Group) {
            let members = self.members(set, self.bin(at, Level::Group), Level::Group);
            self.pick_several(&members, wanted, Level::Device);
        } else if let Some(node) = self.node_of_fewest_groups(set, wanted) {
            let members = self.members(set, node, Level::Node);
            self.pick_several(&members, wanted, Level::Group);
        } else {
            self.pick_several(set, wanted, Level::Node);
        }
    }

    /// Takes the largest bins whole, until one bin is enough for the rest.
    fn pick_several(&mut self, set: &[usize], wanted: usize, level: Level) {
        let mut bins: Vec<(Bin<'a>, usize)> = self.free_by_bin(set, level).into_iter().collect();
        bins.sort_by_key(|(_, free)| Reverse(*free));
        let mut rest = wanted;
        let mut whole = BTreeSet::new();
        for (bin, free) in bins {
            if free >= rest {
                break;
            }
            rest -= free;
            whole.insert(bin);
        }
        let (full, others): (Vec<usize>, Vec<usize>) = set
            .iter()
            .partition(|at| whole.contains(&self.bin(**at, level)));
        for at in full {
            self.taken[at] = self.slots[at].free;
        }
        self.take(&others, rest);
    }

    /// The node of which [`Packer::pick_several`] takes `wanted` units from the fewest groups,
    /// with the least left over in the last one; of equal ones the smallest, then the first.
    fn node_of_fewest_groups(&self, set: &[usize], wanted: usize) -> Option<Bin<'a>> {
        let mut nodes: BTreeMap<Bin<'a>, (usize, BTreeMap<Bin<'a>, usize>)> = BTreeMap::new();
        for at in set {
            let (_, groups) = nodes
                .entry(self.bin(*at, Level::Node))
                .or_insert((*at, BTreeMap::new()));
            *groups.entry(self.bin(*at, Level::Group)).or_default() += self.free(*at);
        }
        let costs = nodes.into_iter().filter_map(|(node, (first, groups))| {
            let mut sizes: Vec<usize> = groups.into_values().collect();
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

    fn members(&self, set: &[usize], bin: Bin<'a>, level: Level) -> Vec<usize> {
        let inside = set.iter().filter(|at| self.bin(**at, level) == bin);
        inside.copied().collect()
    }

    /// A slot in the smallest bin that has `wanted` free units; of equal ones
    /// that in the smallest group, then node, then the first.
    fn smallest(&self, set: &[usize], wanted: usize, level: Level) -> Option<usize> {
        let by_level =
            [level, Level::Group, Level::Node].map(|level| (level, self.free_by_bin(set, level)));
        let sizes = |at: usize| {
            let size = |(level, free): &(Level, BTreeMap<_, usize>)| free[&self.bin(at, *level)];
            [&by_level[0], &by_level[1], &by_level[2]].map(size)
        };
        let fitting = set.iter().filter(|at| sizes(**at)[0] >= wanted);
        fitting.copied().min_by_key(|at| (sizes(*at), *at))
    }
}

#[cfg(test)]
mod tests {
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
            assert_eq!(pack(&sizes(free), wanted), taken, "{wanted} of {free:?}");
        }
        for (free, wanted, at) in [
            (&[10, 4, 10][..], 4, Some(1)),
            (&[10, 4, 10], 5, Some(0)),
            (&[10, 4, 10], 11, None),
            (&[], 1, None),
        ] {
            assert_eq!(best_fit(&sizes(free), wanted), at, "{wanted} of {free:?}");
        }
    }

    #[test]
    fn a_device_that_is_held_comes_first() {
        let slots = [
            slot(4, 0, "", false),
            slot(9, 0, "", true),
            slot(4, 1, "", false),
        ];
        assert_eq!(best_fit(&slots, 3), Some(1));
        assert_eq!(best_fit(&slots, 10), None);
        assert_eq!(pack(&slots, 3), [0, 3, 0]);
        assert_eq!(pack(&slots, 12), [3, 9, 0]);
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

    fn used(packer: &Packer<'_>, taken: &[usize], level: Level) -> usize {
        let used = (0..taken.len()).filter(|at| taken[*at] > 0);
        let bins: BTreeSet<Bin<'_>> = used.map(|at| packer.bin(at, level)).collect();
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
            let packer = Packer {
                slots: &slots,
                taken: vec![0; slots.len()],
            };
            for wanted in 1..=free {
                let taken = pack(&slots, wanted);
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
                    nodes = nodes.min(used(&packer, &whole, Level::Node));
                    groups = groups.min(used(&packer, &whole, Level::Group));
                    devices = devices.min(used(&packer, &whole, Level::Device));
                }
                let context = format!("{wanted} of {slots:?}: {taken:?}");
                assert_eq!(used(&packer, &taken, Level::Node), nodes, "{context}");
                let of = |level| used(&packer, &taken, level);
                assert!(groups > 1 || of(Level::Group) == 1, "{context}");
                assert!(devices > 1 || of(Level::Device) == 1, "{context}");
            }
        }
    }
}
