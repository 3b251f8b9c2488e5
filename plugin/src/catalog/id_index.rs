//! Finds devices by their ids. Each GetPreferredAllocation call names all free devices, which may
//! be tens of thousands.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A hash table with open addressing, of positions in a list of devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdIndex(Vec<u32>);

/// Marks an unused slot. No device has this position, because a message to the kubelet cannot have
/// so many devices.
const UNUSED: u32 = u32::MAX;

impl IdIndex {
    /// Creates an index of `count` devices. `id` returns the id at a position. If several devices
    /// have the same id, the index finds the first one.
    pub(super) fn new<'d>(count: usize, id: impl Fn(usize) -> &'d str) -> Self {
        // At least a quarter of the slots stays unused, which keeps searches short.
        let slots = (count + count / 3 + 1).next_power_of_two();
        let mut index = IdIndex(vec![UNUSED; slots]);
        for (position, number) in (0..count).zip(0..UNUSED) {
            if let Err(slot) = index.search(id(position), &id) {
                index.0[slot] = number;
            }
        }
        index
    }

    /// Returns the position of the device with an id.
    pub(super) fn find<'d>(&self, wanted: &str, id: impl Fn(usize) -> &'d str) -> Option<usize> {
        self.search(wanted, id).ok()
    }

    /// Returns the position of the device with an id, or else the unused slot at which the search
    /// ended.
    fn search<'d>(&self, wanted: &str, id: impl Fn(usize) -> &'d str) -> Result<usize, usize> {
        let mut hasher = DefaultHasher::new();
        wanted.hash(&mut hasher);
        let mask = self.0.len() - 1;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "any bits of the hash will do"
        )]
        let mut slot = hasher.finish() as usize & mask;
        loop {
            let position = match self.0[slot] {
                UNUSED => return Err(slot),
                position => position as usize,
            };
            if id(position) == wanted {
                return Ok(position);
            }
            slot = (slot + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_found_and_no_other() {
        for count in [0, 1, 2, 3, 5, 100, 767, 768, 769] {
            let ids: Vec<String> = (0..count).map(|n| format!("npu-{n}")).collect();
            let id = |position: usize| ids[position].as_str();
            let index = IdIndex::new(count, id);
            for (position, wanted) in ids.iter().enumerate() {
                assert_eq!(index.find(wanted, id), Some(position), "{count}");
            }
            for other in ["", "npu", "npu-00", "npu-1000"] {
                assert_eq!(index.find(other, id), None, "{count}");
            }
        }
    }
}
