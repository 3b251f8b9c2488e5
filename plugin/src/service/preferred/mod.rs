//! Implements GetPreferredAllocation, which chooses the best of the free devices for one
//! container.

mod placement;
mod proximity;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use device_class::class::Preference;
use device_class::name::excerpt;
use tonic::Status;

use crate::catalog::Resource;
use placement::{Bins, Slot, find_best_fit, pack};
use proximity::bring_together;
use spread::{Candidate, SpreadPriority};

/// Chooses `size` of the devices `available`, including all of `must`. Ids that the resource no
/// longer has are ignored.
pub(crate) fn choose_devices(
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
    let is_spread = match resource.properties.placement {
        _ if resource.properties.one_device => false,
        Preference::Packed => false,
        Preference::Spread => true,
        Preference::SpreadShares => devices.any(|one| one.share_of.is_some()),
    };
    let chosen = if is_spread {
        choose_spread(resource, &free, &included, size)
    } else {
        choose_packed(resource, &free, &included, size)?
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

    /// Returns the positions of the free devices in the resource, in order.
    fn iter_positions(&self) -> impl Iterator<Item = usize> {
        (0..self.is_free.len()).filter(|position| self.is_free[*position])
    }
}

/// Chooses devices that are close to each other, by the algorithm of [`placement`].
fn choose_packed(
    resource: &Resource,
    free: &FreeDevices,
    included: &BTreeSet<usize>,
    size: usize,
) -> Result<BTreeSet<usize>, Status> {
    let mut slot_of: Vec<Option<usize>> = vec![None; resource.devices().len()];
    let mut slots: Vec<Slot<'_>> = Vec::new();
    let mut connections = Vec::new();
    for position in free.iter_positions() {
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
    let mut taken = if resource.properties.one_device && size > 0 {
        let at = find_best_fit(&slots, &bins, wanted).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "{}: no single device has {size} free shares, and the class gives a container \
                 shares of one device only",
                resource.name
            ))
        })?;
        let mut taken = vec![0; slots.len()];
        taken[at] = wanted;
        taken
    } else {
        let mut taken = pack(&slots, &bins, wanted);
        bring_together(&slots, &bins, &connections, &mut taken);
        taken
    };
    let mut chosen = included.clone();
    for position in free.iter_positions() {
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

/// Chooses devices that are far apart, by the algorithm of [`spread`].
fn choose_spread(
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
    let candidates: Vec<Candidate<'_>> = free.iter_positions().map(candidate).collect();
    let first = match resource.properties.placement {
        Preference::SpreadShares => SpreadPriority::EvenUse,
        _ => SpreadPriority::Apart,
    };
    spread::choose_shares(&candidates, size, first)
}
