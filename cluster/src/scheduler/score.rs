//! The score of a node: how full it would be with the pod.

/// The highest score that kube-scheduler accepts from an extender.
pub const MAX_SCORE: u8 = 10;

/// (requested + in use) / capacity × 10, rounded down: kube-scheduler discards the
/// whole answer if one score has a fraction. Never above 10; 0 without capacity.
pub fn score(asked: u64, in_use: u64, capacity: u64) -> u8 {
    if capacity == 0 {
        return 0;
    }
    let full = u128::from(asked) + u128::from(in_use);
    let tenths = full * u128::from(MAX_SCORE) / u128::from(capacity);
    u8::try_from(tenths).map_or(MAX_SCORE, |tenths| tenths.min(MAX_SCORE))
}

/// The mean of several resources' scores by their weights, rounded down; 0 if
/// there are none.
pub fn weighted(scores: impl IntoIterator<Item = (u8, u32)>) -> u8 {
    let (mut sum, mut weights) = (0_u64, 0_u64);
    for (score, weight) in scores {
        sum += u64::from(score) * u64::from(weight);
        weights += u64::from(weight);
    }
    let mean = sum.checked_div(weights).unwrap_or(0);
    u8::try_from(mean).map_or(MAX_SCORE, |mean| mean.min(MAX_SCORE))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_published_examples() {
        for (asked, in_use, capacity, wanted) in [
            // A node of two, and a pod that requests one.
            (1, 1, 2, 10),
            (1, 0, 2, 5),
            // 3.75
            (1, 2, 8, 3),
            (1, 0, 0, 0),
            // More than there is, as after a device has failed.
            (4, 8, 8, 10),
            (u64::MAX, u64::MAX, 1, 10),
        ] {
            assert_eq!(score(asked, in_use, capacity), wanted);
        }
        assert_eq!(weighted([(10, 1), (4, 2)]), 6);
        assert_eq!(weighted([(7, 0)]), 0);
        assert_eq!(weighted([]), 0);
    }

    proptest! {
        #[test]
        fn scores_are_in_range_and_grow_with_use(
            asked: u64, in_use: u64, more: u64, capacity: u64,
        ) {
            let low = score(asked, in_use, capacity);
            let high = score(asked, in_use.saturating_add(more), capacity);
            prop_assert!(low <= high && high <= MAX_SCORE);
        }

        #[test]
        fn a_mean_is_between_its_parts(parts in prop::collection::vec((0..=10_u8, 1..=u32::MAX), 1..9)) {
            let scores = || parts.iter().map(|(score, _)| *score);
            let mean = weighted(parts.iter().copied());
            prop_assert!(scores().min() <= Some(mean) && Some(mean) <= scores().max());
        }
    }
}
