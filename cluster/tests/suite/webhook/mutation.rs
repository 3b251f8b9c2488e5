//! Tests of the changes that the webhook makes to pods.

use json_patch::PatchOperation;
use serde_json::{Value, json};

use super::{DCP10, DCP12, NLB0, NLB3, amounts, container, mutate, namespace, pod};

const REGION: &str = "region-69528db6eb31577a8c3668f9faa081f6";
const REGION_10: &str = "region-ce48969398f05f33946d560708be108a";
const DEVELOPMENT: &str = "regiondevel-69528db6eb31577a8c3668f9faa081f6";
const FUNCTION: &str = "af-695.d84.aVKNtusxV3qMNmj5-qCB9thCTcSko8QT-J5DNoP5BAs";

/// Returns the pod after its mutation, and checks that a second mutation does not change the
/// pod.
pub(super) fn mutated(pod: &Value) -> Value {
    let mutation = mutate(pod, &namespace()).unwrap();
    let mut after = pod.clone();
    json_patch::patch(&mut after, &mutation.patch).unwrap();
    let again = mutate(&after, &namespace()).unwrap();
    assert!(again.patch.0.is_empty(), "{:?}", again.patch);
    after
}

fn variables(pairs: &[(&str, &str)]) -> Value {
    let pair = |(at, (region, function)): (usize, &(&str, &str))| {
        let at = at + 1;
        [
            json!({"name": format!("FPGA_REGION_{at}"), "value": region}),
            json!({"name": format!("FPGA_AFU_{at}"), "value": function}),
        ]
    };
    pairs.iter().enumerate().flat_map(pair).collect()
}

#[test]
fn friendly_names_are_replaced_by_the_device_plugins_resources() {
    for (asked, resources, pairs) in [
        (&[("nlb0-pre", "2")][..], &[(FUNCTION, "2")][..], &[][..]),
        // This resource exists only with Boathook's plugin: a container with it gets the
        // management node.
        (&[("whole", "1")], &[(DEVELOPMENT, "1")], &[]),
        (&[("nlb0-orch", "1")], &[(REGION, "1")], &[(DCP12, NLB0)]),
        // There is one pair of variables for each unit. The pairs are sorted by name, whatever
        // the order of the requests is.
        (
            &[("nlb3-orch", "2"), ("nlb0-orch", "1")],
            &[(REGION, "3")],
            &[(DCP12, NLB0), (DCP12, NLB3), (DCP12, NLB3)],
        ),
        (
            &[("nlb0-orch", "1"), ("nlb0-orch.dcp1.0", "1")],
            &[(REGION, "1"), (REGION_10, "1")],
            &[(DCP12, NLB0), (DCP10, NLB0)],
        ),
        // The container requests a resource of the device plugin itself and a name to map.
        (
            &[(REGION, "1"), ("nlb0-orch", "2")],
            &[(REGION, "3")],
            &[(DCP12, NLB0), (DCP12, NLB0)],
        ),
        (&[(REGION, "1")], &[(REGION, "1")], &[]),
        (&[("nlb0-orch", "0")], &[(REGION, "0")], &[]),
    ] {
        let mut wanted = container(resources);
        if !pairs.is_empty() {
            wanted["env"] = variables(pairs);
        }
        assert_eq!(mutated(&pod(container(asked))), pod(wanted), "{asked:?}");
    }
}

#[test]
fn the_order_and_the_sources_of_variables_are_kept() {
    let own = json!([
        {"name": "Z", "value": "\"quotes\" and \\ and \u{1}"},
        {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "A", "value": "$(Z)"},
    ]);
    let mut before = container(&[("nlb0-orch", "1"), ("nlb3-orch", "1")]);
    before["env"] = own.clone();
    let after = mutated(&pod(before));
    let env = after["spec"]["containers"][0]["env"].as_array().unwrap();
    assert_eq!(env[..3], own.as_array().unwrap()[..]);
    assert_eq!(json!(env[3..]), variables(&[(DCP12, NLB0), (DCP12, NLB3)]));
}

#[test]
fn a_missing_list_of_variables_is_created() {
    for env in [Value::Null, json!([])] {
        let mut before = container(&[("nlb0-orch", "1")]);
        before["env"] = env;
        let env = &mutated(&pod(before))["spec"]["containers"][0]["env"];
        assert_eq!(*env, variables(&[(DCP12, NLB0)]));
    }
}

