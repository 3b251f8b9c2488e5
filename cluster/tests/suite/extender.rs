//! Tests of the extender's functions filter and prioritize, called as kube-scheduler calls
//! them.

use std::sync::Arc;

use cluster::scheduler::config::Config;
use cluster::scheduler::extender::Extender;
use cluster::scheduler::objects::{Node, Pod};
use serde_json::{Value, json};

const GPU: &str = "vendor.com/gpu";
const MEMORY: &str = "vendor.com/gpu-mem";

/// A configuration with two resources: whole devices without a layout, and memory in devices
/// of 8 units each.
pub(crate) const CONFIG: &str = "[[resource]]\nname = 'vendor.com/gpu'\n\
    [[resource]]\nname = 'vendor.com/gpu-mem'\n\
    [[resource.layout]]\nunits_per_device = 8\n";

pub(crate) fn parse_config(text: &str) -> Config {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Config::read(file.path()).unwrap()
}

pub(crate) fn node(name: &str, resource: &str, units: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "status": {"capacity": {resource: units}, "allocatable": {resource: units}},
    })
}

pub(crate) fn pod(uid: &str, node: Option<&str>, resource: &str, units: &str) -> Value {
    json!({
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"requests": {resource: units}}}],
        },
        "status": {"phase": "Running"},
    })
}

fn extender(nodes: &[Value], pods: &[Value]) -> Arc<Extender> {
    let extender = Extender::new(parse_config(CONFIG));
    let nodes: Vec<Node> = nodes.iter().cloned().map(deserialize).collect();
    extender.update_view(|view| {
        view.replace_nodes(&nodes);
        view.replace_pods(Vec::new());
    });
    pods.iter().for_each(|pod| apply(&extender, pod));
    extender
}

/// Updates the view with a pod that was created or changed.
fn apply(extender: &Extender, pod: &Value) {
    extender.update_view(|view| view.apply_pod(&deserialize::<Pod>(pod.clone())));
}

fn deserialize<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn parse_answer(answer: serde_json::Result<Vec<u8>>) -> Value {
    serde_json::from_slice(&answer.unwrap()).unwrap()
}

fn prioritize(extender: &Extender, pod: &Value, names: &[&str]) -> Vec<u64> {
    let request = json!({"Pod": pod, "Nodes": null, "NodeNames": names});
    let answer = parse_answer(extender.prioritize(request.to_string().as_bytes()));
    let scores = answer.as_array().unwrap().iter();
    let scores = scores.map(|score| score["Score"].as_u64().unwrap());
    scores.collect()
}

fn filter(extender: &Extender, pod: &Value, names: &[&str]) -> Value {
    let request = json!({"Pod": pod, "Nodes": null, "NodeNames": names});
    parse_answer(extender.filter(request.to_string().as_bytes()))
}

#[test]
fn the_fuller_node_of_two_gets_the_higher_score() {
    let nodes = [("used", "2"), ("idle", "2"), ("none", "0")];
    let nodes = nodes.map(|(name, units)| node(name, GPU, units));
    let extender = extender(&nodes, &[pod("a", Some("used"), GPU, "1")]);
    let new = pod("b", None, GPU, "1");
    let names = ["used", "idle", "none", "unknown"];
    assert_eq!(prioritize(&extender, &new, &names), [10, 5, 0, 0]);
    // A pod that requests none of the configured resources has no scores.
    let other = pod("c", None, "cpu", "1");
    assert_eq!(prioritize(&extender, &other, &["used", "idle"]), [0, 0]);
}

