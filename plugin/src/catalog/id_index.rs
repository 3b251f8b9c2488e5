//! Finds devices by their ids. The kubelet names all free devices in each call, tens of thousands
//! of them.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A hash table of positions in a list of devices, with open addressing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdIndex(Vec<u32>);

/// The mark of a free place. A message to the kubelet has room for fewer devices.
const FREE: u32 = u32::MAX;

impl IdIndex {
    /// Creates an index of `count` devices, whose ids `id` returns by position. If several have the
    /// same id, the first is found.
    pub(super) fn new<'d>(count: usize, id: impl Fn(usize) -> &'d str) -> Self {
        // A quarter of the places stays free at least, so that searches are short.
        let places = (count + count / 3 + 1).next_power_of_two();
        let mut index = IdIndex(vec![FREE; places]);
        for (position, number) in (0..count).zip(0..FREE) {
            if let Err(place) = index.search(id(position), &id) {
                index.0[place] = number;
            }
        }
        index
    }

    /// Returns the position of the device with an id.
    pub(super) fn find<'d>(&self, wanted: &str, id: impl Fn(usize) -> &'d str) -> Option<usize> {
        self.search(wanted, id).ok()
    }

    /// Returns the position of the device with an id, or the free place at which the search ended.
    fn search<'d>(&self, wanted: &str, id: impl Fn(usize) -> &'d str) -> Result<usize, usize> {
        let mut hasher = DefaultHasher::new();
        wanted.hash(&mut hasher);
        let mask = self.0.len() - 1;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "any bits of the hash will do"
        )]
        let mut place = hasher.finish() as usize & mask;
        loop {
            let position = match self.0[place] {
                FREE => return Err(place),
                position => position as usize,
            };
            if id(position) == wanted {
                return Ok(position);
            }
            place = (place + 1) & mask;
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
