use device_class::name::DeviceRef;
use injection_plan::plan::{Action, GrantOrigin, InjectionStep, StepOwner};

use super::*;

fn device(id: &str) -> ContainerDevice {
    ContainerDevice {
        class: "chips".parse().unwrap(),
        device_id: id.to_owned().try_into().unwrap(),
        grant_origin: GrantOrigin::from(id.to_owned()),
        is_forced: false,
        name: None,
        node_paths: Vec::new(),
        has_arrived_late: false,
    }
}

fn chip(id: &str) -> DeviceRef {
    device(id).device_ref()
}

fn parse(rule: &str) -> DeviceRule {
    DeviceRule::parse(rule).unwrap()
}

#[test]
fn a_rule_that_stays_is_not_taken_with_a_device() {
    let rule = |owners: &[&str]| RecordedRule {
        rule: parse("c 10:183 rw"),
        owners: owners
            .iter()
            .map(|id| StepOwner::Device(chip(id)))
            .collect(),
        host_node: None,
        keeps_spec_access: false,
    };
    for [first, second] in [[vec![], vec!["chip-0"]], [vec!["chip-0"], vec![]]] {
        let mut record = AttachmentRecord::default();
        record.add_attachments(vec![device("chip-0")], vec![rule(&first)], Vec::new());
        record.add_attachments(Vec::new(), vec![rule(&second)], Vec::new());
        assert_eq!(record.remove_devices(|_| true).rules, []);
        assert_eq!(record.rules, [rule(&[])]);
    }
}

/// Returns a step that allows the device `id` this access.
fn allow(id: &str, rule: &str) -> InjectionStep {
    InjectionStep {
        action: Action::Allow {
            rule: parse(rule),
            is_in_spec: false,
            owners_by_access: [].into(),
            host_node_path: None,
        },
        owner_labels: id.to_owned(),
        owners: vec![StepOwner::Device(chip(id))],
    }
}

#[test]
fn a_rule_that_another_device_needs_stays_recorded() {
    let allow = |id| allow(id, "c 10:183 rw");
    let mut record = AttachmentRecord::default();
    let first = list_step_rules(&[allow("chip-0")]).collect();
    record.add_attachments(vec![device("chip-0"), device("chip-1")], first, Vec::new());
    record.add_step_owners(&[allow("chip-0"), allow("chip-1"), allow("chip-2")]);
    let removed_record = record.remove_devices(|device| device.device_id.as_str() == "chip-0");
    assert_eq!(removed_record.rules, []);
    let removed_record = record.remove_devices(|_| true);
    assert_eq!((removed_record.rules.len(), record.rules.len()), (1, 0));
}

#[test]
fn a_rule_of_another_access_does_not_replace_a_needed_one() {
    let mut record = AttachmentRecord::default();
    let steps = ["c 10:183 w", "c 10:183 r"].map(|rule| allow("chip-0", rule));
    let rules = steps
        .iter()
        .map(std::slice::from_ref)
        .flat_map(list_step_rules);
    let mut rules: Vec<_> = rules.collect();
    rules[0].owners.clear();
    record.add_attachments(vec![device("chip-0"), device("chip-1")], rules, Vec::new());
    record.add_step_owners(&[allow("chip-1", "c 10:183 r")]);
    let removed_record = record.remove_devices(|device| device.device_id.as_str() == "chip-0");
    assert_eq!(removed_record.rules, [], "chip-1 needs it");
}

