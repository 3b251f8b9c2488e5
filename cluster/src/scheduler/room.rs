//! Finds out whether a device of a node can have room for a container. The result is certain
//! only if there is no room, because which device each container got is known on the node
//! alone.

/// Returns a lower bound for the number of devices with `units` units that are needed for all
/// claims, if each claim is of one device. No arrangement needs fewer devices. Whether this
/// many are enough depends on which device each claim got.
///
/// For each size, claims that share no device with a claim of that size count as a
/// device each, as do claims of more than half a device; what remains of smaller claims,
/// from that size on, is divided evenly (Martello and Toth's bound for bin packing).
pub fn least_devices(claims: &[u64], units: u64) -> u64 {
    let half = units / 2;
    let small = claims.iter().copied().filter(|claim| *claim <= half);
    let bound = |size: u64| {
        let (mut devices, mut beside_large, mut rest) = (0_u64, 0_u64, 0_u64);
        for claim in claims {
            if *claim > half {
                devices += 1;
                let left = units.saturating_sub(*claim);
                beside_large += if left < size { 0 } else { left };
            } else if *claim >= size {
                rest += claim;
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
        for (claims, units, least) in [
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
            assert_eq!(least_devices(claims, units), least, "{claims:?}");
        }
    }

    /// Whether the claims can be distributed over devices with this much room.
    fn fit(free: &mut [u64], claims: &[u64]) -> bool {
        let Some((first, rest)) = claims.split_first() else {
            return true;
        };
        (0..free.len()).any(|at| {
            if free[at] < *first {
                return false;
            }
            free[at] -= first;
            let found = fit(free, rest);
            free[at] += first;
            found
        })
    }

    proptest! {
        #[test]
        fn no_arrangement_needs_fewer(claims in prop::collection::vec(1..=8_u64, 0..8)) {
            let least = usize::try_from(least_devices(&claims, 8)).unwrap();
            prop_assert!(least == 0 || !fit(&mut vec![8; least - 1], &claims));
        }
    }
}
