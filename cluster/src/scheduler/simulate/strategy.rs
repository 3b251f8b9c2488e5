//! How nodes are chosen.

use crate::scheduler::config::ScoreBy;

/// A strategy for choosing nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strategy {
    /// Its name in tables.
    pub name: &'static str,
    /// Whether kube-scheduler scores the resource, by NodeResourcesFit MostAllocated.
    pub(super) most_allocated: bool,
    /// What the extender scores, if there is one.
    pub(super) extender: Option<ScoreBy>,
}

impl Strategy {
    /// All strategies that are compared.
    pub const ALL: [Self; 5] = [
        Self {
            name: "default",
            most_allocated: false,
            extender: None,
        },
        Self {
            name: "MostAllocated",
            most_allocated: true,
            extender: None,
        },
        Self {
            name: "extender",
            most_allocated: false,
            extender: Some(ScoreBy::Node),
        },
        Self {
            name: "extender, device",
            most_allocated: false,
            extender: Some(ScoreBy::Device),
        },
        Self {
            name: "both, device",
            most_allocated: true,
            extender: Some(ScoreBy::Device),
        },
    ];
}

/// How many feasible nodes kube-scheduler searches for, of all nodes: at least 100, and
/// otherwise 50 % minus 1 % for each 125 nodes, but at least 5 %.
pub(super) fn enough_nodes(nodes: usize) -> usize {
    let percent = 50_usize.saturating_sub(nodes / 125).max(5);
    (nodes * percent / 100).max(100).min(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_nodes_are_compared_as_kube_scheduler_compares() {
        for (nodes, enough) in [(1, 1), (100, 100), (1000, 420), (5000, 500), (20_000, 1000)] {
            assert_eq!(enough_nodes(nodes), enough);
        }
    }
}
