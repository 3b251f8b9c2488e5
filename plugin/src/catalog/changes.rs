//! Describes the differences between two device scans for the log.

use device_class::discover::Health;
use device_class::name::DeviceId;

use super::resource::Resource;

/// Returns a log message for each device that differs between `before` and `after`.
pub(crate) fn changes<'a>(
    before: &'a Resource,
    after: &'a Resource,
) -> Vec<(&'a DeviceId, String)> {
    let present = after.devices().iter().filter_map(|device| {
        let known = before.position(device.id.as_str());
        let known = known.map(|position| &before.devices()[position].health);
        let message = match (known, &device.health) {
            (Some(known), health) if known == health => return None,
            (Some(_), Health::Healthy) => "device is healthy again".to_owned(),
            (Some(_), Health::Unhealthy { reason }) => format!("device is unhealthy: {reason}"),
            (None, Health::Healthy) => "device appeared".to_owned(),
            (None, Health::Unhealthy { reason }) => {
                format!("device appeared, unhealthy: {reason}")
            }
        };
        Some((&device.id, message))
    });
    let gone = before.devices().iter();
    let gone = gone.filter(|device| after.position(device.id.as_str()).is_none());
    present
        .chain(gone.map(|device| (&device.id, "device removed".to_owned())))
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
        let changed = changes(&before, &after).into_iter();
        let lines: Vec<String> = changed.map(|(id, said)| format!("{id}: {said}")).collect();
        let wanted = [
            "b: device is unhealthy: too hot",
            "c: device is healthy again",
            "e: device appeared",
            "d: device removed",
        ];
        assert_eq!(lines, wanted);
        assert_eq!(changes(&after, &after), []);
    }
}
