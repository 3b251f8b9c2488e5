//! Builds resources for the tests of this crate.

use std::sync::Arc;
use std::time::Instant;

use daemon::host_inventory::{ScanState, scan_host};
use device_class::class::PlacementPolicy;
use device_class::discover::Health;
use device_class::{DeviceClass, HostView};

use super::resource::{AdvertisedDevice, Resource, ResourceProperties};
use super::{ClaimedDevices, ResourceScan, build_resources};

pub(crate) fn scan_recorded_host(classes: &[DeviceClass], host: &dyn HostView) -> ResourceScan {
    build_resources(
        scan_host(classes, host, &mut ScanState::new(), Instant::now()),
        &ClaimedDevices::default(),
        None,
    )
}

/// Builds the resource `dummy.com/npu` of the class `dummy-npu`, which containers request by
/// `DUMMY_VISIBLE_DEVICES`.
pub(crate) fn resource(devices: Vec<AdvertisedDevice>) -> Resource {
    let name = "dummy.com/npu".to_owned().try_into().unwrap();
    let class = "dummy-npu".to_owned().try_into().unwrap();
    let properties = ResourceProperties {
        class,
        request_env: "DUMMY_VISIBLE_DEVICES".to_owned().try_into().unwrap(),
        container_shares_env: None,
        call_shares_env: None,
        max_shares_per_container: None,
        requires_one_device: false,
        uses_cdi: false,
        is_count_only: false,
        placement: PlacementPolicy::Packed,
    };
    Resource::new(name, Arc::new(properties), devices)
}

/// Builds a healthy device without a NUMA node.
pub(crate) fn device(id: &str) -> AdvertisedDevice {
    AdvertisedDevice {
        id: id.to_owned().try_into().unwrap(),
        health: Health::Healthy,
        numa_node: None,
        group: None,
        connections: Arc::default(),
        shared_device_id: None,
        env: Arc::default(),
    }
}

pub(crate) fn unhealthy_device(id: &str, reason: &str) -> AdvertisedDevice {
    AdvertisedDevice {
        health: Health::Unhealthy {
            reason: reason.to_owned(),
        },
        ..device(id)
    }
}
