//! Implements GetPreferredAllocation, which chooses the best of the free devices for one
//! container.

mod near;
mod placement;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use device_class::class::Preference;
use device_class::name::{DeviceId, excerpt};
use tonic::Status;

use crate::catalog::Resource;
use near::bring_together;
use placement::{Slot, best_fit, pack};
use spread::{Candidate, First};

/// Chooses `size` of `available`, including all of `must`. Ids that are no
/// longer in the resource are not chosen.
pub(crate) fn preferred(
    resource: &Resource,
    available: &[String],
    must: &[String],
    size: usize,
) -> Result<Vec<String>, Status> {
    let invalid = |problem| Status::invalid_argument(format!("{}: {problem}", resource.name));
    let free: BTreeSet<usize> = available
        .iter()
        .filter_map(|id| resource.position(id))
        .collect();
    let mut included = BTreeSet::new();
    for id in must {
        let position = resource
            .position(id)
            .filter(|position| free.contains(position));
        included.insert(position.ok_or_else(|| {
            let id = excerpt(id);
            invalid(format!("`{id}` must be included but is not available"))
        })?);
    }
    if included.len() > size {
        let must = included.len();
        return Err(invalid(format!(
            "{must} devices must be included in a choice of {size}"
        )));
    }
    if free.len() < size {
        let available = free.len();
        return Err(invalid(format!(
            "cannot choose {size} of {available} available devices"
        )));
    }
    let mut devices = resource.devices().iter();
    let is_spread = match resource.terms.placement {
        _ if resource.terms.one_device => false,
        Preference::Packed => false,
        Preference::Spread => true,
        Preference::SpreadShares => devices.any(|one| one.share_of.is_some()),
    };
    let chosen = match is_spread {
        true => spread(resource, &free, &included, size),
        false => packed(resource, &free, &included, size)?,
    };
    Ok(chosen
        .into_iter()
        .map(|position| resource.devices()[position].id.to_string())
        .collect())
}

/// The choice of [`placement`].
fn packed(
    resource: &Resource,
    free: &BTreeSet<usize>,
    included: &BTreeSet<usize>,
    size: usize,
) -> Result<BTreeSet<usize>, Status> {
    let mut slot_of: BTreeMap<&DeviceId, usize> = BTreeMap::new();
    let mut slots: Vec<Slot<'_>> = Vec::new();
    let mut shares: Vec<Vec<usize>> = Vec::new();
    let mut connections = Vec::new();
    for position in free {
        let device = &resource.devices()[*position];
        let at = *slot_of.entry(device.hardware()).or_insert(slots.len());
        if at == slots.len() {
            slots.push(Slot {
                numa: device.numa,
                group: device.group.as_deref(),
                free: 0,
                held: false,
            });
            shares.push(Vec::new());
            connections.push(&*device.connections);
        }
        if included.contains(position) {
            slots[at].held = true;
        } else {
            slots[at].free += 1;
            shares[at].push(*position);
        }
    }
    let wanted = size - included.len();
    let taken = match resource.terms.one_device && size > 0 {
        false => {
            let mut taken = pack(&slots, wanted);
            bring_together(&slots, &connections, &mut taken);
            taken
        }
        true => {
            let at = best_fit(&slots, wanted).ok_or_else(|| {
                Status::resource_exhausted(format!(
                    "{}: no single device has {size} free shares, and the class gives a container \
                     shares of one device only",
                    resource.name
                ))
            })?;
            let mut taken = vec![0; slots.len()];
            taken[at] = wanted;
            taken
        }
    };
    let new = shares.into_iter().zip(taken);
    let new = new.flat_map(|(shares, count)| shares.into_iter().take(count));
    Ok(included.iter().copied().chain(new).collect())
}

fn spread(
    resource: &Resource,
    free: &BTreeSet<usize>,
    included: &BTreeSet<usize>,
    size: usize,
) -> BTreeSet<usize> {
    let mut used: HashMap<&DeviceId, usize> = HashMap::new();
    for (position, device) in resource.devices().iter().enumerate() {
        *used.entry(device.hardware()).or_default() += usize::from(!free.contains(&position));
    }
    let candidate = |position: &usize| {
        let device = &resource.devices()[*position];
        Candidate {
            position: *position,
            hardware: device.hardware().as_str(),
            numa: device.numa,
            group: device.group.as_deref(),
            must: included.contains(position),
            used: used.get(device.hardware()).copied().unwrap_or(0),
        }
    };
    let candidates: Vec<Candidate<'_>> = free.iter().map(candidate).collect();
    let first = match resource.terms.placement {
        Preference::SpreadShares => First::EvenUse,
        _ => First::Apart,
    };
    spread::choose(&candidates, size, first)
}
