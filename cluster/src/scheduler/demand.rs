//! Computes how many units of a resource a pod needs under kube-scheduler's rules, and how many of
//! these units the kubelet allocates to each container.

use crate::quantity;

use super::objects::{Container, Pod};

/// The units of one resource that a pod needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// The number of units that kube-scheduler subtracts from the free units of the pod's node.
    pub units: u64,
    /// The number of units that each container requests. It has only those containers that hold
    /// units when the pod's demand is largest. The kubelet allocates the units of a container in
    /// one call.
    pub unit_requests: Vec<u64>,
}

/// Computes a pod's demand for a resource. The pod's init containers run one after the other before
/// its other containers start, and the kubelet reuses the devices of an init container for later
/// containers. A sidecar (an init container with `restartPolicy: Always`) keeps its devices.
/// Returns `None` if a quantity is not a whole number, such as `500m`.
pub fn compute_demand(pod: &Pod, resource: &str) -> Option<Demand> {
    // The unit requests of the containers that run until the pod ends. In the first loop, these are
    // the sidecars before the current container. After the second loop, they also include the main
    // containers.
    let mut persistent_requests = Vec::new();
    // The unit requests of those containers of the init phase that run together when the sum of
    // their requests is largest.
    let mut peak_requests: Vec<u64> = Vec::new();
    for container in &pod.spec.init_containers {
        let units = parse_requested_units(container, resource)?;
        let concurrent_requests: Vec<u64> =
            persistent_requests.iter().copied().chain([units]).collect();
        if sum_units(&concurrent_requests) > sum_units(&peak_requests) {
            peak_requests = concurrent_requests;
        }
        if container.restart_policy.as_deref() == Some("Always") {
            persistent_requests.push(units);
        }
    }
    for container in &pod.spec.containers {
        persistent_requests.push(parse_requested_units(container, resource)?);
    }
    let overhead = parse_units(pod.spec.overhead.get(resource))?;
    let mut unit_requests = if sum_units(&peak_requests) > sum_units(&persistent_requests) {
        peak_requests
    } else {
        persistent_requests
    };
    unit_requests.retain(|units| *units > 0);
    Some(Demand {
        units: sum_units(&unit_requests).saturating_add(overhead),
        unit_requests,
    })
}

fn sum_units(unit_requests: &[u64]) -> u64 {
    let add = |sum: u64, request: &u64| sum.saturating_add(*request);
    unit_requests.iter().fold(0, add)
}

/// Returns the number of units that a container requests. If the request is missing, the limit is
/// used, because the API server sets missing requests for extended resources to the limits.
fn parse_requested_units(container: &Container, resource: &str) -> Option<u64> {
    let resources = &container.resources;
    let quantity_text = resources.requests.get(resource);
    parse_units(quantity_text.or_else(|| resources.limits.get(resource)))
}

/// Parses a quantity of an extended resource. A missing quantity is 0 units.
fn parse_units(text: Option<&String>) -> Option<u64> {
    text.map_or(Some(0), |text| quantity::parse_units(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(units: &str, sidecar: bool) -> Value {
        let policy = sidecar.then_some("Always");
        json!({"restartPolicy": policy, "resources": {"requests": {"v.com/gpu": units}, "limits": null}})
    }

    fn demand_of_containers(init: &[(&str, bool)], containers: &[&str]) -> Option<Demand> {
        let init: Vec<Value> = init
            .iter()
            .map(|(units, sidecar)| container(units, *sidecar))
            .collect();
        let containers: Vec<Value> = containers
            .iter()
            .map(|units| container(units, false))
            .collect();
        demand_of_spec(json!({"containers": containers, "initContainers": init}))
    }

    fn demand_of_spec(spec: Value) -> Option<Demand> {
        let pod = serde_json::from_value(json!({"metadata": null, "spec": spec, "status": null}));
        compute_demand(&pod.unwrap(), "v.com/gpu")
    }

    #[test]
    fn pods_are_counted_as_the_scheduler_counts_them() {
        for (init, containers, units, unit_requests) in [
            (&[][..], &["1", "2"][..], 3, &[1, 2][..]),
            (&[("2", false)], &["1"], 2, &[2]),
            (&[("2", false), ("3", false)], &["1"], 3, &[3]),
            (&[("1", true)], &["1"], 2, &[1, 1]),
            // A sidecar runs beside the init container that follows it.
            (&[("1", true), ("3", false)], &["1"], 4, &[1, 3]),
            // A sidecar does not run beside the init container before it.
            (&[("3", false), ("1", true)], &["1"], 3, &[3]),
            (&[], &["0"], 0, &[]),
            (&[], &[], 0, &[]),
        ] {
            let demand = demand_of_containers(init, containers).unwrap();
            let found = (demand.units, &demand.unit_requests[..]);
            assert_eq!(found, (units, unit_requests), "{init:?} {containers:?}");
        }
    }

    #[test]
    fn overhead_counts_but_is_not_allocated_and_limits_stand_in_for_requests() {
        let two = [container("2", false)];
        let limited = json!([{"resources": {"limits": {"v.com/gpu": "2"}}}]);
        for (spec, units, unit_requests) in [
            (
                json!({"containers": two, "overhead": {"v.com/gpu": "1"}}),
                3,
                vec![2],
            ),
            (json!({"containers": limited}), 2, vec![2]),
            // Go writes empty lists and maps as null.
            (
                json!({"containers": null, "initContainers": null, "overhead": null, "new": 1}),
                0,
                vec![],
            ),
        ] {
            let demand = demand_of_spec(spec.clone()).unwrap();
            assert_eq!(
                (demand.units, demand.unit_requests),
                (units, unit_requests),
                "{spec}"
            );
        }
    }

    #[test]
    fn a_negative_fractional_or_huge_quantity_has_no_demand() {
        assert_eq!(demand_of_containers(&[], &["-1"]), None);
        assert_eq!(demand_of_containers(&[("1500m", false)], &["1"]), None);
        assert_eq!(demand_of_containers(&[], &["10000000000G"]), None);
    }
}
