//! Chooses an example device for the output of commands: one that the user probably wants.

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover;
use hook::planner;
use injection_plan::request::RequestNames;

use super::class_kind::ClassKind;
use super::devices::ListedDevice;

/// Returns a healthy device of this host as an example. Tries the classes in the order of their
/// `class_rank`. If two classes have the same rank, the order of their kinds decides.
pub(super) fn find_example_device<K: Ord>(
    classes: &[DeviceClass],
    class_rank: impl Fn(&DeviceClass) -> K,
    config: &Config,
) -> Option<ListedDevice> {
    let host = planner::open_host(config).ok()?;
    let mut classes: Vec<&DeviceClass> = classes.iter().collect();
    classes.sort_by_key(|class| (class_rank(class), ClassKind::from_class(class)));
    classes.into_iter().find_map(|class| {
        let inventory = discover::find_devices(class, &host);
        let mut devices = inventory.devices.iter();
        let device = devices.find(|device| device.health.is_healthy())?;
        let request_names = RequestNames::new(class, &inventory);
        Some(ListedDevice::new(class, device, &request_names))
    })
}
