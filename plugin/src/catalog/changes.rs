//! Describes the differences between two lists of a resource's devices, for the log.

use device_class::discover::Health;
use device_class::name::DeviceId;

use super::resource::Resource;

/// Compares the devices of a resource before and after a scan. Returns the id of each device that
/// differs, with a message for the log, such as `device appeared`.
pub(crate) fn describe_changes<'a>(
    old_resource: &'a Resource,
    new_resource: &'a Resource,
) -> Vec<(&'a DeviceId, String)> {
    let changed_devices = new_resource.devices().iter().filter_map(|device| {
        let position = old_resource.find_position(device.id.as_str());
        let previous_health = position.map(|position| &old_resource.devices()[position].health);
        let message = match (previous_health, &device.health) {
            (Some(previous_health), health) if previous_health == health => return None,
            (Some(_), Health::Healthy) => "device is healthy again".to_owned(),
            (Some(_), Health::Unhealthy { reason }) => format!("device is unhealthy: {reason}"),
            (None, Health::Healthy) => "device appeared".to_owned(),
            (None, Health::Unhealthy { reason }) => {
                format!("device appeared, unhealthy: {reason}")
            }
        };
        Some((&device.id, message))
    });
    let removed_devices = old_resource.devices().iter();
    let removed_devices =
        removed_devices.filter(|device| new_resource.find_position(device.id.as_str()).is_none());
    changed_devices
        .chain(removed_devices.map(|device| (&device.id, "device removed".to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::fixture::{device, resource, unhealthy_device};

    #[test]
    fn each_device_that_differs_is_reported_once() {
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(device);
        let before = resource(vec![a.clone(), b, unhealthy_device("c", "no node"), d]);
        let after = resource(vec![a, unhealthy_device("b", "too hot"), c, e]);
        let changed = describe_changes(&before, &after).into_iter();
        let lines: Vec<String> = changed.map(|(id, said)| format!("{id}: {said}")).collect();
        let wanted = [
            "b: device is unhealthy: too hot",
            "c: device is healthy again",
            "e: device appeared",
            "d: device removed",
        ];
        assert_eq!(lines, wanted);
        assert_eq!(describe_changes(&after, &after), []);
    }
}
