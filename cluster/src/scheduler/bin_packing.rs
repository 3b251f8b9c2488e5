//! Computes the minimum number of devices that a set of containers needs on a node. If the node has
//! fewer devices, it certainly has no room. Otherwise it may still have no room, because only the
//! kubelet knows which device each container has.

/// Returns a lower bound for the number of devices that all `unit_requests` need. Each device has
/// `units_per_device` units, and all units of one request must be on one device.
///
/// This is the bound L2 of Martello and Toth for bin packing. For each request size up to half a
/// device, it computes one bound, and the result is the largest bound. In each bound, a request of
/// more than half a device needs a device of its own. The requests from the size up to half a
/// device use the units that are free on these devices, if at least as many units as the size are
/// free. The rest is divided evenly among further devices. Smaller requests are ignored.
pub fn compute_min_devices(unit_requests: &[u64], units_per_device: u64) -> u64 {
    let half_device = units_per_device / 2;
    let sizes = unit_requests
        .iter()
        .copied()
        .filter(|request| *request <= half_device);
    let compute_bound = |size: u64| {
        let (mut device_count, mut free_units, mut small_units) = (0_u64, 0_u64, 0_u64);
        for request in unit_requests {
            if *request > half_device {
                device_count += 1;
                let free_on_device = units_per_device.saturating_sub(*request);
                free_units += if free_on_device < size {
                    0
                } else {
                    free_on_device
                };
            } else if *request >= size {
                small_units += request;
            }
        }
        device_count
            + small_units
                .saturating_sub(free_units)
                .div_ceil(units_per_device)
    };
    sizes
        .chain([units_per_device])
        .map(compute_bound)
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_that_do_not_fit_on_one_device_need_one_each() {
        for (unit_requests, units, expected) in [
            (&[][..], 8, 0),
            (&[4, 4], 8, 1),
            (&[4, 5], 8, 2),
            (&[4, 4, 8], 8, 2),
            (&[4, 5, 8], 8, 3),
            // Beside a request of 6, only 1 or 2 units fit, so the two requests of 3 need a third
            // device.
            (&[6, 6, 3, 3], 8, 3),
            (&[3, 3, 3], 8, 2),
            (&[9], 8, 1),
        ] {
            assert_eq!(
                compute_min_devices(unit_requests, units),
                expected,
                "{unit_requests:?}"
            );
        }
    }

    /// Returns whether the requests can be distributed over devices with these free units.
    fn can_distribute(free: &mut [u64], unit_requests: &[u64]) -> bool {
        let Some((first, rest)) = unit_requests.split_first() else {
            return true;
        };
        (0..free.len()).any(|index| {
            if free[index] < *first {
                return false;
            }
            free[index] -= first;
            let has_room = can_distribute(free, rest);
            free[index] += first;
            has_room
        })
    }

    proptest! {
        #[test]
        fn no_arrangement_needs_fewer_devices(unit_requests in prop::collection::vec(1..=8_u64, 0..8)) {
            let min = usize::try_from(compute_min_devices(&unit_requests, 8)).unwrap();
            prop_assert!(min == 0 || !can_distribute(&mut vec![8; min - 1], &unit_requests));
        }
    }
}
