//! GetPreferredAllocation: which of the free devices go well together.

mod bins;
mod candidate;
#[cfg(test)]
mod exact;
mod packed;
mod spread;

use std::collections::{BTreeSet, HashMap};

use device_class::class::Preference;
use device_class::name::{DeviceId, ResourceName, excerpt};
use tonic::Status;

use crate::catalog::Resource;
use candidate::Candidate;

/// A question that has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PreferredError {
    /// There are not so many to choose from.
    #[error("{resource}: {wanted} of {available} available devices can't be chosen")]
    TooFew {
        /// The resource that was asked.
        resource: ResourceName,
        /// How many were wanted.
        wanted: usize,
        /// How many there are.
        available: usize,
    },
    /// More have to be in the answer than it may have.
    #[error("{resource}: {must} devices must be included in a choice of {wanted}")]
    TooMany {
        /// The resource that was asked.
        resource: ResourceName,
        /// How many have to be included.
        must: usize,
        /// How many were wanted.
        wanted: usize,
    },
    /// An id that has to be included and is not available.
    #[error("{resource}: `{id}` must be included but is not available")]
    NotAvailable {
        /// The resource that was asked.
        resource: ResourceName,
        /// The id, shortened if it is very long.
        id: String,
    },
}

impl From<PreferredError> for Status {
    fn from(error: PreferredError) -> Self {
        Status::invalid_argument(error.to_string())
    }
}

/// Chooses `size` of `available`, among them all of `must`. Ids that are not
/// in the resource any more are not chosen.
///
/// # Errors
/// There are too few, or `must` is not part of `available`.
pub(crate) fn preferred(
    resource: &Resource,
    available: &[String],
    must: &[String],
    size: usize,
) -> Result<Vec<String>, PreferredError> {
    let free: BTreeSet<usize> = available
        .iter()
        .filter_map(|id| resource.position(id))
        .collect();
    let mut included = BTreeSet::new();
    for id in must {
        let position = resource
            .position(id)
            .filter(|position| free.contains(position));
        included.insert(position.ok_or_else(|| PreferredError::NotAvailable {
            resource: resource.name.clone(),
            id: excerpt(id),
        })?);
    }
    if included.len() > size {
        let (resource, must) = (resource.name.clone(), included.len());
        return Err(PreferredError::TooMany {
            resource,
            must,
            wanted: size,
        });
    }
    if free.len() < size {
        let (resource, available) = (resource.name.clone(), free.len());
        return Err(PreferredError::TooFew {
            resource,
            wanted: size,
            available,
        });
    }
    let unused = match resource.terms.prefer {
        Preference::Packed => HashMap::new(),
        Preference::Spread => shares(resource, &free),
    };
    let candidate = |position: &usize| {
        let device = &resource.devices()[*position];
        Candidate {
            position: *position,
            hardware: device.hardware().as_str(),
            numa: device.numa,
            group: device.group.as_deref(),
            must: included.contains(position),
            used: unused
                .get(device.hardware())
                .map_or(0, |(all, free)| all - free),
        }
    };
    let candidates: Vec<Candidate<'_>> = free.iter().map(candidate).collect();
    let chosen = match resource.terms.prefer {
        Preference::Packed => packed::choose(&candidates, size),
        Preference::Spread => spread::choose(&candidates, size),
    };
    Ok(chosen
        .into_iter()
        .map(|position| resource.devices()[position].id.to_string())
        .collect())
}