#[test]
fn each_container_init_container_and_sidecar_is_mapped_independently() {
    let sidecar = |mut container: Value| {
        container["restartPolicy"] = "Always".into();
        container
    };
    let before = json!({"spec": {
        "initContainers": [
            container(&[("nlb0-orch", "1")]),
            sidecar(container(&[("nlb3-orch", "1")])),
            container(&[]),
        ],
        "containers": [container(&[]), container(&[("nlb0-pre", "1")]), container(&[("nlb0-orch", "1")])],
    }});
    let after = mutated(&before);
    let of = |list: &str, at: usize| after["spec"][list][at].clone();
    // The numbers of the variables begin with 1 in each container.
    assert_eq!(of("initContainers", 0)["env"], variables(&[(DCP12, NLB0)]));
    assert_eq!(of("initContainers", 1)["env"], variables(&[(DCP12, NLB3)]));
    assert_eq!(of("initContainers", 1)["restartPolicy"], "Always");
    assert_eq!(of("initContainers", 2), container(&[]));
    assert_eq!(of("containers", 0), container(&[]));
    assert_eq!(of("containers", 1), container(&[(FUNCTION, "1")]));
    assert_eq!(of("containers", 2)["env"], variables(&[(DCP12, NLB0)]));
}

#[test]
fn limits_without_requests_are_enough() {
    let mut before = container(&[]);
    before["resources"] = json!({"limits": amounts(&[("nlb0-pre", "1")])});
    let after = mutated(&pod(before));
    let resources = &after["spec"]["containers"][0]["resources"];
    assert_eq!(*resources, json!({"limits": amounts(&[(FUNCTION, "1")])}));
}

#[test]
fn other_resources_stay() {
    let mut before = container(&[("nlb0-pre", "1k")]);
    before["resources"]["limits"]["cpu"] = "1".into();
    before["resources"]["limits"]["fpga.intel.community/x"] = "1".into();
    // The limit of units for region mode also applies in function mode.
    assert!(mutate(&pod(before.clone()), &namespace()).is_err());
    before["resources"]["limits"]["fpga.intel.com/nlb0-pre"] = "64".into();
    before["resources"]["requests"]["fpga.intel.com/nlb0-pre"] = json!(64);
    let after = mutated(&pod(before));
    let mut limits = amounts(&[(FUNCTION, "64")]);
    limits["cpu"] = "1".into();
    limits["fpga.intel.community/x"] = "1".into();
    let resources = &after["spec"]["containers"][0]["resources"];
    assert_eq!(resources["limits"], limits);
}

#[test]
fn a_container_without_friendly_names_is_left_alone() {
    // This pod was mutated already and has the webhook's variables. The other pods request no
    // resource by a friendly name.
    let mut mapped = container(&[(REGION, "1")]);
    mapped["env"] = variables(&[(DCP12, NLB0)]);
    for left_alone in [
        pod(mapped),
        pod(container(&[])),
        pod(json!({"name": "x"})),
        pod(json!({"name": "x", "resources": null})),
        json!({}),
        json!({"spec": null}),
    ] {
        let patch = mutate(&left_alone, &namespace()).unwrap().patch;
        assert!(patch.0.is_empty(), "{left_alone}");
    }
}

#[test]
fn pointers_are_escaped_and_operations_sorted() {
    let pod = pod(container(&[("nlb3-orch", "1"), ("nlb0-orch", "1")]));
    let patch = mutate(&pod, &namespace()).unwrap().patch.0;
    let operations = patch.iter().map(|operation| {
        let kind = match operation {
            PatchOperation::Add(_) => "add",
            PatchOperation::Remove(_) => "remove",
            other => panic!("{other:?}"),
        };
        format!("{kind} {}", operation.path())
    });
    let amounts = |section: &str| {
        let at = format!("/spec/containers/0/resources/{section}/fpga.intel.com~1");
        [
            format!("remove {at}nlb0-orch"),
            format!("remove {at}nlb3-orch"),
            format!("add {at}{REGION}"),
        ]
    };
    let env = "add /spec/containers/0/env";
    let mut wanted = [amounts("limits"), amounts("requests")].concat();
    wanted.push(env.to_owned());
    wanted.extend(vec![format!("{env}/-"); 4]);
    assert_eq!(operations.collect::<Vec<_>>(), wanted);
}