#[test]
fn requests_with_old_and_new_keys_and_with_names_or_objects_are_understood() {
    let object = json!({"metadata": {"name": "n"}, "status": {"images": [1.50]}, "new": {"a": 1}});
    let extender = extender(&[node("n", GPU, "2")], &[]);
    let pod = pod("a", None, GPU, "1");
    let passed = |nodes: Value, names: Value| {
        json!({"Nodes": nodes, "NodeNames": names, "FailedNodes": {},
            "FailedAndUnresolvableNodes": {}, "Error": ""})
    };
    let names = passed(Value::Null, json!(["n"]));
    let objects = passed(json!({"items": [object]}), Value::Null);
    let scores = json!([{"Host": "n", "Score": 5}]);
    let nothing = passed(Value::Null, Value::Null);
    let no_objects = passed(json!({"items": []}), Value::Null);
    let listed = json!({"metadata": {}, "items": [object]});
    for (request, filtered, scored) in [
        (
            json!({"Pod": pod, "Nodes": null, "NodeNames": ["n"]}),
            &names,
            &scores,
        ),
        (
            json!({"Pod": pod, "Nodes": listed, "NodeNames": null}),
            &objects,
            &scores,
        ),
        (json!({"pod": pod, "nodenames": ["n"]}), &names, &scores),
        (
            json!({"pod": pod, "nodes": {"items": [object]}}),
            &objects,
            &scores,
        ),
        // Lists may be null, and fields of later versions are ignored.
        (
            json!({"Pod": pod, "Nodes": null, "NodeNames": null, "Later": {}}),
            &nothing,
            &json!([]),
        ),
        (
            json!({"Pod": pod, "Nodes": {"items": null}}),
            &no_objects,
            &json!([]),
        ),
    ] {
        let body = request.to_string();
        assert_eq!(
            parse_answer(extender.filter(body.as_bytes())),
            *filtered,
            "{body}"
        );
        assert_eq!(
            parse_answer(extender.prioritize(body.as_bytes())),
            *scored,
            "{body}"
        );
    }
}

#[test]
fn nodes_are_refused_where_no_device_has_room() {
    let nodes = [node("four-four", MEMORY, "16"), node("eight", MEMORY, "16")];
    let pods = [
        pod("a", Some("four-four"), MEMORY, "4"),
        pod("b", Some("four-four"), MEMORY, "5"),
        pod("c", Some("eight"), MEMORY, "4"),
        pod("d", Some("eight"), MEMORY, "4"),
    ];
    let extender = extender(&nodes, &pods);
    let names = ["four-four", "eight"];
    let answer = filter(&extender, &pod("e", None, MEMORY, "8"), &names);
    assert_eq!(answer["NodeNames"], json!(["eight"]));
    let reason = "no device has 8 free units of vendor.com/gpu-mem";
    // The sum of units fits: kube-scheduler would find no pod to preempt, and report an
    // error.
    for failed in ["FailedAndUnresolvableNodes", "FailedNodes"] {
        assert_eq!(answer[failed], json!({"four-four": reason}));
    }
    // No device of any node has so many units, so every node is rejected.
    let answer = filter(&extender, &pod("e", None, MEMORY, "9"), &names);
    assert_eq!(answer["NodeNames"], json!([]));
    let failed = answer["FailedAndUnresolvableNodes"].as_object().unwrap();
    assert_eq!(failed.len(), 2);
    assert!(failed["eight"].as_str().unwrap().contains("each has 8"));
    // The old types have only one map of rejected nodes.
    assert_eq!(answer["FailedNodes"].as_object().unwrap().len(), 2);
}

#[test]
fn a_node_is_refused_only_if_no_arrangement_of_its_pods_leaves_room() {
    let extender = extender(&[node("n", MEMORY, "24")], &[]);
    let passes = |units: &str| {
        let answer = filter(&extender, &pod("new", None, MEMORY, units), &["n"]);
        answer["NodeNames"] == json!(["n"])
    };
    for (uid, units) in [("a", "5"), ("b", "5"), ("c", "2"), ("d", "2")] {
        apply(&extender, &pod(uid, Some("n"), MEMORY, units));
    }
    // The pods of 2 units may be beside those of 5 units, or both on the third device.
    assert!(passes("8"));
    apply(&extender, &pod("e", Some("n"), MEMORY, "4"));
    // A pod of 4 units fits on the third device only.
    assert!(!passes("5") && passes("4"));
    extender.update_view(|view| view.remove_pod("a"));
    assert!(passes("8"));
}

