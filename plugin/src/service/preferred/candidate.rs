//! What is chosen from.

/// One available device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    /// Its place in the resource.
    pub(super) position: usize,
    /// The hardware that it is, or is a share of.
    pub(super) hardware: &'a str,
    /// Its NUMA node.
    pub(super) numa: Option<u32>,
    /// The group that it belongs to.
    pub(super) group: Option<&'a str>,
    /// Whether it has to be chosen.
    pub(super) must: bool,
    /// How many shares of its hardware are not available: others have them.
    /// Counted where the choice is to be spread.
    pub(super) used: usize,
}
