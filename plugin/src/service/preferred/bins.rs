//! Which bins hold enough: as few as can be, and of these the ones with the
//! least left over.

/// As many steps are tried to find the very best, some milliseconds; beyond, a
/// good choice is made in one pass.
pub(super) const MAX_STEPS: usize = 4_000_000;

/// The indices of bins that together hold `wanted`, the best if that can be
/// known in so many steps. `None`: all of them do not.
pub(super) fn fewest(sizes: &[usize], wanted: usize, steps: usize) -> Option<Vec<usize>> {
    let mut largest: Vec<usize> = (0..sizes.len()).collect();
    largest.sort_by_key(|bin| (std::cmp::Reverse(sizes[*bin]), *bin));
    let mut held = 0;
    let count = largest.iter().take_while(|bin| {
        let more = held < wanted;
        held += if more { sizes[**bin] } else { 0 };
        more
    });
    let count = count.count();
    if held < wanted {
        return None;
    }
    let most = largest.first().map_or(0, |bin| sizes[*bin]);
    if most <= 1 {
        return Some(
            (0..sizes.len())
                .filter(|bin| sizes[*bin] == 1)
                .take(count)
                .collect(),
        );
    }
    if sizes
        .len()
        .saturating_mul(count)
        .saturating_mul(wanted + most)
        > steps
    {
        return Some(good(sizes, &largest[..count], wanted));
    }
    least_left(sizes, count, wanted, wanted + most)
}

/// All but one of the largest, and the smallest that is enough for the rest.
fn good(sizes: &[usize], largest: &[usize], wanted: usize) -> Vec<usize> {
    let Some((last, others)) = largest.split_last() else {
        return Vec::new();
    };
    let held: usize = others.iter().map(|bin| sizes[*bin]).sum();
    let rest = wanted.saturating_sub(held);
    let candidates = (0..sizes.len()).filter(|bin| !others.contains(bin) && sizes[*bin] >= rest);
    let end = candidates
        .min_by_key(|bin| (sizes[*bin], *bin))
        .unwrap_or(*last);
    others.iter().copied().chain([end]).collect()
}

/// Among all sets of `count` bins one that holds the least of at least
/// `wanted`; `limit` is more than the best holds. (The subset sum problem, by
/// dynamic programming: which sums can so many bins have, and what was the
/// last bin of each?)
fn least_left(sizes: &[usize], count: usize, wanted: usize, limit: usize) -> Option<Vec<usize>> {
    let mut last = vec![vec![None; limit + 1]; count + 1];
    for (bin, size) in sizes.iter().enumerate() {
        for used in (1..=count).rev() {
            for sum in (*size..=limit).rev() {
                let before = sum - size;
                let reached = match used {
                    1 => before == 0,
                    _ => last[used - 1][before].is_some(),
                };
                if reached && last[used][sum].is_none() {
                    last[used][sum] = Some(bin);
                }
            }
        }
    }
    let mut sum = (wanted..=limit).find(|sum| last[count][*sum].is_some())?;
    let mut picked = Vec::new();
    for used in (1..=count).rev() {
        let bin = last[used][sum]?;
        picked.push(bin);
        sum -= sizes[bin];
    }
    picked.reverse();
    Some(picked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_bins_as_can_be_and_of_these_the_least() {
        for (sizes, wanted, bins) in [
            (&[4, 2, 4][..], 2, Some(vec![1])),
            (&[4, 2, 4], 4, Some(vec![0])),
            (&[4, 3, 4], 6, Some(vec![0, 1])),
            (&[1, 1, 1], 2, Some(vec![0, 1])),
            (&[8, 5, 3, 3], 6, Some(vec![0])),
            (&[5, 5, 3, 3], 6, Some(vec![2, 3])),
            (&[2, 2], 5, None),
            (&[], 1, None),
        ] {
            assert_eq!(
                fewest(sizes, wanted, MAX_STEPS),
                bins,
                "{wanted} of {sizes:?}"
            );
        }
    }

    #[test]
    fn the_quick_choice_holds_enough_too() {
        let sizes: Vec<usize> = (0..5000).map(|bin| 1 + bin % 7).collect();
        for wanted in [1, 6, 700, 5000] {
            let picked = fewest(&sizes, wanted, MAX_STEPS).unwrap();
            let held: usize = picked.iter().map(|bin| sizes[*bin]).sum();
            assert!(held >= wanted && held < wanted + 7, "{held} for {wanted}");
            let unique: std::collections::BTreeSet<_> = picked.iter().collect();
            assert_eq!(unique.len(), picked.len());
        }
    }
}