#[test]
fn a_node_in_use_is_preferred_to_an_idle_one_however_large_both_are() {
    let nodes = ["used", "idle"].map(|name| node(name, GPU, "640"));
    let extender = extender(&nodes, &[pod("a", Some("used"), GPU, "1")]);
    for (units, scores) in [("1", [1, 0]), ("64", [2, 1]), ("639", [10, 9])] {
        let new = pod("b", None, GPU, units);
        assert_eq!(prioritize(&extender, &new, &["used", "idle"]), scores);
    }
}

#[test]
fn before_the_first_list_filter_passes_and_prioritize_gives_zeros() {
    let extender = Extender::new(parse_config(CONFIG));
    let node: Node = deserialize(node("n", MEMORY, "16"));
    let asked = || {
        let too_much = filter(&extender, &pod("a", None, MEMORY, "9"), &["n"]);
        let scores = prioritize(&extender, &pod("b", None, MEMORY, "8"), &["n"]);
        (too_much["NodeNames"].clone(), scores)
    };
    for step in 0..3 {
        assert_eq!(asked(), (json!(["n"]), vec![0]), "{step}");
        extender.update_view(|view| match step {
            0 => view.apply_node(&node),
            _ => view.replace_nodes(std::slice::from_ref(&node)),
        });
    }
    extender.update_view(|view| view.replace_pods(Vec::new()));
    assert_eq!(asked(), (json!([]), vec![5]));
}

#[test]
fn a_pod_with_invalid_quantities_passes_everywhere() {
    let names = ["-2", "1500m", "two", "2k"];
    let nodes = names.map(|units| node(units, GPU, units));
    let extender = extender(&nodes, &[pod("x", Some("2k"), GPU, "-3")]);
    let new = pod("a", None, GPU, "1k");
    assert_eq!(prioritize(&extender, &new, &names), [0, 0, 0, 5]);
    for quantity in ["-1", "0.5", "", "1e99"] {
        let odd = pod("b", None, GPU, quantity);
        assert_eq!(prioritize(&extender, &odd, &names), [0; 4], "{quantity}");
        let passed = &filter(&extender, &odd, &names)["NodeNames"];
        assert_eq!(*passed, json!(names), "{quantity}");
    }
}

#[test]
fn a_pod_uses_units_from_its_binding_to_its_end() {
    let extender = extender(&[node("n", GPU, "4")], &[]);
    let score = |uid: &str| prioritize(&extender, &pod(uid, None, GPU, "0"), &["n"]);
    let one = |uid: &str| prioritize(&extender, &pod(uid, None, GPU, "1"), &["n"])[0];
    assert_eq!(score("zero"), [0]);
    assert_eq!(one("1"), 2);
    let mut bound = pod("p", Some("n"), GPU, "2");
    // A pod that is seen twice is counted once.
    apply(&extender, &bound);
    apply(&extender, &bound);
    assert_eq!(one("2"), 8);
    bound["status"]["phase"] = "Succeeded".into();
    apply(&extender, &bound);
    assert_eq!(one("3"), 2);
    // A pod may be listed before its node, and may remain after it.
    apply(&extender, &pod("early", Some("late"), GPU, "1"));
    let late: Node = deserialize(node("late", GPU, "2"));
    let score = |uid: &str| prioritize(&extender, &pod(uid, None, GPU, "1"), &["late"]);
    extender.update_view(|view| view.apply_node(&late));
    assert_eq!(score("q"), [10]);
    extender.update_view(|view| view.remove_node("late"));
    assert_eq!(score("r"), [0]);
    extender.update_view(|view| view.remove_pod("early"));
    extender.update_view(|view| view.apply_node(&late));
    assert_eq!(score("s"), [5]);
}
