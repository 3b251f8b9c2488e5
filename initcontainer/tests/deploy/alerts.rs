//! Tests of the alerts in `deploy/helm/prometheus-rules.yaml`: `promtool test rules` evaluates their
//! expressions on written series, as Prometheus does.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use harness::captured::Captured;
use harness::manifests::{chart, documents, repository};
use serde_json::{Value, json};

use crate::manifest::Objects;

/// The series of one node, and what an alert makes of them.
struct AlertCase {
    alert: &'static str,
    /// The metrics with their labels, and one value for each minute in promtool's notation:
    /// `8x5` is the value 8 at the minutes 0 to 5, and `_` a missing value.
    series: &'static [(&'static str, &'static str)],
    minute: u32,
    /// The labels of the alert beside its name and severity, and its summary. `None` if the alert
    /// must not fire.
    expected: Option<(&'static [(&'static str, &'static str)], &'static str)>,
}

const GPU: &str = "nvidia.com/gpu";

#[rustfmt::skip]
const CASES: &[AlertCase] = &[
    AlertCase {
        alert: "BoathookDevicesUnhealthy",
        series: &[(r#"boathook_devices{resource="nvidia.com/gpu", health="unhealthy", node="a"}"#, "0 1x9")],
        minute: 6,
        expected: Some((
            &[("resource", GPU), ("health", "unhealthy"), ("node", "a")],
            "1 devices of nvidia.com/gpu are unhealthy on a",
        )),
    },
    // A device that recovers within five minutes.
    AlertCase {
        alert: "BoathookDevicesUnhealthy",
        series: &[(r#"boathook_devices{resource="nvidia.com/gpu", health="unhealthy", node="a"}"#, "1x3 0x6")],
        minute: 6,
        expected: None,
    },
    AlertCase {
        alert: "BoathookDevicesGone",
        series: &[
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a", pod="p"}"#, "8x20 7x20"),
            (r#"boathook_devices{resource="nvidia.com/gpu", health="unhealthy", node="a", pod="p"}"#, "0x41"),
        ],
        minute: 30,
        expected: Some((
            &[("resource", GPU), ("node", "a")],
            "a had 8 devices of nvidia.com/gpu within the last hour, and has fewer now",
        )),
    },
    // The last device of a resource: the series ends with it.
    AlertCase {
        alert: "BoathookDevicesGone",
        series: &[(r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a", pod="p"}"#, "1x20 stale _x20")],
        minute: 30,
        expected: Some((
            &[("resource", GPU), ("node", "a")],
            "a had 1 devices of nvidia.com/gpu within the last hour, and has fewer now",
        )),
    },
    // A device that is unhealthy is not gone.
    AlertCase {
        alert: "BoathookDevicesGone",
        series: &[
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a", pod="p"}"#, "8x20 7x20"),
            (r#"boathook_devices{resource="nvidia.com/gpu", health="unhealthy", node="a", pod="p"}"#, "0x20 1x20"),
        ],
        minute: 30,
        expected: None,
    },
    // An update of the plugin: the pods of both versions run for some minutes.
    AlertCase {
        alert: "BoathookDevicesGone",
        series: &[
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a", pod="old"}"#, "8x20 stale _x20"),
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a", pod="new"}"#, "_x15 8x25"),
        ],
        minute: 30,
        expected: None,
    },
    AlertCase {
        alert: "BoathookDevicesGone",
        series: &[(r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a", pod="p"}"#, "8x20 7x100")],
        minute: 90,
        expected: None,
    },
    AlertCase {
        alert: "BoathookNotRegistered",
        series: &[
            (r#"boathook_streams{resource="nvidia.com/gpu", node="a"}"#, "1 0x9"),
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a"}"#, "8x10"),
        ],
        minute: 4,
        expected: Some((
            &[("resource", GPU), ("node", "a")],
            "the kubelet of a does not watch nvidia.com/gpu",
        )),
    },
    AlertCase {
        alert: "BoathookNotRegistered",
        series: &[
            (r#"boathook_streams{resource="nvidia.com/gpu", node="a"}"#, "0x10"),
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a"}"#, "8x10"),
            (r#"boathook_left_to_other_plugin{resource="nvidia.com/gpu", node="a"}"#, "1x10"),
        ],
        minute: 9,
        expected: None,
    },
    // A resource without devices needs no stream.
    AlertCase {
        alert: "BoathookNotRegistered",
        series: &[
            (r#"boathook_streams{resource="nvidia.com/gpu", node="a"}"#, "0x10"),
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a"}"#, "0x10"),
        ],
        minute: 9,
        expected: None,
    },
    AlertCase {
        alert: "BoathookPluginNotRunning",
        series: &[(r#"kube_daemonset_status_number_unavailable{namespace="boathook", daemonset="gpus-boathook"}"#, "2x20")],
        minute: 11,
        expected: Some((
            &[("namespace", "boathook"), ("daemonset", "gpus-boathook")],
            "2 nodes have no ready pod of boathook/gpus-boathook",
        )),
    },
    AlertCase {
        alert: "BoathookPluginNotRunning",
        series: &[(r#"kube_daemonset_status_number_unavailable{namespace="x", daemonset="other"}"#, "2x20")],
        minute: 11,
        expected: None,
    },
    // The plugin is a service of the node, and has ended. Its metrics are not there.
    AlertCase {
        alert: "BoathookNothingAllocatable",
        series: &[
            (r#"kube_node_status_capacity{resource="nvidia_com_gpu", node="a", unit="integer"}"#, "8x10 0x90"),
            (r#"kube_node_status_allocatable{resource="nvidia_com_gpu", node="a", unit="integer"}"#, "8x5 0x95"),
        ],
        minute: 90,
        expected: Some((
            &[("resource", "nvidia_com_gpu"), ("node", "a")],
            "no device of nvidia_com_gpu can be allocated on a, which had 8",
        )),
    },
    // The metrics of a plugin that has ended are there for a day.
    AlertCase {
        alert: "BoathookNothingAllocatable",
        series: &[
            (r#"boathook_devices{resource="nvidia.com/mig-3g.20gb", health="healthy", node="a", pod="p"}"#, "8x5 stale _x95"),
            (r#"kube_node_status_capacity{resource="nvidia_com_mig_3g_20gb", node="a", unit="integer"}"#, "8x10 0x90"),
            (r#"kube_node_status_allocatable{resource="nvidia_com_mig_3g_20gb", node="a", unit="integer"}"#, "8x5 0x95"),
        ],
        minute: 90,
        expected: Some((
            &[("resource", "nvidia_com_mig_3g_20gb"), ("node", "a")],
            "no device of nvidia_com_mig_3g_20gb can be allocated on a, which had 8",
        )),
    },
    // The plugin of another vendor has ended.
    AlertCase {
        alert: "BoathookNothingAllocatable",
        series: &[
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="b", pod="p"}"#, "8x5 stale _x95"),
            (r#"kube_node_status_capacity{resource="other_com_nic", node="a", unit="integer"}"#, "8x10 0x90"),
            (r#"kube_node_status_allocatable{resource="other_com_nic", node="a", unit="integer"}"#, "8x5 0x95"),
        ],
        minute: 90,
        expected: None,
    },
    // All devices are allocated, and a resource of a kind that the node never had.
    AlertCase {
        alert: "BoathookNothingAllocatable",
        series: &[
            (r#"kube_node_status_capacity{resource="nvidia_com_gpu", node="a", unit="integer"}"#, "8x40"),
            (r#"kube_node_status_allocatable{resource="nvidia_com_gpu", node="a", unit="integer"}"#, "8x40"),
            (r#"kube_node_status_capacity{resource="amd_com_gpu", node="a", unit="integer"}"#, "0x40"),
            (r#"kube_node_status_allocatable{resource="amd_com_gpu", node="a", unit="integer"}"#, "0x40"),
        ],
        minute: 20,
        expected: None,
    },
    AlertCase {
        alert: "BoathookAllocatableBelowDevices",
        series: &[
            (r#"boathook_devices{resource="nvidia.com/mig-3g.20gb", health="healthy", node="a", pod="p"}"#, "8x20"),
            (r#"kube_node_status_allocatable{resource="nvidia_com_mig_3g_20gb", node="a", unit="integer"}"#, "7x20"),
        ],
        minute: 12,
        expected: Some((
            &[("resource", "nvidia_com_mig_3g_20gb"), ("node", "a")],
            "a has 8 healthy devices of nvidia_com_mig_3g_20gb, and fewer are allocatable",
        )),
    },
    // Two pods of the plugin list the same devices.
    AlertCase {
        alert: "BoathookAllocatableBelowDevices",
        series: &[
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a", pod="old"}"#, "8x20"),
            (r#"boathook_devices{resource="nvidia.com/gpu", health="healthy", node="a", pod="new"}"#, "8x20"),
            (r#"kube_node_status_allocatable{resource="nvidia_com_gpu", node="a", unit="integer"}"#, "8x20"),
        ],
        minute: 12,
        expected: None,
    },
    AlertCase {
        alert: "BoathookAllocationsRefused",
        series: &[(r#"boathook_allocations_total{resource="nvidia.com/gpu", result="refused", node="a"}"#, "0x5 1x9")],
        minute: 7,
        expected: Some((
            &[("resource", GPU), ("result", "refused"), ("node", "a")],
            "allocations of nvidia.com/gpu are refused on a",
        )),
    },
    AlertCase {
        alert: "BoathookAllocationsRefused",
        series: &[(r#"boathook_allocations_total{resource="nvidia.com/gpu", result="ok", node="a"}"#, "0x5 1x9")],
        minute: 7,
        expected: None,
    },
    AlertCase {
        alert: "BoathookDeviceAllocatedTwice",
        series: &[(r#"boathook_allocation_conflicts_total{resource="nvidia.com/gpu", node="a"}"#, "0x5 1x9")],
        minute: 7,
        expected: Some((
            &[("resource", GPU), ("node", "a")],
            "the kubelet of a gave away devices of nvidia.com/gpu that another pod has",
        )),
    },
    AlertCase {
        alert: "BoathookDeviceAllocatedTwice",
        series: &[(r#"boathook_allocation_conflicts_total{resource="nvidia.com/gpu", node="a"}"#, "1x40")],
        minute: 30,
        expected: None,
    },
    AlertCase {
        alert: "BoathookClassLeftOut",
        series: &[(r#"boathook_class_errors{node="a"}"#, "0 2x9")],
        minute: 7,
        expected: Some((&[("node", "a")], "2 class files on a cannot be used")),
    },
    AlertCase {
        alert: "BoathookClassLeftOut",
        series: &[(r#"boathook_class_errors{node="a"}"#, "2x3 0x9")],
        minute: 7,
        expected: None,
    },
    AlertCase {
        alert: "BoathookScanSlow",
        series: &[
            (r#"boathook_scan_duration_seconds_sum{node="a"}"#, "0+6x40"),
            (r#"boathook_scan_duration_seconds_count{node="a"}"#, "0+4x40"),
        ],
        minute: 35,
        expected: Some((&[("node", "a")], "a device scan on a takes 1.5s")),
    },
    AlertCase {
        alert: "BoathookScanSlow",
        series: &[
            (r#"boathook_scan_duration_seconds_sum{node="a"}"#, "0+2x40"),
            (r#"boathook_scan_duration_seconds_count{node="a"}"#, "0+4x40"),
        ],
        minute: 35,
        expected: None,
    },
    // A plugin that scans seldom: no scan within the period is no slow scan.
    AlertCase {
        alert: "BoathookScanSlow",
        series: &[
            (r#"boathook_scan_duration_seconds_sum{node="a"}"#, "9x40"),
            (r#"boathook_scan_duration_seconds_count{node="a"}"#, "4x40"),
        ],
        minute: 35,
        expected: None,
    },
    AlertCase {
        alert: "BoathookScanHangs",
        series: &[(r#"boathook_scan_running_seconds{instance="10.0.0.1:9090", node="a"}"#, "0 20 80 140")],
        minute: 3,
        expected: Some((
            &[("instance", "10.0.0.1:9090"), ("node", "a")],
            "a device scan on 10.0.0.1:9090 has been running for 2m 20s",
        )),
    },
    AlertCase {
        alert: "BoathookScanHangs",
        series: &[(r#"boathook_scan_running_seconds{instance="10.0.0.1:9090", node="a"}"#, "20x5")],
        minute: 3,
        expected: None,
    },
    AlertCase {
        alert: "BoathookCdiErrors",
        series: &[(r#"boathook_cdi_errors{node="a"}"#, "1x9")],
        minute: 6,
        expected: Some((
            &[("node", "a")],
            "1 CDI specifications on a cannot be written or are left out",
        )),
    },
    AlertCase {
        alert: "BoathookCdiErrors",
        series: &[(r#"boathook_cdi_errors{node="a"}"#, "0x9")],
        minute: 6,
        expected: None,
    },
    AlertCase {
        alert: "BoathookKernelLogUnreadable",
        series: &[(r#"boathook_kernel_log_unreadable{node="a"}"#, "0 1x19")],
        minute: 17,
        expected: Some((
            &[("node", "a")],
            "the plugin on a does not see faults of 1 classes, which are in the kernel's log",
        )),
    },
    // A plugin that has read the log from its second start on.
    AlertCase {
        alert: "BoathookKernelLogUnreadable",
        series: &[(r#"boathook_kernel_log_unreadable{node="a"}"#, "1x9 0x10")],
        minute: 17,
        expected: None,
    },
    AlertCase {
        alert: "BoathookVersionsDiffer",
        series: &[
            (r#"boathook_versions{node="a", place="running", version="0.2.0"}"#, "1x40"),
            (r#"boathook_versions{node="a", place="installed", version="0.1.0"}"#, "1x40"),
            (r#"boathook_versions{node="b", place="running", version="0.2.0"}"#, "1x40"),
            (r#"boathook_versions{node="b", place="installed", version="0.2.0"}"#, "1x40"),
        ],
        minute: 31,
        expected: Some((&[("node", "a")], "a has 2 versions of Boathook")),
    },
    // The pods of an update.
    AlertCase {
        alert: "BoathookVersionsDiffer",
        series: &[
            (r#"boathook_versions{node="a", place="running", version="0.1.0", pod="old"}"#, "1x20 stale _x20"),
            (r#"boathook_versions{node="a", place="running", version="0.2.0", pod="new"}"#, "_x15 1x25"),
        ],
        minute: 40,
        expected: None,
    },
];

#[test]
fn prometheus_evaluates_the_alerts() {
    let rules = read_rules();
    let severities: Vec<(&str, &str)> = rules
        .iter()
        .map(|rule| {
            let severity = rule["labels"]["severity"].as_str().unwrap();
            (rule["alert"].as_str().unwrap(), severity)
        })
        .collect();
    let tests: Vec<Value> = CASES
        .iter()
        .map(|case| {
            let is_case_alert = |(alert, _): &&(&str, &str)| *alert == case.alert;
            to_promtool_test(case, severities.iter().find(is_case_alert).unwrap().1)
        })
        .collect();
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| {
        let path = directory.path().join(name);
        fs::write(&path, value.to_string()).unwrap();
        path
    };
    write(
        "rules.yaml",
        &json!({"groups": [{"name": "boathook", "rules": rules}]}),
    );
    let tests = write(
        "tests.yaml",
        &json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}),
    );
    if Command::new("promtool").arg("--version").output().is_err() {
        skip::report("alerts of Prometheus", "needs promtool");
        return;
    }
    let mut promtool = Command::new("promtool");
    let result = Captured::run(promtool.args(["test", "rules"]).arg(tests)).unwrap();
    result.success().unwrap();
}

#[test]
fn every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let alerts = read_rules()
        .iter()
        .map(|rule| rule["alert"].as_str().unwrap().to_owned())
        .collect::<BTreeSet<_>>();
    for fires in [true, false] {
        let covered: BTreeSet<_> = CASES
            .iter()
            .filter(|case| case.expected.is_some() == fires)
            .map(|case| case.alert.to_owned())
            .collect();
        assert_eq!(alerts, covered, "fires: {fires}");
    }
}

/// An alert leads to the heading of a page of this tree.
#[test]
fn every_alert_has_a_page() {
    for rule in read_all_of_rules() {
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        let page = url.strip_prefix("https://github.com/boathook/boathook/blob/main/");
        let page = page.unwrap();
        let (file, anchor) = page.split_once('#').unwrap_or((page, ""));
        let text = fs::read_to_string(repository(file)).unwrap();
        let mut anchors = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .map(|heading| {
                let heading = heading.trim_matches(['#', ' ']).to_lowercase();
                let kept = |c: &char| c.is_alphanumeric() || [' ', '-'].contains(c);
                heading
                    .chars()
                    .filter(kept)
                    .collect::<String>()
                    .replace(' ', "-")
            });
        assert!(
            anchor.is_empty() || anchors.any(|own| own == anchor),
            "{url}"
        );
    }
}

#[test]
fn the_chart_has_the_alerts() {
    let values = json!({"monitoring": {
        "enabled": true,
        "prometheusRule": true,
        "prometheusRuleLabels": {"release": "prometheus"},
    }});
    let Some(objects) = chart(&values).unwrap().map(Objects::from_documents) else {
        return;
    };
    let rule = objects.only("PrometheusRule");
    let path = repository("deploy/helm/prometheus-rules.yaml");
    let file = documents(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(rule["spec"], file[0]["spec"]);
    assert_eq!(rule["metadata"]["labels"]["release"], "prometheus");
}

fn read_all_of_rules() -> Vec<Value> {
    let path = repository("deploy/helm/prometheus-rules.yaml");
    let mut objects = documents(&fs::read_to_string(path).unwrap()).unwrap();
    let mut rules = objects[0]["spec"]["groups"][0]["rules"].take();
    std::mem::take(rules.as_array_mut().unwrap())
}

/// Returns the alerts without their descriptions, which are sentences of the documentation.
fn read_rules() -> Vec<Value> {
    let mut rules = read_all_of_rules();
    for rule in &mut rules {
        let annotations = rule["annotations"].as_object_mut().unwrap();
        annotations.remove("description");
        annotations.remove("runbook_url");
    }
    rules
}

fn to_promtool_test(case: &AlertCase, severity: &str) -> Value {
    let series: Vec<Value> = case
        .series
        .iter()
        .map(|(series, values)| json!({"series": series, "values": values}))
        .collect();
    let alerts: Vec<Value> = case
        .expected
        .iter()
        .map(|(labels, summary)| {
            let mut labels: serde_json::Map<_, _> = labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            labels.insert("severity".to_owned(), json!(severity));
            json!({"exp_labels": labels, "exp_annotations": {"summary": summary}})
        })
        .collect();
    json!({
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [{
            "eval_time": format!("{}m", case.minute),
            "alertname": case.alert,
            "exp_alerts": alerts,
        }],
    })
}
