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

/// Two classes that offer the same hardware would give one device to two pods.
#[test]
fn a_second_class_for_the_same_devices_is_refused() {
    for (values, refused) in [
        (json!({"classes": {"enabled": ["gpu-share"]}}), true),
        (json!({"dra": {"classes": ["aws-neuroncore"]}}), true),
        (
            json!({"classes": {"enabled": ["gpu-share"]}, "replicas": {"gpu-share": 2}}),
            true,
        ),
        (
            json!({"classes": {"enabled": ["gpu-share"], "disabled": ["nvidia-gpu"]}}),
            false,
        ),
        (
            json!({
                "classes": {"enabled": ["gpu-share"]},
                "config": "[class.nvidia-gpu]\nenabled = false\n",
            }),
            false,
        ),
        (json!({"classes": {"disabled": ["gpu-share"]}}), false),
        (json!({"dra": {"classes": ["amd-gpu-parts"]}}), true),
        (json!({"dra": {"classes": ["sriov-vfio-parts"]}}), true),
        (json!({"classes": {"enabled": ["xilinx-card"]}}), true),
        (json!({"classes": {"enabled": ["intel-fpga-region"]}}), true),
        (
            json!({"classes": {"enabled": ["intel-fpga-regiondevel"], "disabled": ["intel-fpga-af"]}}),
            false,
        ),
        (
            json!({"classes": {
                "enabled": ["intel-fpga-region", "intel-fpga-regiondevel"],
                "disabled": ["intel-fpga-af"],
            }}),
            true,
        ),
    ] {
        let Some(result) = render(&values) else {
            return;
        };
        match result {
            Ok(()) => assert!(!refused, "{values}"),
            Err(message) => {
                let wanted = "a second time: two pods would get the same device; add ";
                assert!(refused && message.contains(wanted), "{values}: {message}");
            }
        }
    }
}

#[test]
fn the_driver_of_claims_gets_further_arguments_and_a_pod_monitor() {
    let values = json!({
        "dra": {"classes": ["nvidia-gpu"]},
        "monitoring": {"enabled": true, "podMonitor": true, "allowFrom": [{"podSelector": {}}]},
        "extraArgs": {"dra": ["--unhealthy=no-execute"]},
    });
    if let Some(output) = helm(&values).unwrap() {
        let text = String::from_utf8(output.stdout).unwrap();
        let arguments = "- --http=[::]:9911\n            - --unhealthy=no-execute\n";
        assert!(text.contains(arguments), "{text}");
        assert_eq!(text.matches("kind: PodMonitor").count(), 2, "{text}");
        assert_eq!(text.matches("- port: metrics").count(), 2, "{text}");
        assert_eq!(text.matches("kind: NetworkPolicy").count(), 2, "{text}");
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
