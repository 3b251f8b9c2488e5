//! The devices of one node, as far as they can be known from outside it: how many
//! units of each are free, by the choice that the node's plugin makes as well
//! ([`device_class::placement`]).

use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::{Arc, LazyLock};

use device_class::placement::{Slot, best_fit, pack};

use super::config::{Layout, MAX_DEVICES};

/// Units taken of devices: the device's index, and how many.
pub type Taken = Box<[(u16, u32)]>;

/// The devices of one node and resource.
#[derive(Debug, Clone)]
pub struct Devices {
    layout: Arc<Layout>,
    free: Vec<u32>,
    unhealthy: usize,
    exact: bool,
}

/// Names for groups: placement compares names.
static GROUPS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..MAX_DEVICES).map(|group| group.to_string()).collect());

impl Devices {
    /// The idle devices of a node. `None`: the capacity is not a whole number of
    /// devices, or there are too many.
    pub fn new(layout: &Arc<Layout>, capacity: u64) -> Option<Self> {
        let units = layout.units_per_device;
        let count = capacity / units;
        let fits = capacity.is_multiple_of(units) && (1..=MAX_DEVICES).contains(&count);
        let units = u32::try_from(units).ok().filter(|_| fits)?;
        Some(Self {
            layout: Arc::clone(layout),
            free: vec![units; usize::try_from(count).ok()?],
            unhealthy: 0,
            exact: true,
        })
    }

    /// Whether these are the devices of this layout and capacity.
    pub fn are(&self, layout: &Layout, capacity: u64) -> bool {
        *self.layout == *layout && self.total() == capacity
    }

    /// How many units of each are free.
    pub fn free(&self) -> &[u32] {
        &self.free
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether the free units are known: every allocation was seen when it was
    /// made. Otherwise they are the most likely ones.
    pub fn are_exact(&self) -> bool {
        self.exact && self.unhealthy == 0
    }

    /// From now on the free units are estimates, until all devices are idle.
    pub fn doubt(&mut self) {
        self.exact = self.are_idle();
    }

    /// Sets how many units are not allocatable. Which devices they belong to is not
    /// known: idle ones are assumed, because pods on a failed device do not finish.
    pub fn set_unhealthy(&mut self, units: u64) {
        let devices = units.div_ceil(self.layout.units_per_device);
        self.unhealthy = usize::try_from(devices)
            .map_or(self.free.len(), |devices| devices.min(self.free.len()));
    }

    /// Whether all claims fit, one after the other.
    pub fn fit(&self, claims: &[u64]) -> bool {
        let usable = self.usable();
        match (claims, self.layout.one_device) {
            ([claim], true) => usable.iter().any(|free| u64::from(*free) >= *claim),
            (_, true) => self.choose(claims).is_some(),
            (_, false) => sum(&usable) >= total(claims),
        }
    }

    /// Takes the units of a pod's claims. If they do not fit, because the node and this
    /// view of it differ, as many units as are free are taken.
    pub fn take(&mut self, claims: &[u64]) -> Taken {
        let chosen = self.choose(claims);
        self.exact &= chosen.is_some() && self.unhealthy == 0;
        let chosen = chosen.unwrap_or_else(|| {
            let wanted = usize::try_from(total(claims)).unwrap_or(usize::MAX);
            pairs(&pack(&self.slots(&self.free), wanted))
        });
        for (at, units) in &chosen {
            self.free[usize::from(*at)] -= units;
        }
        chosen.into()
    }

    /// Frees units.
    pub fn release(&mut self, taken: &[(u16, u32)]) {
        for (at, units) in taken {
            self.free[usize::from(*at)] += units;
        }
        self.exact |= self.are_idle();
    }

    /// Units in use, after the largest claim was served, of the device that serves
    /// it; `None` if no single device does.
    pub fn use_of_best_device(&self, claims: &[u64]) -> Option<u64> {
        let claim = *claims.iter().max()?;
        let usable = self.usable();
        let enough = usable.iter().map(|free| u64::from(*free));
        let best = enough.filter(|free| *free >= claim).min()?;
        Some(self.layout.units_per_device - best + claim)
    }

    /// How many boundaries (NUMA node, group) a claim must cross although an idle one
    /// would hold it.
    pub fn crossings(&self, claims: &[u64]) -> u8 {
        let usable = self.usable();
        let rows = [
            self.layout.devices_per_numa_node,
            self.layout.devices_per_group,
        ];
        let crossed = |row: usize| {
            let whole = self.layout.units_per_device.saturating_mul(row as u64);
            claims
                .iter()
                .any(|claim| *claim <= whole && !usable.chunks(row).any(|part| sum(part) >= *claim))
        };
        rows.into_iter()
            .flatten()
            .map(|row| u8::from(crossed(row)))
            .sum()
    }

    /// Whether no device can serve the claim, however the claims in use are distributed
    /// over them.
    pub fn certainly_full<'a>(&self, in_use: impl Iterator<Item = &'a u64>, claim: u64) -> bool {
        let units = self.layout.units_per_device;
        if !self.layout.one_device {
            return false;
        }
        // Claims that leave too little on a device, and of which no two share one.
        let room = units.saturating_sub(claim);
        let blocking = in_use.filter(|used| **used > room && **used > units / 2);
        claim > units || blocking.count() >= self.free.len()
    }

