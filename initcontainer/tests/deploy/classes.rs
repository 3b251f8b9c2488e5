//! Tests of the names of classes in the chart's values.

use std::fs;
use std::path::Path;
use std::process::Output;

use harness::manifests::{chart, helm, helm_with_file, repository};
use serde_json::{Value, json};

use crate::manifest::{Objects, name, named, pod};
use crate::references;
use crate::rendered::{config_maps, render_documents};

/// The chart cannot read the image, so it has a list of the image's classes, with `off` behind those
/// that are offered only if they are enabled. `UPDATE_FIXTURES=1` writes the list.
#[test]
fn the_chart_lists_the_classes_of_the_image() {
    let entries = fs::read_dir(repository("device-class/classes")).unwrap();
    let files = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = files.filter_map(|file| Some(file.strip_suffix(".toml")?.to_owned()));
    let is_on = |name: &String| is_enabled(&repository("device-class/classes"), name);
    let line = |name: String| {
        if is_on(&name) {
            name + "\n"
        } else {
            name + " off\n"
        }
    };
    let mut lines: Vec<String> = names.map(line).collect();
    lines.sort();
    let text = lines.concat();
    let list = repository("deploy/helm/classes.txt");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(&list, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(list).unwrap(), text);
}

/// Returns whether a class is offered without a configuration. A class has the key of the one that it
/// extends if it has none.
fn is_enabled(directory: &Path, name: &str) -> bool {
    let text = fs::read_to_string(directory.join(format!("{name}.toml"))).unwrap();
    let class: ::toml::Table = text.parse().unwrap();
    match (class.get("enabled"), class.get("extends")) {
        (Some(enabled), _) => enabled.as_bool().unwrap(),
        (None, Some(base)) => is_enabled(directory, base.as_str().unwrap()),
        (None, None) => true,
    }
}

/// Renders the chart, and returns the message if the chart refuses the values. Returns `None`
/// without Helm.
fn render(values: &Value) -> Option<Result<(), String>> {
    Some(judge(&helm(values).unwrap()?))
}

/// Renders the chart as a Helm does that cannot read TOML, such as Helm 3.19.
fn render_without_toml(values: &Value) -> Option<Result<(), String>> {
    let checks = checks_without_toml();
    Some(judge(&helm_with_file(values, CHECKS, &checks).unwrap()?))
}

/// The file of the chart in which it reads TOML.
pub(crate) const CHECKS: &str = "templates/_checks.tpl";

/// Returns the text of the file [`CHECKS`] with which no Helm is new enough to read TOML.
pub(crate) fn checks_without_toml() -> String {
    let checks = fs::read_to_string(repository("deploy/helm").join(CHECKS)).unwrap();
    let versions = "\">=3.20.0-0 <4.0.0-0 || >=4.1.0-0\"";
    assert!(checks.contains(versions));
    checks.replace(versions, "\">=99.0.0\"")
}

fn judge(output: &Output) -> Result<(), String> {
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(message)
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
        (
            "config",
            json!({"config": "class.gpu-shared.enabled = true"}),
        ),
    ] {
        for result in [render(&values), render_without_toml(&values)] {
            let Some(result) = result else {
                return;
            };
            let refused = result.unwrap_err();
            let wanted =
                format!("{place} names the class gpu-shared, which the image does not have");
            assert!(refused.contains(&wanted), "{refused}");
        }
    }
}

/// Values with these classes enabled and served by claims.
fn claims(classes: &[&str]) -> Value {
    json!({"classes": {"enabled": classes}, "dra": {"classes": classes}})
}

/// The plugin leaves a class of dra.classes to the driver, which needs CDI and offers only what is
/// enabled: the pods would run, and nobody would offer the devices.
#[test]
fn claims_that_nobody_would_serve_are_refused() {
    let own =
        |text: &str| json!({"classes": {"own": {"mychip": text}}, "dra": {"classes": ["mychip"]}});
    let with = |values: &Value, key: &str, value: Value| {
        let mut values = values.clone();
        values[key] = value;
        values
    };
    let npus = claims(&["dummy-npu"]);
    let gpus = json!({"dra": {"classes": ["nvidia-gpu"]}});
    let disabled = "is in dra.classes and disabled: nobody would offer its devices";
    let off = "dra.classes names the class dummy-npu, which is offered only if it is enabled: add it to classes.enabled";
    let own_off = "dra.classes names the class mychip, which is offered only if it is enabled";
    let in_config = |text: &str| with(&gpus, "config", json!(text));
    for (values, refused) in [
        (npus.clone(), None),
        (gpus.clone(), None),
        (
            with(&npus, "engine", json!("containerd")),
            Some("dra.classes needs the engine cdi, and engine is containerd"),
        ),
        (
            with(&gpus, "classes", json!({"disabled": ["nvidia-gpu"]})),
            Some(disabled),
        ),
        (json!({"dra": {"classes": ["dummy-npu"]}}), Some(off)),
        (own("version = 1"), None),
        (own("version = 1\nenabled = false"), Some(own_off)),
        (own("version = 1\nextends = 'dummy-npu'"), Some(own_off)),
        (
            own("version = 1\nextends = 'dummy-npu'\nenabled = true"),
            None,
        ),
        (own("version = 1\nextends = 'nvidia-gpu'"), None),
        (
            in_config("[class.nvidia-gpu]\nserve = 'dra'\nexcept = ['0']"),
            None,
        ),
        (
            in_config("[class.nvidia-gpu]\nserve = 'dra'\nenabled = false"),
            Some(disabled),
        ),
        (in_config("class . 'nvidia-gpu'.serve = \"dra\""), None),
        (
            in_config("# serve = 'dra'\n[class.nvidia-gpu] # claims\nserve = 'dra' # all"),
            None,
        ),
        (
            own("version = 1\ndescription = \"\"\"\nenabled = false\n\"\"\""),
            None,
        ),
        (own("version = 1\n[edits.env]\nenabled = 'false'"), None),
        (
            own("# '''\nenabled=false\n# '''\nversion = 1"),
            Some(own_off),
        ),
        (
            in_config("[class.nvidia-gpu]\nexcept = ['0']"),
            Some("set all of this class in config, with serve = \"dra\""),
        ),
        (
            json!({"config": "[class.nvidia-gpu]\nserve = 'dra'"}),
            Some(
                "config leaves the class nvidia-gpu to the driver of claims, which runs only with dra.classes",
            ),
        ),
    ] {
        for result in [render(&values), render_without_toml(&values)] {
            let Some(result) = result else {
                return;
            };
            match (result, refused) {
                (Ok(()), None) => {}
                (Err(message), Some(wanted)) if message.contains(wanted) => {}
                (result, wanted) => panic!("{values}: {result:?}, and not {wanted:?}"),
            }
        }
        let removal = render(&with(&values, "uninstall", json!(true))).unwrap();
        let is_removed = refused.is_none_or(|reason| !reason.contains("set all"));
        assert_eq!(removal.is_ok(), is_removed, "{values}: {removal:?}");
    }
}

