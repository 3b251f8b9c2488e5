//! Finds devices by their ids. Each GetPreferredAllocation call names all free devices, which may
//! be tens of thousands.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A hash table with open addressing, which maps the ids of devices to their positions in a list.
/// It stores only the positions (4 bytes each), because the list has the ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdIndex(Vec<u32>);

/// The value of an unused slot. No device has this position, because a message to the kubelet
/// cannot list so many devices.
const UNUSED_SLOT: u32 = u32::MAX;

impl IdIndex {
    /// Creates an index of `count` devices. `get_id` returns the id of the device at a position. If
    /// several devices have the same id, the index finds the first of them.
    pub(super) fn new<'d>(count: usize, get_id: impl Fn(usize) -> &'d str) -> Self {
        // At most three quarters of the slots are used, so that searches are short.
        let slot_count = (count + count / 3 + 1).next_power_of_two();
        let mut index = IdIndex(vec![UNUSED_SLOT; slot_count]);
        for (position, entry) in (0..count).zip(0..UNUSED_SLOT) {
            if let Err(slot) = index.find_slot(get_id(position), &get_id) {
                index.0[slot] = entry;
            }
        }
        index
    }

    /// Returns the position of the device with the id `id`. `get_id` must return the same ids as it
    /// did for [`IdIndex::new`].
    pub(super) fn find_position<'d>(
        &self,
        id: &str,
        get_id: impl Fn(usize) -> &'d str,
    ) -> Option<usize> {
        self.find_slot(id, get_id).ok()
    }

    /// Returns the position of the device with this id. If there is none, the error is the unused
    /// slot at which the id can be inserted.
    fn find_slot<'d>(&self, id: &str, get_id: impl Fn(usize) -> &'d str) -> Result<usize, usize> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let mask = self.0.len() - 1;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "any bits of the hash will do"
        )]
        let mut slot = hasher.finish() as usize & mask;
        loop {
            let position = match self.0[slot] {
                UNUSED_SLOT => return Err(slot),
                position => position as usize,
            };
            if get_id(position) == id {
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
                assert_eq!(index.find_position(wanted, id), Some(position), "{count}");
            }
            for other in ["", "npu", "npu-00", "npu-1000"] {
                assert_eq!(index.find_position(other, id), None, "{count}");
            }
        }
    }
}