/// How many shares each piece of hardware has, and how many of them are free.
fn shares<'a>(
    resource: &'a Resource,
    free: &BTreeSet<usize>,
) -> HashMap<&'a DeviceId, (usize, usize)> {
    let mut shares: HashMap<&DeviceId, (usize, usize)> = HashMap::new();
    for (position, device) in resource.devices().iter().enumerate() {
        let (all, unused) = shares.entry(device.hardware()).or_default();
        *all += 1;
        *unused += usize::from(free.contains(&position));
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::catalog::fixture::{device, resource};
    use crate::catalog::{AdvertisedDevice, Terms};

    /// A resource of a class that prefers devices that are apart.
    fn spread(devices: Vec<AdvertisedDevice>) -> Resource {
        let packed = resource(devices.clone());
        let terms = Terms {
            prefer: Preference::Spread,
            ..Terms::clone(&packed.terms)
        };
        Resource::new(packed.name, Arc::new(terms), devices)
    }

    /// A device from a line such as `gpu-0 numa=1 group=a share-of=x`.
    fn parsed(line: &str) -> AdvertisedDevice {
        let mut words = line.split(' ');
        let mut parsed = device(words.next().unwrap());
        for word in words {
            match word.split_once('=').unwrap() {
                ("numa", node) => parsed.numa = Some(node.parse().unwrap()),
                ("group", group) => parsed.group = Some(group.to_owned()),
                ("share-of", id) => parsed.share_of = Some(id.to_owned().try_into().unwrap()),
                other => panic!("{other:?}"),
            }
        }
        parsed
    }

    fn ids(list: &str) -> Vec<String> {
        list.split(' ')
            .filter(|id| !id.is_empty())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn devices_that_go_well_together_are_chosen() {
        let by_numa = &["a numa=0", "b numa=1", "c numa=0", "d numa=1", "e numa=1"][..];
        let groups = &[
            "a group=x",
            "b group=y",
            "c group=x",
            "d group=y",
            "e group=x",
        ][..];
        let both = &[
            "a numa=0 group=x",
            "b numa=1 group=y",
            "c numa=0",
            "d numa=1 group=y",
        ][..];
        let shares = &[
            "a0 share-of=a",
            "a1 share-of=a",
            "b0 share-of=b",
            "b1 share-of=b",
            "c0 share-of=c",
        ][..];
        for (devices, must, size, wanted) in [
            // One node is enough, and the smaller one is not needed for more.
            (by_numa, "", 2, "a c"),
            (by_numa, "", 3, "b d e"),
            (by_numa, "", 4, "a b c d"),
            // The node that is in use anyway.
            (by_numa, "b", 2, "b d"),
            (by_numa, "a", 3, "a b c"),
            // A whole group, and the rest of the other stays whole.
            (groups, "", 2, "b d"),
            (groups, "", 3, "a c e"),
            (groups, "a", 2, "a c"),
            (both, "", 2, "b d"),
            // Hardware first, shares of it after.
            (shares, "", 3, "a0 b0 c0"),
            (shares, "", 4, "a0 a1 b0 c0"),
            (shares, "a1", 2, "a1 b0"),
            (shares, "", 5, "a0 a1 b0 b1 c0"),
            (shares, "", 0, ""),
        ] {
            let all: Vec<AdvertisedDevice> = devices.iter().map(|line| parsed(line)).collect();
            let available: Vec<String> = all.iter().map(|device| device.id.to_string()).collect();
            let chosen = preferred(&resource(all), &available, &ids(must), size).unwrap();
            assert_eq!(chosen, ids(wanted), "{size} of {devices:?} with {must:?}");
        }
    }

    #[test]
    fn what_can_not_be_chosen_is_refused() {
        let devices = resource(vec![device("a"), device("b")]);
        for (available, must, size, said) in [
            ("a b", "", 3, "3 of 2 available devices can't be chosen"),
            ("a gone", "", 2, "2 of 1 available"),
            ("a", "b", 1, "`b` must be included but is not available"),
            (
                "a b",
                "a b",
                1,
                "2 devices must be included in a choice of 1",
            ),
        ] {
            let refused = preferred(&devices, &ids(available), &ids(must), size).unwrap_err();
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }

    #[test]
    fn devices_that_are_apart_are_chosen_where_the_class_says_so() {
        let by_numa = &["a numa=0", "b numa=0", "c numa=0", "d numa=1", "e numa=1"][..];
        let groups = &[
            "a numa=0 group=x",
            "b numa=0 group=x",
            "c numa=0 group=y",
            "d numa=1 group=z",
            "e numa=1 group=z",
        ][..];
        let shares = &[
            "a0 share-of=a",
            "a1 share-of=a",
            "b0 share-of=b",
            "b1 share-of=b",
            "b2 share-of=b",
        ][..];
        for (devices, taken, must, size, wanted) in [
            (by_numa, "", "", 2, "a d"),
            (by_numa, "", "", 4, "a b d e"),
            (by_numa, "", "a", 2, "a d"),
            (by_numa, "", "a d", 3, "a b d"),
            // Of the fuller node, what is of another group.
            (groups, "", "", 3, "a c d"),
            (groups, "", "a", 3, "a c d"),
            // The hardware of which others have least, and all of it first.
            (shares, "", "", 2, "a0 b0"),
            (shares, "a0", "", 1, "b0"),
            (shares, "b0 b1", "", 1, "a0"),
            (shares, "", "", 3, "a0 a1 b0"),
            (shares, "", "b0", 2, "a0 b0"),
            (shares, "", "", 5, "a0 a1 b0 b1 b2"),
            (shares, "", "", 0, ""),
        ] {
            let all: Vec<AdvertisedDevice> = devices.iter().map(|line| parsed(line)).collect();
            let available = all.iter().map(|device| device.id.to_string());
            let available: Vec<String> = available.filter(|id| !ids(taken).contains(id)).collect();
            let chosen = preferred(&spread(all), &available, &ids(must), size).unwrap();
            assert_eq!(chosen, ids(wanted), "{size} of {devices:?} with {must:?}");
        }
    }

    #[test]
    fn ten_thousand_shares_are_chosen_from_in_time() {
        let share = |n: u32| {
            let (hardware, numa, group) = (n / 10, n / 10 % 8, n / 10 % 125);
            parsed(&format!(
                "s{n} share-of=h{hardware} numa={numa} group=g{group}"
            ))
        };
        let devices: Vec<AdvertisedDevice> = (0..10_000).map(share).collect();
        let available: Vec<String> = devices.iter().map(|d| d.id.to_string()).collect();
        for (way, devices) in [
            ("packed", resource(devices.clone())),
            ("spread", spread(devices)),
        ] {
            for size in [16, 5_000, 9_999] {
                let since = Instant::now();
                let chosen = preferred(&devices, &available, &[], size).unwrap();
                let took = since.elapsed();
                assert_eq!(chosen.len(), size);
                // The goal is 50 ms; a debug build on a busy machine gets more.
                assert!(took < Duration::from_secs(2), "{took:?}");
                println!("{size} of 10,000, {way}: {took:?}");
            }
        }
    }

    #[test]
    fn many_nodes_and_groups_are_chosen_from_in_time() {
        for (count, groups) in [(400, 120), (4000, 240)] {
            let line = |n: u32| format!("d{n} numa={} group=g{}", n % 12, n * 7919 % groups);
            let devices = resource((0..count).map(|n| parsed(&line(n))).collect());
            let all = devices.devices().iter().map(|d| d.id.to_string());
            let available: Vec<String> = all.collect();
            let since = Instant::now();
            let chosen = preferred(&devices, &available, &[], available.len() / 2).unwrap();
            let took = since.elapsed();
            assert_eq!(chosen.len(), available.len() / 2);
            // Tens of milliseconds in a release build. One for each set of
            // nodes, it would be a hundred times as long.
            assert!(took < Duration::from_secs(5), "{took:?}");
            println!("half of {count}: {took:?}");
        }
    }
}