/// A node whose engine ignores CDI would start pods with a claim without their devices.
#[test]
fn the_driver_of_claims_asks_the_engine_first() {
    let more = "components: [DEPLOY/components/dra]\n";
    let overlay = render_documents("cdi", more);
    for objects in [chart(&claims(&["dummy-npu"])).unwrap(), overlay] {
        let Some(objects) = objects else {
            continue;
        };
        let objects = Objects::from_documents(objects);
        let sets = objects.of_kind("DaemonSet");
        let is_driver = |set: &&&Value| name(set) == "boathook-dra";
        let driver = pod(sets.iter().find(is_driver).unwrap());
        let check = |pod: &Value| named(&pod["initContainers"], "check-engine").cloned();
        assert_eq!(check(driver), check(objects.pod()));
        assert!(check(driver).is_some());
        references::check_volumes(driver, &config_maps(&objects));
    }
}

/// A node without the file would start no pod that mounts it.
#[test]
fn the_groups_of_the_nodes_are_read_if_a_class_names_one() {
    let own = |text: &str| json!({"classes": {"own": {"mychip": text}}});
    for (mut values, is_read) in [
        (json!({}), false),
        (json!({"hostGroups": true}), true),
        (json!({"hostGroups": true, "hostPrograms": true}), false),
        (
            json!({"config": "[class.serial-port]\nnode_group = 'dialout'"}),
            true,
        ),
        (
            json!({"config": "[class.serial-port]\nnode_group = 'dialout'", "hostGroups": false}),
            false,
        ),
        (
            json!({"config": "[class.serial-port] # node_group = 'dialout'"}),
            false,
        ),
        (
            own("device = { nodes = [{ path = '/dev/a', group = 'a' }] }"),
            true,
        ),
        (own("# group = 'a'\n[device]"), false),
        // Devices on one board.
        (own("[device]\ngroup = \"{serial}\""), false),
        (
            own("[device]\ngroup = '{serial}'\nnodes = [{ path = '/dev/a', group = \"a\" }]"),
            true,
        ),
    ] {
        values["dra"] = json!({"classes": ["nvidia-gpu"]});
        let Some(objects) = chart(&values).unwrap() else {
            return;
        };
        let objects = Objects::from_documents(objects);
        for set in objects.of_kind("DaemonSet") {
            references::check_groups(pod(set), is_read);
        }
    }
}

#[test]
fn a_resource_in_place_of_a_class_is_refused() {
    let resource = "nvidia.com/gpu";
    for (place, values) in [
        (
            "classes.enabled",
            json!({"classes": {"enabled": [resource]}}),
        ),
        (
            "classes.disabled",
            json!({"classes": {"disabled": [resource]}}),
        ),
        ("replicas", json!({"replicas": {resource: 4}})),
        ("dra.classes", json!({"dra": {"classes": [resource]}})),
        (
            "config",
            json!({"config": "[class.\"nvidia.com/gpu\"]\nreplicas = 4"}),
        ),
    ] {
        let Some(result) = render(&values) else {
            return;
        };
        let refused = result.unwrap_err();
        let wanted = format!(
            "{place} has {resource}, which is a resource: name its class, such as nvidia-gpu"
        );
        assert!(refused.contains(&wanted), "{refused}");
    }
}

/// Two classes that offer the same hardware would give one device to two pods.
#[test]
fn a_second_class_for_the_same_devices_is_refused() {
    for (values, refused) in [
        (json!({"classes": {"enabled": ["gpu-share"]}}), true),
        (claims(&["aws-neuroncore"]), true),
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
        (claims(&["amd-gpu-parts"]), true),
        (claims(&["sriov-vfio-parts"]), true),
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
        json!({"config": "[class]\nhailo = {\n  map.pci.a = 'b',\n}"}),
    ] {
        let results = [render(&values), render_without_toml(&values)];
        for result in results.into_iter().flatten() {
            result.unwrap();
        }
    }
}
