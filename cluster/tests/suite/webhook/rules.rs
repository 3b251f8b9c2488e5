//! Tests of the rules by which pods are refused, and of their messages.

use cluster::webhook::mappings::Namespace;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{amounts, container, mutate, namespace, pod};

const REGION: &str = "region-69528db6eb31577a8c3668f9faa081f6";

fn denial(container: Value) -> String {
    let denied = mutate(&pod(container), &namespace()).unwrap_err();
    denied.to_string()
}

#[test]
fn pods_that_cannot_be_mapped_are_refused_with_the_reason() {
    let modes = "operated in different modes";
    let both = "\"both\" is both an AcceleratorFunction and an FpgaRegion";
    let odd_mode = "\"odd-mode\" is registered with unknown mode \"afx\" instead of";
    let odd_id = "\"odd-id\" has an id that is not hexadecimal";
    let not_integral = "isn't of integral type for \"fpga.intel.com/nlb0-pre\"";
    let many = "65 units of FPGA resources are requested, but at most 64";
    for (asked, reason) in [
        (
            &[("unknown", "1")][..],
            "container main: no such resource: \"unknown\"",
        ),
        // A resource that is not a name of the device plugin is refused.
        (
            &[("region-arria10", "1")],
            "no such resource: \"region-arria10\"",
        ),
        // An unknown name beside one that is known, whatever their order.
        (
            &[("a-unknown", "1"), ("nlb0-pre", "1")],
            "no such resource: \"a-unknown\"",
        ),
        (
            &[("nlb0-pre", "1"), ("z-unknown", "1")],
            "no such resource: \"z-unknown\"",
        ),
        (&[("nlb0-pre", "1"), ("nlb0-orch", "1")], modes),
        (&[("whole", "1"), ("nlb0-orch", "1")], modes),
        // The rule also applies to the device plugin's own name of a region.
        (&[(REGION, "1"), ("nlb0-pre", "1")], modes),
        (&[("both", "1")], both),
        (&[("odd-mode", "1")], odd_mode),
        (&[("odd-id", "1")], odd_id),
        (&[("odd-length", "1")], "\"odd-length\" has an id that"),
        (&[("nlb0-pre", "0.5")], not_integral),
        (&[("nlb0-pre", "-1")], not_integral),
        (&[("nlb0-pre", "many")], not_integral),
        (&[("nlb0-orch", "65")], many),
        (&[("nlb0-orch", "40"), ("nlb3-orch", "40")], "80 units"),
        (&[("nlb0-orch", "9E")], "9000000000000000000 units"),
    ] {
        let said = denial(container(asked));
        assert!(said.contains(reason), "{asked:?}: {said}");
    }
}

#[test]
fn limits_and_requests_have_to_agree() {
    for resources in [
        json!({"limits": amounts(&[("nlb0-pre", "2")]), "requests": amounts(&[("nlb0-pre", "1")])}),
        json!({"requests": amounts(&[("nlb0-pre", "1")])}),
    ] {
        let said = denial(json!({"name": "c", "resources": resources}));
        let reason = "'limits' and 'requests' for \"fpga.intel.com/nlb0-pre\" must be equal";
        assert!(said.contains(reason), "{said}");
    }
}

#[test]
fn variables_that_the_webhook_sets_are_refused() {
    for name in ["FPGA_REGION_1", "FPGA_AFU_7", "FPGA_AFU_"] {
        let mut own = container(&[("nlb0-orch", "1")]);
        own["env"] = json!([{"name": "A", "value": "b"}, {"name": name, "value": "c"}]);
        let said = denial(own);
        assert!(said.contains(&format!("variable {name} is set")), "{said}");
        // If the webhook sets no variables, the user may set them.
        let mut own = container(&[("nlb0-pre", "1")]);
        own["env"] = json!([{"name": name, "value": "c"}]);
        assert!(mutate(&pod(own), &namespace()).is_ok());
    }
}

/// The API server validates a pod only after the webhook, so names may be longer than any
/// valid name.
#[test]
fn names_that_no_pod_can_have_make_no_long_messages() {
    let long = "x\n".repeat(1000);
    for asked in [
        container(&[(&long, "1")]),
        json!({"name": long, "resources": {"limits": amounts(&[("unknown", "1")])}}),
        json!({"name": "c", "resources": {"limits": amounts(&[("nlb0-pre", &long)])}}),
        json!({"name": "c", "env": [{"name": format!("FPGA_AFU_{long}")}],
            "resources": {"limits": amounts(&[("nlb0-orch", "1")])}}),
    ] {
        let said = denial(asked);
        assert!(said.len() < 400 && !said.contains('\n'), "{said}");
    }
}

#[test]
fn the_changes_of_a_pod_are_bounded() {
    let whole = container(&[("nlb0-orch", "64")]);
    let containers = |count| json!({"spec": {"containers": vec![whole.clone(); count]}});
    let changes = mutate(&containers(2), &namespace()).unwrap().patch.0.len();
    assert!(mutate(&containers(8192 / changes), &namespace()).is_ok());
    let said = mutate(&containers(8192 / changes + 1), &namespace()).unwrap_err();
    assert!(said.to_string().contains("at most 4096 changes"), "{said}");
}

#[test]
fn variables_that_cannot_be_seen_are_warned_of() {
    let mut from = container(&[("nlb0-orch", "1")]);
    from["envFrom"] = json!([{"configMapRef": {"name": "x"}}]);
    let warnings = mutate(&pod(from), &namespace()).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    let is_short = warnings[0].contains("envFrom") && warnings[0].len() <= 120;
    assert!(is_short, "{warnings:?}");
}

#[test]
fn names_of_another_namespace_are_unknown() {
    let pod = pod(container(&[("nlb0-pre", "1")]));
    assert!(mutate(&pod, &Namespace::default()).is_err());
    assert!(mutate(&pod, &super::mappings().namespace("other")).is_err());
}

proptest! {
    /// For any request, a second mutation of the result changes nothing, and the number of
    /// units stays the same.
    #[test]
    fn a_mutation_is_done_once(
        asked in prop::collection::btree_map(
            prop::sample::select(vec!["nlb0-orch", "nlb3-orch", "nlb0-orch.dcp1.0", REGION]),
            0..16_u64,
            1..4,
        ),
        names in prop::collection::vec("[A-E]", 0..4),
    ) {
        let list: Vec<(&str, String)> =
            asked.iter().map(|(name, units)| (*name, units.to_string())).collect();
        let list: Vec<(&str, &str)> =
            list.iter().map(|(name, units)| (*name, units.as_str())).collect();
        let mut before = container(&list);
        before["env"] = names.iter().map(|name| json!({"name": name, "value": "x"})).collect();
        let after = super::mutation::mutated(&pod(before.clone()));
        let after = &after["spec"]["containers"][0];
        for section in ["limits", "requests"] {
            let amounts = after["resources"][section].as_object().unwrap();
            let units = amounts.values().map(|units| units.as_str().unwrap().parse::<u64>().unwrap());
            prop_assert_eq!(units.sum::<u64>(), asked.values().sum::<u64>());
            prop_assert!(amounts.keys().all(|key| key.starts_with("fpga.intel.com/region-")));
        }
        let env = after["env"].as_array().unwrap();
        prop_assert_eq!(&env[..names.len()], &before["env"].as_array().unwrap()[..]);
        let mapped: u64 = asked.iter().filter(|(name, _)| **name != REGION).map(|(_, units)| units).sum();
        prop_assert_eq!((env.len() - names.len()) as u64, 2 * mapped);
    }
}
