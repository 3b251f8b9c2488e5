//! What is different between two looks at the host, for the log.

use std::fmt;

use device_class::discover::Health;
use device_class::name::DeviceId;

use super::resource::Resource;

/// One difference of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change<'a> {
    /// It was not there before.
    Appeared(&'a DeviceId, &'a Health),
    /// It is not there any more.
    Gone(&'a DeviceId),
    /// It can or can't be given any more, or can't for another reason.
    Health(&'a DeviceId, &'a Health),
}

impl fmt::Display for Change<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Appeared(id, Health::Healthy) => write!(f, "{id} appeared"),
            Change::Appeared(id, Health::Unhealthy { reason }) => {
                write!(f, "{id} appeared, unhealthy: {reason}")
            }
            Change::Gone(id) => write!(f, "{id} is gone"),
            Change::Health(id, Health::Healthy) => write!(f, "{id} is healthy again"),
            Change::Health(id, Health::Unhealthy { reason }) => {
                write!(f, "{id} is unhealthy: {reason}")
            }
        }
    }
}

/// What is different in `after`.
pub(crate) fn changes<'a>(before: &'a Resource, after: &'a Resource) -> Vec<Change<'a>> {
    let now = after.devices().iter().filter_map(|device| {
        let id = &device.id;
        let Some(position) = before.position(id.as_str()) else {
            return Some(Change::Appeared(id, &device.health));
        };
        let same = before.devices()[position].health == device.health;
        (!same).then_some(Change::Health(id, &device.health))
    });
    let gone = before
        .devices()
        .iter()
        .filter(|d| after.position(d.id.as_str()).is_none());
    now.chain(gone.map(|device| Change::Gone(&device.id)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::fixture::{device, resource, sick};

    #[test]
    fn each_device_that_differs_is_named_once() {
        let before = resource(vec![
            device("a"),
            device("b"),
            sick("c", "no node"),
            device("d"),
        ]);
        let after = resource(vec![
            device("a"),
            sick("b", "too hot"),
            device("c"),
            device("e"),
        ]);
        let lines: Vec<String> = changes(&before, &after)
            .iter()
            .map(Change::to_string)
            .collect();
        assert_eq!(
            lines,
            [
                "b is unhealthy: too hot",
                "c is healthy again",
                "e appeared",
                "d is gone"
            ]
        );
        assert_eq!(changes(&after, &after), []);
    }
}