#[test]
fn devices_are_renamed_all_at_once() {
    for (ids, expected_ids) in [
        (&[("0", "7")][..], ["7", "1", "2"]),
        (&[("0", "1"), ("1", "0")], ["1", "0", "2"]),
        (&[("0", "1"), ("1", "2"), ("2", "0")], ["1", "2", "0"]),
        (&[("0", "1"), ("1", "7")], ["1", "7", "2"]),
        // Another device has the id, or gets it.
        (&[("0", "1")], ["0", "1", "2"]),
        (&[("0", "1"), ("1", "2")], ["0", "1", "2"]),
        (&[("0", "7"), ("1", "7")], ["7", "1", "2"]),
        (&[("9", "0")], ["0", "1", "2"]),
    ] {
        let mut record = AttachmentRecord::default();
        let (mut rules, mut steps) = (Vec::new(), Vec::new());
        for id in ["0", "1", "2"] {
            steps.push(allow(id, &format!("c 10:{id} rw")));
            record.announcements.insert(chip(id), BTreeSet::new());
        }
        rules.extend(list_step_rules(&steps));
        record.add_attachments(["0", "1", "2"].map(device).into(), rules, Vec::new());
        let map = ids.iter().map(|(old, new)| (chip(old), chip(new).id));
        let renamed_refs = record.rename_devices(&map.collect(), |_, _| true);
        let current_ids: Vec<&str> = record
            .devices
            .iter()
            .map(|device| device.device_id.as_str())
            .collect();
        assert_eq!(current_ids, expected_ids, "{ids:?}");
        let owners = record.rules.iter().flat_map(|rule| &rule.owners).cloned();
        let expected_owners = expected_ids.map(|id| StepOwner::Device(chip(id)));
        assert_eq!(owners.collect::<Vec<_>>(), expected_owners, "{ids:?}");
        let id_pairs = ["0", "1", "2"].iter().zip(expected_ids);
        let changed_pairs = id_pairs.filter(|(old, new)| **old != *new);
        let new_refs = changed_pairs.map(|(old, new)| (chip(old), chip(new)));
        assert_eq!(renamed_refs, new_refs.collect(), "{ids:?}");
        assert_eq!(record.announcements.len(), 3, "{ids:?}");
    }
}

#[test]
fn a_device_that_needs_less_access_keeps_only_that() {
    let steps = [
        allow("chip-0", "c 10:183 rw"),
        allow("chip-1", "c 10:183 r"),
    ];
    for missing_steps in [&steps[..], &steps[..1]] {
        let mut record = AttachmentRecord::default();
        let rules = list_step_rules(missing_steps).collect();
        record.add_attachments(vec![device("chip-0"), device("chip-1")], rules, Vec::new());
        record.add_step_owners(&steps);
        let removed_record = record.remove_devices(|device| device.device_id.as_str() == "chip-0");
        let list_texts = |record: &AttachmentRecord| -> Vec<String> {
            record
                .rules
                .iter()
                .map(|rule| rule.rule.to_string())
                .collect()
        };
        assert_eq!(list_texts(&removed_record), ["c 10:183 rw"]);
        assert_eq!(list_texts(&record), ["c 10:183 r"]);
    }
}

#[test]
fn a_record_is_kept_for_revoked_rules_of_the_specification() {
    let mut record = AttachmentRecord::default();
    let rule = RecordedRule {
        rule: parse("c 10:183 rw"),
        owners: Vec::new(),
        host_node: None,
        keeps_spec_access: false,
    };
    assert!(!record.has_content());
    record.rules.push(rule.clone());
    // A record without the specification's rules counts as having one for the device.
    record.remove_revoked_rules(&[rule]);
    assert_eq!(record.rules, []);
    assert!(record.has_content());
    assert!(!record.has_attachments());
}

/// A name can mean several devices, and its request has the id of one of them.
#[test]
fn a_detached_device_does_not_return_by_a_request_that_stays() {
    let request = |class: &str, awaited: &str| -> AwaitedRequest {
        let text = format!(r#"{{"class":"{class}","awaited":{awaited},"device":"chip-1"}}"#);
        serde_json::from_str(&text).unwrap()
    };
    let named = r#"{"device":{"name":"pair"}}"#;
    for (request, expected_ids) in [
        (request("chips", named), &["chip-0"][..]),
        (request("chips", r#""all""#), &["chip-0"]),
        (request("sticks", named), &[]),
    ] {
        let mut record = AttachmentRecord {
            awaited_requests: vec![request.clone()],
            ..AttachmentRecord::default()
        };
        for _ in 0..2 {
            record.cancel_requests(&[], &[device("chip-0")]);
            let [request] = &record.awaited_requests[..] else {
                panic!("{request:?} stays");
            };
            let ids: Vec<&str> = request.detached_ids.iter().map(|id| id.as_str()).collect();
            assert_eq!(ids, expected_ids, "{request:?}");
        }
    }
}
