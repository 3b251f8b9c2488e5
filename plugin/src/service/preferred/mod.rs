//! Implements GetPreferredAllocation, which chooses the most suitable of the free devices for one
//! container.

mod placement;
mod proximity;
mod spread;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use device_class::class::PlacementPolicy;
use device_class::name::excerpt;
use tonic::Status;

use crate::catalog::Resource;
use placement::{CandidateDevice, TopologyDomains, find_best_fit, pack_units};
use proximity::improve_proximity;
use spread::{CandidateShare, SpreadPriority};

/// Chooses `size` devices out of `available_ids`, including all of `required_ids`. Ignores
/// available ids that the resource no longer has.
pub(crate) fn choose_devices(
    resource: &Resource,
    available_ids: &[String],
    required_ids: &[String],
    size: usize,
) -> Result<Vec<String>, Status> {
    let invalid_request =
        |problem| Status::invalid_argument(format!("{}: {problem}", resource.name));
    let free_devices = FreeDevices::new(resource, available_ids);
    let mut required_positions = BTreeSet::new();
    for id in required_ids {
        let position = resource
            .find_position(id)
            .filter(|position| free_devices.contains(*position));
        required_positions.insert(position.ok_or_else(|| {
            let id = excerpt(id);
            invalid_request(format!("`{id}` must be included but is not available"))
        })?);
    }
    if required_positions.len() > size {
        let required_count = required_positions.len();
        return Err(invalid_request(format!(
            "{required_count} devices must be included in a choice of {size}"
        )));
    }
    if free_devices.count < size {
        let free_count = free_devices.count;
        return Err(invalid_request(format!(
            "cannot choose {size} of {free_count} available devices"
        )));
    }
    let mut devices = resource.devices().iter();
    let should_spread = match resource.properties.placement {
        _ if resource.properties.requires_one_device => false,
        PlacementPolicy::Packed => false,
        PlacementPolicy::Spread => true,
        PlacementPolicy::SpreadShares => devices.any(|device| device.shared_device_id.is_some()),
    };
    let chosen_positions = if should_spread {
        choose_spread(resource, &free_devices, &required_positions, size)
    } else {
        choose_packed(resource, &free_devices, &required_positions, size)?
    };
    Ok(chosen_positions
        .into_iter()
        .map(|position| resource.devices()[position].id.to_string())
        .collect())
}

/// The devices of a resource that are free. They are represented by their positions in the
/// resource's list of devices.
struct FreeDevices {
    is_free: Vec<bool>,
    count: usize,
}

impl FreeDevices {
    fn new(resource: &Resource, available_ids: &[String]) -> Self {
        let mut is_free = vec![false; resource.devices().len()];
        for position in available_ids
            .iter()
            .filter_map(|id| resource.find_position(id))
        {
            is_free[position] = true;
        }
        let count = is_free.iter().filter(|is_free| **is_free).count();
        FreeDevices { is_free, count }
    }

    fn contains(&self, position: usize) -> bool {
        self.is_free[position]
    }

    /// Returns the positions of the free devices in the list of the resource, in ascending order.
    fn iter_positions(&self) -> impl Iterator<Item = usize> {
        (0..self.is_free.len()).filter(|position| self.is_free[*position])
    }
}

/// Chooses devices that are close to each other, with the algorithm of [`placement`].
fn choose_packed(
    resource: &Resource,
    free_devices: &FreeDevices,
    required_positions: &BTreeSet<usize>,
    size: usize,
) -> Result<BTreeSet<usize>, Status> {
    let mut index_by_hardware: Vec<Option<usize>> = vec![None; resource.devices().len()];
    let mut candidate_devices: Vec<CandidateDevice<'_>> = Vec::new();
    let mut connections = Vec::new();
    for position in free_devices.iter_positions() {
        let index = *index_by_hardware[resource.physical_device_number(position)]
            .get_or_insert_with(|| {
                let device = &resource.devices()[position];
                candidate_devices.push(CandidateDevice {
                    numa_node: device.numa_node,
                    group: device.group.as_deref(),
                    free_units: 0,
                    has_required_units: false,
                });
                connections.push(&*device.connections);
                candidate_devices.len() - 1
            });
        if required_positions.contains(&position) {
            candidate_devices[index].has_required_units = true;
        } else {
            candidate_devices[index].free_units += 1;
        }
    }
    let missing_units = size - required_positions.len();
    let domains = TopologyDomains::new(&candidate_devices);
    let mut taken_units = if resource.properties.requires_one_device && size > 0 {
        let index =
            find_best_fit(&candidate_devices, &domains, missing_units).ok_or_else(|| {
                Status::resource_exhausted(format!(
                    "{}: no single device has {size} free shares, and the class gives a container \
                 shares of one device only",
                    resource.name
                ))
            })?;
        let mut taken_units = vec![0; candidate_devices.len()];
        taken_units[index] = missing_units;
        taken_units
    } else {
        let mut taken_units = pack_units(&candidate_devices, &domains, missing_units);
        improve_proximity(&candidate_devices, &domains, &connections, &mut taken_units);
        taken_units
    };
    let mut chosen_positions = required_positions.clone();
    for position in free_devices.iter_positions() {
        let index = index_by_hardware[resource.physical_device_number(position)];
        if let Some(remaining_units @ 1..) = index.map(|index| &mut taken_units[index])
            && !required_positions.contains(&position)
        {
            *remaining_units -= 1;
            chosen_positions.insert(position);
        }
    }
    Ok(chosen_positions)
}

/// Chooses devices that are far apart, with the algorithm of [`spread`].
fn choose_spread(
    resource: &Resource,
    free_devices: &FreeDevices,
    required_positions: &BTreeSet<usize>,
    size: usize,
) -> BTreeSet<usize> {
    let mut used_shares = vec![0; resource.devices().len()];
    for (position, is_free) in free_devices.is_free.iter().enumerate() {
        used_shares[resource.physical_device_number(position)] += usize::from(!is_free);
    }
    let to_candidate = |position: usize| {
        let device = &resource.devices()[position];
        let physical_device_number = resource.physical_device_number(position);
        CandidateShare {
            position,
            physical_device_number,
            numa_node: device.numa_node,
            group: device.group.as_deref(),
            is_required: required_positions.contains(&position),
            used_shares: used_shares[physical_device_number],
        }
    };
    let candidates: Vec<CandidateShare<'_>> =
        free_devices.iter_positions().map(to_candidate).collect();
    let priority = match resource.properties.placement {
        PlacementPolicy::SpreadShares => SpreadPriority::BalanceUsedShares,
        _ => SpreadPriority::SpreadOverDevices,
    };
    spread::choose_shares(&candidates, size, priority)
}
