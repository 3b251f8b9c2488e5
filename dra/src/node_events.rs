//! Reports devices that fail or recover as Events of the node, which `kubectl describe node` and
//! `kubectl events` show. The API server keeps an Event for an hour by default. The taints in the
//! ResourceSlices show a failure as long as it lasts.

use std::collections::BTreeMap;

use device_class::discover::Health;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::watch;

use crate::api_error;
use crate::inventory::Inventory;
use crate::names::DRIVER;

/// The maximum length of an Event's note, in bytes (events.k8s.io/v1, `note`). A longer note is
/// cut.
const MAX_NOTE_BYTES: usize = 1024;

/// The name of a device's class, which also names its pool, and the name of the device in
/// ResourceSlices.
type DeviceName = (String, String);

/// Publishes an Event whenever a device fails, recovers or is removed. Also reports devices that
/// had failed before the driver started. If the API server does not accept an Event, the error is
/// logged, and the Event is not sent again.
pub(crate) async fn run(
    client: Client,
    node_name: String,
    mut inventory: watch::Receiver<Inventory>,
) {
    let reporter = Reporter {
        controller: DRIVER.to_owned(),
        instance: Some(node_name.clone()),
    };
    let recorder = Recorder::new(client, reporter);
    // `kubectl describe node` finds only Events whose uid is the name of the node. The kubelet
    // writes its Events in the same way.
    let node = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node_name.clone()),
        uid: Some(node_name),
        ..ObjectReference::default()
    };
    let mut known_health = BTreeMap::new();
    loop {
        let new_health = collect_health(&inventory.borrow_and_update());
        for event in compare_health(&known_health, &new_health) {
            if let Err(error) = recorder.publish(&event, &node).await {
                let error = api_error::describe_error(error);
                let note = event.note.unwrap_or_default();
                tracing::warn!("cannot publish the Event \"{note}\": {error}");
            }
        }
        known_health = new_health;
        if inventory.changed().await.is_err() {
            return;
        }
    }
}

fn collect_health(inventory: &Inventory) -> BTreeMap<DeviceName, Health> {
    let devices = inventory.iter().flat_map(|class| {
        let pool = class.class.name.to_string();
        let named_devices = class.device_names.iter().zip(class.devices());
        named_devices
            .map(move |(name, device)| ((pool.clone(), name.clone()), device.health.clone()))
    });
    devices.collect()
}

/// Returns the Events for the devices whose health differs between `old_health` and `new_health`.
fn compare_health(
    old_health: &BTreeMap<DeviceName, Health>,
    new_health: &BTreeMap<DeviceName, Health>,
) -> Vec<Event> {
    let mut events = Vec::new();
    for (name, health) in new_health {
        let was_unhealthy = matches!(old_health.get(name), Some(Health::Unhealthy { .. }));
        match health {
            Health::Unhealthy { reason } if old_health.get(name) != Some(health) => {
                events.push(create_event(
                    EventType::Warning,
                    "DeviceUnhealthy",
                    name,
                    &format!("is unhealthy: {reason}"),
                ))
            }
            Health::Healthy if was_unhealthy => events.push(create_event(
                EventType::Normal,
                "DeviceHealthy",
                name,
                "is healthy again",
            )),
            Health::Unhealthy { .. } | Health::Healthy => {}
        }
    }
    let removed_names = old_health
        .keys()
        .filter(|name| !new_health.contains_key(*name));
    events.extend(removed_names.map(|name| {
        create_event(
            EventType::Warning,
            "DeviceRemoved",
            name,
            "is no longer on the node",
        )
    }));
    events
}

fn create_event(type_: EventType, reason: &str, name: &DeviceName, text: &str) -> Event {
    let (pool, device) = name;
    let mut note = format!("device {device} of {pool} {text}");
    let longest_end = note.len().min(MAX_NOTE_BYTES);
    let end = (0..=longest_end)
        .rev()
        .find(|end| note.is_char_boundary(*end));
    note.truncate(end.unwrap_or_default());
    Event {
        type_,
        reason: reason.to_owned(),
        note: Some(note),
        action: "Scan".to_owned(),
        // The recorder does not compare the notes of Events. Without this field, it would treat the
        // Events of two devices, or of two faults of one device, as one repeated Event.
        secondary: Some(ObjectReference {
            kind: Some("Device".to_owned()),
            name: Some(format!("{pool}/{device}")),
            field_path: Some(text.to_owned()),
            ..ObjectReference::default()
        }),
    }
}
