//! The score of a node, which is higher the fuller the node would be with the pod.

/// The highest score that kube-scheduler accepts from an extender.
pub const MAX_SCORE: u8 = 10;

/// The use of one resource of a node, with the units that a pod requests of it.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub requested: u64,
    pub in_use: u64,
    pub total: u64,
    /// The weight of the resource's score.
    pub weight: u32,
}

/// Returns (requested + in use) / total × 10 as the weighted mean of all resources. The score
/// is a whole number, because kube-scheduler discards the whole answer if one score has a
/// fraction. It is rounded up on a node that is in use and down on an idle one, so that of two
/// nodes with the same size the one in use gets the higher score. The score is 0 without
/// resources, or if none has a unit.
pub fn score(loads: impl IntoIterator<Item = Load>) -> u8 {
    let (mut sum, mut weights, mut idle) = (0_u64, 0_u64, true);
    for load in loads {
        sum += u64::from(load.weight) * u64::from(load.score());
        weights += u64::from(load.weight);
        idle &= load.in_use == 0;
    }
    let mean = if idle {
        sum.checked_div(weights).unwrap_or(0)
    } else {
        sum.div_ceil(weights.max(1))
    };
    u8::try_from(mean).map_or(MAX_SCORE, |mean| mean.min(MAX_SCORE))
}

impl Load {
    fn score(self) -> u8 {
        if self.total == 0 {
            return 0;
        }
        let full = u128::from(self.requested) + u128::from(self.in_use);
        let tenths = full * u128::from(MAX_SCORE);
        let rounded = match self.in_use {
            0 => tenths / u128::from(self.total),
            _ => tenths.div_ceil(u128::from(self.total)),
        };
        u8::try_from(rounded).map_or(MAX_SCORE, |score| score.min(MAX_SCORE))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn load(requested: u64, in_use: u64, total: u64, weight: u32) -> Load {
        Load {
            requested,
            in_use,
            total,
            weight,
        }
    }

    #[test]
    fn the_published_examples() {
        for (requested, in_use, total, wanted) in [
            // A node of two, and a pod that requests one.
            (1, 1, 2, 10),
            (1, 0, 2, 5),
            // 3.75, of a node in use and of an idle one.
            (1, 2, 8, 4),
            (3, 0, 8, 3),
            (1, 0, 0, 0),
            (1, 1, 0, 0),
            // More units are used than exist, as after a device has failed.
            (4, 8, 8, 10),
            (u64::MAX, u64::MAX, 1, 10),
        ] {
            assert_eq!(score([load(requested, in_use, total, 1)]), wanted);
        }
        assert_eq!(score([load(1, 1, 2, 1), load(1, 3, 10, 2)]), 6);
        assert_eq!(score([]), 0);
    }

    proptest! {
        #[test]
        fn a_node_in_use_has_more_points_than_an_idle_one_of_its_size(
            units in prop::collection::vec((1..=640_u64, 0..=640_u64, 640..=1280_u64, 1..=9_u32), 1..4),
        ) {
            let fits = |(requested, in_use, total, _): &(u64, u64, u64, u32)| requested + in_use <= *total;
            prop_assume!(units.iter().all(fits) && units.iter().any(|unit| unit.1 > 0));
            let used = units.iter().map(|unit| load(unit.0, unit.1, unit.2, unit.3));
            let idle = units.iter().map(|unit| load(unit.0, 0, unit.2, unit.3));
            prop_assert!(score(used) > score(idle));
        }

        #[test]
        fn scores_are_in_range_and_grow_with_use(
            requested: u64, in_use: u64, more: u64, total: u64, weight in 1..=u32::MAX,
        ) {
            let low = score([load(requested, in_use, total, weight)]);
            let high = score([load(requested, in_use.saturating_add(more), total, weight)]);
            prop_assert!(low <= high && high <= MAX_SCORE);
        }
    }
}
