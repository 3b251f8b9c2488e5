//! Finds the devices for which restarting containers wait. Docker starts a container again and
//! again if, for example, its program ends because a device is missing. Between two starts, such a
//! container has no process and no attachment record, so its requests are read from Docker's files
//! about it.

use std::path::Path;

use device_class::config::Config;
use hook::attachment::AwaitedRequest;
use hook::oci::Bundle;
use hook::planner::{self, Caller};

use super::containers::{self, EndedContainer};
use super::doctor::device_requests::{self, ExaminedDeviceRequest};

/// A container that Docker will start again after a pause.
pub(super) struct RestartingContainer {
    pub(super) id: String,
    pub(super) name: String,
    /// The container's requests for devices that the host does not have now.
    pub(super) awaited_requests: Vec<AwaitedRequest>,
}

/// Returns the containers that Docker starts again and again and that have no process now. Leaves
/// out those that wait for no device.
pub(super) fn find_containers_lacking_devices(config: &Config) -> Vec<RestartingContainer> {
    let containers = containers::find_restarting_containers(&config.host_root).into_iter();
    let waiting_containers = containers.filter_map(|container| {
        let ended_container = container.ended?;
        let awaited_requests = find_awaited_requests(&ended_container, config);
        (!awaited_requests.is_empty()).then_some(RestartingContainer {
            id: container.id,
            name: ended_container.name,
            awaited_requests,
        })
    });
    waiting_containers.collect()
}

/// Returns the requests whose devices will be missing when Docker starts the container again. The
/// hook lets the container start without them. The result is empty if the hook will not be called,
/// or if it will refuse the container.
fn find_awaited_requests(ended_container: &EndedContainer, config: &Config) -> Vec<AwaitedRequest> {
    if ended_container.has_runtime_without_hook() {
        return Vec::new();
    }
    let requests = ExaminedDeviceRequest::examine_all(&ended_container.device_requests, config);
    let requested_variables = device_requests::list_variables(&requests);
    // Docker appends the variables of device requests to those of the container. If a variable
    // occurs twice, the last value counts.
    let variables = [&*ended_container.env, &requested_variables].concat();
    let Ok(bundle) = Bundle::from_variables(Path::new("/"), &variables) else {
        return Vec::new();
    };
    planner::plan_container_injection(&bundle, &Caller::PlanInspector, config).map_or_else(
        |_| Vec::new(),
        |plan| AwaitedRequest::list_unfulfilled_requests(&plan),
    )
}
