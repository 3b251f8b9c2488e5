//! Computes the score of a node for a pod. A node has a higher score if more of its units would be
//! in use with the pod. Therefore nodes are filled one after the other.

/// The highest score of a node that kube-scheduler accepts from an extender.
pub const MAX_SCORE: u8 = 10;

/// The units of one resource that a node has, that its pods use, and that a pod requests.
#[derive(Debug, Clone, Copy)]
pub struct ResourceUsage {
    /// The number of units that the pod requests.
    pub requested_units: u64,
    /// The number of units that other pods on the node use.
    pub used_units: u64,
    /// The number of units that all healthy devices of the node have together.
    pub total_units: u64,
    /// The weight of this resource in the score of the node.
    pub weight: u32,
}

/// Returns the weighted mean over all resources of (requested + in use) / total × 10. The score is
/// a whole number, because kube-scheduler discards the whole answer if one score has a fraction.
/// The score is rounded up for a node that is in use, and rounded down for an idle node. Therefore,
/// of two nodes of the same size, the node that is in use has the higher score. The score is 0 if
/// `usages` is empty or if the node has no unit of any resource.
pub fn compute_score(usages: impl IntoIterator<Item = ResourceUsage>) -> u8 {
    let (mut weighted_sum, mut total_weight, mut is_idle) = (0_u64, 0_u64, true);
    for usage in usages {
        weighted_sum += u64::from(usage.weight) * u64::from(usage.compute_score());
        total_weight += u64::from(usage.weight);
        is_idle &= usage.used_units == 0;
    }
    let mean = if is_idle {
        weighted_sum.checked_div(total_weight).unwrap_or(0)
    } else {
        weighted_sum.div_ceil(total_weight.max(1))
    };
    u8::try_from(mean).map_or(MAX_SCORE, |mean| mean.min(MAX_SCORE))
}

impl ResourceUsage {
    /// Returns the score of this resource alone, from 0 to [`MAX_SCORE`].
    fn compute_score(self) -> u8 {
        if self.total_units == 0 {
            return 0;
        }
        let occupied_units = u128::from(self.requested_units) + u128::from(self.used_units);
        let dividend = occupied_units * u128::from(MAX_SCORE);
        let total_units = u128::from(self.total_units);
        let rounded_score = if self.used_units == 0 {
            dividend / total_units
        } else {
            dividend.div_ceil(total_units)
        };
        u8::try_from(rounded_score).map_or(MAX_SCORE, |score| score.min(MAX_SCORE))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usage(requested: u64, in_use: u64, total: u64, weight: u32) -> ResourceUsage {
        ResourceUsage {
            requested_units: requested,
            used_units: in_use,
            total_units: total,
            weight,
        }
    }

    #[test]
    fn scores_are_the_weighted_share_of_units_in_use() {
        for (requested, in_use, total, expected) in [
            // A node with two units, and a pod that requests one.
            (1, 1, 2, 10),
            (1, 0, 2, 5),
            // A mean of 3.75 becomes 4 on a node in use and 3 on an idle one.
            (1, 2, 8, 4),
            (3, 0, 8, 3),
            (1, 0, 0, 0),
            (1, 1, 0, 0),
            // More units are in use than exist, because a device has failed.
            (4, 8, 8, 10),
            (u64::MAX, u64::MAX, 1, 10),
        ] {
            assert_eq!(
                compute_score([usage(requested, in_use, total, 1)]),
                expected
            );
        }
        assert_eq!(compute_score([usage(1, 1, 2, 1), usage(1, 3, 10, 2)]), 6);
        assert_eq!(compute_score([]), 0);
    }

    proptest! {
        #[test]
        fn a_node_in_use_has_a_higher_score_than_an_idle_one_of_its_size(
            units in prop::collection::vec((1..=640_u64, 0..=640_u64, 640..=1280_u64, 1..=9_u32), 1..4),
        ) {
            let fits = |(requested, in_use, total, _): &(u64, u64, u64, u32)| requested + in_use <= *total;
            prop_assume!(units.iter().all(fits) && units.iter().any(|unit| unit.1 > 0));
            let used = units.iter().map(|unit| usage(unit.0, unit.1, unit.2, unit.3));
            let idle = units.iter().map(|unit| usage(unit.0, 0, unit.2, unit.3));
            prop_assert!(compute_score(used) > compute_score(idle));
        }

        #[test]
        fn scores_are_in_range_and_grow_with_use(
            requested: u64, in_use: u64, more: u64, total: u64, weight in 1..=u32::MAX,
        ) {
            let low = compute_score([usage(requested, in_use, total, weight)]);
            let high = compute_score([usage(requested, in_use.saturating_add(more), total, weight)]);
            prop_assert!(low <= high && high <= MAX_SCORE);
        }
    }
}