    fn choose(&self, claims: &[u64]) -> Option<Vec<(u16, u32)>> {
        let usable = self.usable();
        let mut slots = self.slots(&usable);
        let mut taken = vec![0; slots.len()];
        for claim in claims {
            let wanted = usize::try_from(*claim).ok()?;
            let new = if self.layout.one_device {
                let mut one = vec![0; slots.len()];
                one[best_fit(&slots, wanted)?] = wanted;
                one
            } else {
                let several = pack(&slots, wanted);
                if several.iter().sum::<usize>() < wanted {
                    return None;
                }
                several
            };
            for (at, units) in new.into_iter().enumerate() {
                slots[at].free -= units;
                taken[at] += units;
            }
        }
        Some(pairs(&taken))
    }

    fn slots(&self, free: &[u32]) -> Vec<Slot<'static>> {
        let slot = |(at, free): (usize, &u32)| Slot {
            numa: self
                .layout
                .devices_per_numa_node
                .and_then(|row| u32::try_from(at / row).ok()),
            group: self
                .layout
                .devices_per_group
                .map(|row| GROUPS[at / row].as_str()),
            free: *free as usize,
            held: false,
        };
        free.iter().enumerate().map(slot).collect()
    }

    /// The free units, without those of devices that are assumed to have failed.
    fn usable(&self) -> Cow<'_, [u32]> {
        if self.unhealthy == 0 {
            return Cow::Borrowed(&self.free);
        }
        let mut order: Vec<usize> = (0..self.free.len()).collect();
        order.sort_by_key(|at| (Reverse(self.free[*at]), Reverse(*at)));
        let mut usable = self.free.clone();
        for at in order.into_iter().take(self.unhealthy) {
            usable[at] = 0;
        }
        Cow::Owned(usable)
    }

    fn are_idle(&self) -> bool {
        let units = self.layout.units_per_device;
        self.free.iter().all(|free| u64::from(*free) == units)
    }

    fn total(&self) -> u64 {
        self.layout.units_per_device * self.free.len() as u64
    }
}

fn pairs(taken: &[usize]) -> Vec<(u16, u32)> {
    let taken = taken.iter().enumerate().filter(|(_, units)| **units > 0);
    let pair =
        |(at, units): (usize, &usize)| Some((u16::try_from(at).ok()?, u32::try_from(*units).ok()?));
    taken.filter_map(pair).collect()
}

fn sum(free: &[u32]) -> u64 {
    free.iter().map(|free| u64::from(*free)).sum()
}

