//! Computes how many units of a resource a pod takes, as kube-scheduler counts them, and in
//! which portions the kubelet allocates them.

use crate::quantity;

use super::objects::{Container, Pod};

/// A pod's request for one resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// The units that the scheduler subtracts from those of the node.
    pub units: u64,
    /// The units that the kubelet allocates at once, one number for each container.
    pub portions: Vec<u64>,
}

/// Returns the demand of a pod. Init containers run one after the other before the other
/// containers start, and the kubelet allocates their devices again to later containers. A
/// sidecar keeps its devices. Returns `None` if a quantity is not valid for devices.
pub fn demand(pod: &Pod, resource: &str) -> Option<Demand> {
    let mut persistent = Vec::new();
    // The units of the moment, before the containers start, at which the pod has the most units.
    let mut peak: Vec<u64> = Vec::new();
    for container in &pod.spec.init_containers {
        let units = requested_units(container, resource)?;
        let concurrent: Vec<u64> = persistent.iter().copied().chain([units]).collect();
        if sum(&concurrent) > sum(&peak) {
            peak = concurrent;
        }
        if container.restart_policy.as_deref() == Some("Always") {
            persistent.push(units);
        }
    }
    for container in &pod.spec.containers {
        persistent.push(requested_units(container, resource)?);
    }
    let overhead = units(pod.spec.overhead.get(resource))?;
    let mut portions = if sum(&peak) > sum(&persistent) {
        peak
    } else {
        persistent
    };
    portions.retain(|units| *units > 0);
    Some(Demand {
        units: sum(&portions).saturating_add(overhead),
        portions,
    })
}

fn sum(units: &[u64]) -> u64 {
    let add = |sum: u64, units: &u64| sum.saturating_add(*units);
    units.iter().fold(0, add)
}

/// Returns the requested quantity. The API server copies limits of extended resources to
/// requests.
fn requested_units(container: &Container, resource: &str) -> Option<u64> {
    let resources = &container.resources;
    let text = resources.requests.get(resource);
    units(text.or_else(|| resources.limits.get(resource)))
}

fn units(text: Option<&String>) -> Option<u64> {
    text.map_or(Some(0), |text| quantity::units(text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn container(units: &str, sidecar: bool) -> Value {
        let policy = sidecar.then_some("Always");
        json!({"restartPolicy": policy, "resources": {"requests": {"v.com/gpu": units}, "limits": null}})
    }

    fn count_demand(init: &[(&str, bool)], containers: &[&str]) -> Option<Demand> {
        let init = init.iter();
        let init: Vec<Value> = init.map(|one| container(one.0, one.1)).collect();
        let containers = containers.iter().map(|units| container(units, false));
        let containers: Vec<Value> = containers.collect();
        of_spec(json!({"containers": containers, "initContainers": init}))
    }

    fn of_spec(spec: Value) -> Option<Demand> {
        let pod = serde_json::from_value(json!({"metadata": null, "spec": spec, "status": null}));
        demand(&pod.unwrap(), "v.com/gpu")
    }

    #[test]
    fn pods_are_counted_as_the_scheduler_counts_them() {
        for (init, containers, units, portions) in [
            (&[][..], &["1", "2"][..], 3, &[1, 2][..]),
            (&[("2", false)], &["1"], 2, &[2]),
            (&[("2", false), ("3", false)], &["1"], 3, &[3]),
            (&[("1", true)], &["1"], 2, &[1, 1]),
            // A sidecar runs beside the init container that follows it,
            (&[("1", true), ("3", false)], &["1"], 4, &[1, 3]),
            // and not beside the one before it.
            (&[("3", false), ("1", true)], &["1"], 3, &[3]),
            (&[], &["0"], 0, &[]),
            (&[], &[], 0, &[]),
        ] {
            let demand = count_demand(init, containers).unwrap();
            let found = (demand.units, &demand.portions[..]);
            assert_eq!(found, (units, portions), "{init:?} {containers:?}");
        }
    }

    #[test]
    fn overhead_counts_but_is_not_allocated_and_limits_stand_in_for_requests() {
        let two = [container("2", false)];
        let limited = json!([{"resources": {"limits": {"v.com/gpu": "2"}}}]);
        for (spec, units, portions) in [
            (
                json!({"containers": two, "overhead": {"v.com/gpu": "1"}}),
                3,
                vec![2],
            ),
            (json!({"containers": limited}), 2, vec![2]),
            // Null for everything.
            (
                json!({"containers": null, "initContainers": null, "overhead": null, "new": 1}),
                0,
                vec![],
            ),
        ] {
            let demand = of_spec(spec.clone()).unwrap();
            assert_eq!((demand.units, demand.portions), (units, portions), "{spec}");
        }
    }

    #[test]
    fn quantities_that_no_device_has_are_errors() {
        assert_eq!(count_demand(&[], &["-1"]), None);
        assert_eq!(count_demand(&[("1500m", false)], &["1"]), None);
        assert_eq!(count_demand(&[], &["10000000000G"]), None);
    }
}
