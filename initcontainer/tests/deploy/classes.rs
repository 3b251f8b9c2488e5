//! Tests of the names of classes in the chart's values.

use std::fs;

use harness::manifests::{helm, repository};
use serde_json::{Value, json};

/// The chart cannot read the image, so it has a list of the image's classes. `UPDATE_FIXTURES=1`
/// writes the list.
#[test]
fn the_chart_lists_the_classes_of_the_image() {
    let entries = fs::read_dir(repository("device-class/classes")).unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files
        .filter_map(|file| Some(file.strip_suffix(".toml")?.to_owned()))
        .collect();
    names.sort();
    let text = names.join("\n") + "\n";
    let list = repository("deploy/helm/classes.txt");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(&list, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(list).unwrap(), text);
}

/// Renders the chart, and returns the message if the chart refuses the values. Returns `None`
/// without Helm.
fn render(values: &Value) -> Option<Result<(), String>> {
    let output = helm(values).unwrap()?;
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(output.status.success().then_some(()).ok_or(message))
}

/// The pods would write only a line in their log, and the nodes would lack the devices.
#[test]
fn a_class_that_no_node_has_is_refused() {
    for (place, values) in [
        (
            "classes.enabled",
            json!({"classes": {"enabled": ["gpu-shared"]}}),
        ),
        (
            "classes.disabled",
            json!({"classes": {"disabled": ["gpu-shared"]}}),
        ),
        ("replicas", json!({"replicas": {"gpu-shared": 2}})),
        ("dra.classes", json!({"dra": {"classes": ["gpu-shared"]}})),
        (
            "config",
            json!({"config": "[ class.\"gpu-shared\" ]\nenabled = true"}),
        ),
    ] {
        let Some(result) = render(&values) else {
            return;
        };
        let refused = result.unwrap_err();
        let wanted = format!("{place} names the class gpu-shared, which the image does not have");
        assert!(refused.contains(&wanted), "{refused}");
    }
}

#[test]
fn a_class_of_your_own_or_of_the_nodes_is_accepted() {
    for values in [
        json!({"classes": {"enabled": ["mychip"], "own": {"mychip": "version = 1"}}}),
        json!({"classes": {"onNodes": ["mychip"]}, "config": "[class.mychip]\nenabled = true"}),
    ] {
        if let Some(result) = render(&values) {
            result.unwrap();
        }
    }
}