fn total(claims: &[u64]) -> u64 {
    claims
        .iter()
        .fold(0, |sum, claim| sum.saturating_add(*claim))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn devices(count: u64, units: u64, one_device: bool) -> Devices {
        let layout = Layout {
            labels: [].into(),
            units_per_device: units,
            one_device,
            devices_per_numa_node: Some(4),
            devices_per_group: Some(2),
        };
        Devices::new(&Arc::new(layout), count * units).unwrap()
    }

    #[test]
    fn eight_units_do_not_fit_on_four_and_four() {
        let mut node = devices(2, 8, true);
        node.take(&[4]);
        node.take(&[8]);
        assert!(node.fit(&[4]) && !node.fit(&[5]));
        let mut node = devices(2, 8, true);
        // Two claims of one pod, each on a device of its own.
        node.take(&[4, 8]);
        assert_eq!(node.free(), [4, 0]);
        node.release(&[(1, 4)]);
        assert_eq!(node.free(), [4, 4]);
        assert!(!node.fit(&[8]) && node.fit(&[4, 4]) && !node.fit(&[4, 4, 1]));
    }

    #[test]
    fn layouts_that_a_capacity_contradicts_are_not_used() {
        let layout = Arc::new(devices(1, 8, true).layout().clone());
        assert!(Devices::new(&layout, 12).is_none());
        assert!(Devices::new(&layout, 0).is_none());
        assert!(Devices::new(&layout, 8 * (MAX_DEVICES + 1)).is_none());
        assert!(Devices::new(&layout, 8 * MAX_DEVICES).is_some());
    }

    #[test]
    fn a_failed_device_is_assumed_to_be_an_idle_one() {
        let mut node = devices(2, 8, true);
        node.take(&[3]);
        assert!(node.are_exact());
        node.set_unhealthy(8);
        assert!(!node.are_exact());
        assert!(node.fit(&[5]) && !node.fit(&[6]));
        node.set_unhealthy(0);
        assert!(node.fit(&[6]));
        node.set_unhealthy(u64::MAX);
        assert!(!node.fit(&[1]));
    }

    #[test]
    fn what_does_not_fit_is_a_guess_until_all_is_idle() {
        let mut node = devices(1, 8, true);
        let first = node.take(&[6]);
        let second = node.take(&[6]);
        assert!(!node.are_exact());
        assert_eq!(node.free(), [0]);
        node.release(&first);
        assert!(!node.are_exact());
        node.release(&second);
        assert!(node.are_exact());
        assert_eq!(node.free(), [8]);
    }

    #[test]
    fn crossings_count_where_an_idle_bin_would_do() {
        let mut node = devices(8, 1, false);
        assert_eq!(node.crossings(&[2]), 0);
        // More than a group or a NUMA node has crosses them in any case.
        assert_eq!(node.crossings(&[8]), 0);
        // One device of each group.
        for at in [0, 2, 4, 6] {
            node.free[at] = 0;
        }
        assert_eq!(node.crossings(&[2]), 1);
        node.free[1] = 0;
        node.free[5] = 0;
        assert_eq!(node.crossings(&[2]), 2);
        assert_eq!(node.crossings(&[1]), 0);
    }

    #[test]
    fn the_device_that_is_left_fullest_is_the_one_that_serves() {
        let mut node = devices(2, 80, true);
        node.take(&[50]);
        assert_eq!(node.use_of_best_device(&[30]), Some(80));
        assert_eq!(node.use_of_best_device(&[40]), Some(40));
        assert_eq!(node.use_of_best_device(&[81]), None);
    }

    /// Whether some distribution of the claims over the devices leaves room for one more.
    fn some_way(free: &mut [u64], claims: &[u64], one_more: u64) -> bool {
        let Some((first, rest)) = claims.split_first() else {
            return free.iter().any(|free| *free >= one_more);
        };
        (0..free.len()).any(|at| {
            if free[at] < *first {
                return false;
            }
            free[at] -= first;
            let found = some_way(free, rest, one_more);
            free[at] += first;
            found
        })
    }

    proptest! {
        #[test]
        fn certainly_full_means_that_there_is_no_way(
            claims in prop::collection::vec(1..=6_u64, 0..6), one_more in 1..=8_u64,
        ) {
            let node = devices(3, 6, true);
            let full = node.certainly_full(claims.iter(), one_more);
            prop_assert!(!full || !some_way(&mut [6, 6, 6], &claims, one_more));
        }

        #[test]
        fn units_come_back_as_they_were_taken(
            pods in prop::collection::vec(prop::collection::vec(1..=9_u64, 1..4), 1..12),
            one_device: bool,
        ) {
            let mut node = devices(4, 8, one_device);
            let taken: Vec<Taken> = pods.iter().map(|claims| {
                let (fits, before) = (node.fit(claims), sum(node.free()));
                let taken = node.take(claims);
                let units: u64 = taken.iter().map(|(_, units)| u64::from(*units)).sum();
                assert_eq!(sum(node.free()) + units, before);
                assert!(!fits || units == total(claims));
                assert!(fits || !node.are_exact());
                taken
            }).collect();
            for taken in &taken {
                node.release(taken);
            }
            prop_assert_eq!(node.free(), [8; 4]);
            prop_assert!(node.are_exact());
        }
    }
}
