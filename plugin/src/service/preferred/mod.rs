//! Implements GetPreferredAllocation, which chooses the best of the free devices for one
//! container.

mod near;
mod placement;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use device_class::class::Preference;
use device_class::name::excerpt;
use tonic::Status;

use crate::catalog::Resource;
use near::bring_together;
use placement::{Bins, Slot, best_fit, pack};
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
    let free = FreeDevices::new(resource, available);
    let mut included = BTreeSet::new();
    for id in must {
        let position = resource
            .position(id)
            .filter(|position| free.contains(*position));
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
    if free.count < size {
        let available = free.count;
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

/// The devices that the kubelet can allocate now.
struct FreeDevices {
    is_free: Vec<bool>,
    count: usize,
}

impl FreeDevices {
    fn new(resource: &Resource, available: &[String]) -> Self {
        let mut is_free = vec![false; resource.devices().len()];
        for position in available.iter().filter_map(|id| resource.position(id)) {
            is_free[position] = true;
        }
        let count = is_free.iter().filter(|is_free| **is_free).count();
        FreeDevices { is_free, count }
    }

    fn contains(&self, position: usize) -> bool {
        self.is_free[position]
    }

    /// The positions of the devices in the resource, in order.
    fn positions(&self) -> impl Iterator<Item = usize> {
        (0..self.is_free.len()).filter(|position| self.is_free[*position])
    }
}

/// The choice of [`placement`].
fn packed(
    resource: &Resource,
    free: &FreeDevices,
    included: &BTreeSet<usize>,
    size: usize,
) -> Result<BTreeSet<usize>, Status> {
    let mut slot_of: Vec<Option<usize>> = vec![None; resource.devices().len()];
    let mut slots: Vec<Slot<'_>> = Vec::new();
    let mut connections = Vec::new();
    for position in free.positions() {
        let at = *slot_of[resource.hardware_number(position)].get_or_insert_with(|| {
            let device = &resource.devices()[position];
            slots.push(Slot {
                numa: device.numa,
                group: device.group.as_deref(),
                free: 0,
                held: false,
            });
            connections.push(&*device.connections);
            slots.len() - 1
        });
        if included.contains(&position) {
            slots[at].held = true;
        } else {
            slots[at].free += 1;
        }
    }
    let wanted = size - included.len();
    let bins = Bins::new(&slots);
    let mut taken = match resource.terms.one_device && size > 0 {
        false => {
            let mut taken = pack(&slots, &bins, wanted);
            bring_together(&slots, &bins, &connections, &mut taken);
            taken
        }
        true => {
            let at = best_fit(&slots, &bins, wanted).ok_or_else(|| {
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
    let mut chosen = included.clone();
    for position in free.positions() {
        let at = slot_of[resource.hardware_number(position)];
        if let Some(rest @ 1..) = at.map(|at| &mut taken[at])
            && !included.contains(&position)
        {
            *rest -= 1;
            chosen.insert(position);
        }
    }
    Ok(chosen)
}

fn spread(
    resource: &Resource,
    free: &FreeDevices,
    included: &BTreeSet<usize>,
    size: usize,
) -> BTreeSet<usize> {
    let mut used = vec![0; resource.devices().len()];
    for (position, is_free) in free.is_free.iter().enumerate() {
        used[resource.hardware_number(position)] += usize::from(!is_free);
    }
    let candidate = |position: usize| {
        let device = &resource.devices()[position];
        let hardware = resource.hardware_number(position);
        Candidate {
            position,
            hardware,
            numa: device.numa,
            group: device.group.as_deref(),
            must: included.contains(&position),
            used: used[hardware],
        }
    };
    let candidates: Vec<Candidate<'_>> = free.positions().map(candidate).collect();
    let first = match resource.terms.placement {
        Preference::SpreadShares => First::EvenUse,
        _ => First::Apart,
    };
    spread::choose(&candidates, size, first)
}
