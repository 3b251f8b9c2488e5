//! Computes how many devices of a node a set of containers needs at least. A node with fewer
//! devices certainly has no room. Whether a node with more devices has room is not known here,
//! because only the node knows which device each container got.

/// Returns a lower bound for the number of devices with `units` units that are needed for all
/// portions, if each portion is on one device. No arrangement needs fewer devices.
///
/// This is the bound of Martello and Toth for bin packing, the maximum over all sizes. For one
/// size, each portion of more than half a device counts as one device. The portions from that
/// size up to half a device fill the space that is left beside the large portions, and the
/// remaining units are divided evenly among further devices.
pub fn min_devices(portions: &[u64], units: u64) -> u64 {
    let half = units / 2;
    let small = portions.iter().copied().filter(|portion| *portion <= half);
    let bound = |size: u64| {
        let (mut devices, mut beside_large, mut rest) = (0_u64, 0_u64, 0_u64);
        for portion in portions {
            if *portion > half {
                devices += 1;
                let left = units.saturating_sub(*portion);
                beside_large += if left < size { 0 } else { left };
            } else if *portion >= size {
                rest += portion;
            }
        }
        devices + rest.saturating_sub(beside_large).div_ceil(units)
    };
    small.chain([units]).map(bound).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn claims_that_share_no_device_need_one_each() {
        for (portions, units, least) in [
            (&[][..], 8, 0),
            (&[4, 4], 8, 1),
            (&[4, 5], 8, 2),
            (&[4, 4, 8], 8, 2),
            (&[4, 5, 8], 8, 3),
            // Nothing fits beside 6 but 1 and 2.
            (&[6, 6, 3, 3], 8, 3),
            (&[3, 3, 3], 8, 2),
            (&[9], 8, 1),
        ] {
            assert_eq!(min_devices(portions, units), least, "{portions:?}");
        }
    }

    /// Returns whether the portions can be distributed over devices with these free units.
    fn fit(free: &mut [u64], portions: &[u64]) -> bool {
        let Some((first, rest)) = portions.split_first() else {
            return true;
        };
        (0..free.len()).any(|index| {
            if free[index] < *first {
                return false;
            }
            free[index] -= first;
            let found = fit(free, rest);
            free[index] += first;
            found
        })
    }

    proptest! {
        #[test]
        fn no_arrangement_needs_fewer(portions in prop::collection::vec(1..=8_u64, 0..8)) {
            let least = usize::try_from(min_devices(&portions, 8)).unwrap();
            prop_assert!(least == 0 || !fit(&mut vec![8; least - 1], &portions));
        }
    }
}
