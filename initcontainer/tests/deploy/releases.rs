//! Tests of several releases of the chart in one cluster, and of what a release adds to all
//! objects.

use std::collections::BTreeSet;
use std::fs;

use harness::manifests::{chart, chart_as, chart_with_file, helm, repository};
use serde_json::{Value, json};

use crate::manifest::{Objects, name, pod, text, words};
use crate::references;
use crate::rendered::config_maps;

/// Values with which the chart has each of its objects.
fn everything() -> Value {
    json!({
        "follow": {"enabled": true},
        "classes": {"enabled": ["dummy-npu"]}, "dra": {"classes": ["dummy-npu"]},
        "monitoring": {
            "enabled": true, "podMonitor": true,
            "allowFrom": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}],
        },
        "scheduler": {"enabled": true, "allowFrom": ["10.0.0.4/32"]},
        "webhook": {"enabled": true, "allowFrom": ["10.0.0.4/32"], "certManager": true},
    })
}

fn with(mut values: Value, more: &Value) -> Value {
    let map = values.as_object_mut().unwrap();
    map.extend(more.as_object().unwrap().clone());
    values
}

/// Returns kind and name of each object. The vendor's resource definitions are left out: they are
/// the same for all releases.
fn identities(objects: &[Value]) -> BTreeSet<String> {
    let objects = objects.iter();
    let own = objects.filter(|object| object["kind"] != "CustomResourceDefinition");
    own.map(|object| format!("{} {}", text(&object["kind"]), name(object)))
        .collect()
}

/// No object of one release is an object of the other, in a namespace or in the cluster.
#[test]
fn objects_of_two_releases_have_different_names() {
    let render = |release| chart_as(release, &everything()).unwrap();
    let (Some(first), Some(second)) = (render("boathook"), render("pool-b")) else {
        return;
    };
    let (first, second) = (identities(&first), identities(&second));
    assert_eq!(first.len(), second.len());
    let both: Vec<_> = first.intersection(&second).collect();
    assert!(both.is_empty(), "{both:?}");
    assert!(first.contains("DaemonSet boathook-dra"), "{first:?}");
    assert!(
        second.contains("DaemonSet pool-b-boathook-dra"),
        "{second:?}"
    );
}

/// Every name by which an object refers to another one follows the release.
#[test]
fn no_reference_leads_to_another_release() {
    let Some(objects) = chart_as("pool-b", &everything()).unwrap() else {
        return;
    };
    // Labels, the driver's name, and paths and images, which are the same for all releases.
    let same = [
        r#""app.kubernetes.io/name":"boathook"#,
        r#""app.kubernetes.io/part-of":"boathook""#,
        r#""helm.sh/chart":"boathook-"#,
        "boathook-system",
        "boathook.dev",
        "/boathook",
        r#""boathook:"#,
        r#""boathook-cluster:"#,
    ];
    for object in &objects {
        let remove = |text: String, known: &&str| text.replace(*known, "");
        let text = same.iter().fold(object.to_string(), remove);
        let text = text.replace("pool-b-boathook", "");
        for start in ["\"boathook", ":boathook", "/boathook"] {
            assert!(!text.contains(start), "{object}");
        }
    }
}

/// The names of objects, the account and the lock's name with each way to name a release.
#[test]
fn names_can_be_chosen() {
    for (release, values, expected) in [
        ("boathook", json!({}), "boathook"),
        ("boathook-gpus", json!({}), "boathook-gpus"),
        ("gpus", json!({}), "gpus-boathook"),
        ("gpus", json!({"nameOverride": "hook"}), "gpus-hook"),
        ("gpus", json!({"fullnameOverride": "mine"}), "mine"),
    ] {
        let Some(objects) = chart_as(release, &values).unwrap() else {
            return;
        };
        let objects = Objects::from_documents(objects);
        references::check(&objects, &config_maps(&objects));
        let set = objects.only("DaemonSet");
        assert_eq!(name(set), expected);
        assert_eq!(name(objects.only("ServiceAccount")), expected);
        assert_eq!(name(objects.only("PriorityClass")), expected);
        assert_eq!(pod(set)["priorityClassName"], expected);
        let lock = format!("--release=boathook-system/{expected}");
        for container in [objects.init(), objects.plugin()] {
            assert!(words(&container["args"]).contains(&&*lock), "{container}");
        }
    }
}

/// A release that uninstalls must not remove the files of another release from the node.
#[test]
fn a_release_uninstalls_only_its_own_nodes() {
    let Some(objects) = chart_as("pool-b", &json!({"uninstall": true})).unwrap() else {
        return;
    };
    let objects = Objects::from_documents(objects);
    let lock = "--release=boathook-system/pool-b-boathook";
    assert!(words(&objects.init()["args"]).contains(&lock));
}

#[test]
fn affinity_adds_to_the_requirement_of_linux() {
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let pool = json!({"key": "pool", "operator": "Exists"});
    let required =
        json!({"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchExpressions": [pool]}]});
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [pool]}}]);
    let values = json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }}});
    let values = with(everything(), &values);
    let Some(objects) = chart(&values).unwrap() else {
        return;
    };
    let mut count = 0;
    for set in objects
        .iter()
        .filter(|object| object["kind"] == "DaemonSet")
    {
        let node = &pod(set)["affinity"]["nodeAffinity"];
        assert_eq!(
            node["preferredDuringSchedulingIgnoredDuringExecution"],
            preferred
        );
        let terms = &node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        for (term, own) in [(0, &zone), (1, &pool)] {
            let requirements = &terms[term]["matchExpressions"];
            assert_eq!(requirements[0]["key"], "kubernetes.io/os");
            assert_eq!(requirements[1]["key"], "kubernetes.io/arch");
            assert_eq!(requirements[2], *own);
        }
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn every_object_has_the_common_labels_and_annotations() {
    let values = json!({
        "commonLabels": {"team": "accelerators"}, "commonAnnotations": {"owner": "ops"},
        "serviceAccount": {"annotations": {"a": "b"}}, "monitoring": {"enabled": true},
    });
    let Some(objects) = chart(&with(everything(), &values)).unwrap() else {
        return;
    };
    for object in objects {
        // The vendor's resource definitions outlive the release.
        if object["kind"] == "CustomResourceDefinition" {
            continue;
        }
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"]["team"], "accelerators", "{object}");
        assert_eq!(metadata["annotations"]["owner"], "ops", "{object}");
        if object["kind"] == "ServiceAccount" && metadata["name"] == "boathook" {
            assert_eq!(metadata["annotations"]["a"], "b");
        }
        if object["kind"] == "MutatingWebhookConfiguration" {
            let issuer = &metadata["annotations"]["cert-manager.io/inject-ca-from"];
            assert_eq!(issuer, "boathook-system/boathook-webhook");
        }
    }
}

#[test]
fn pods_have_what_the_values_add() {
    let mut values = json!({
        "updateStrategy": {"type": "OnDelete"},
        "podSecurityContext": {"fsGroup": 1},
        "serviceAccount": {"create": false, "name": "existing"},
        "extraArgs": {"install": ["--set-default"], "plugin": ["--rescan=60"]},
        "extraEnv": {"install": [{"name": "A", "value": "1"}], "plugin": [{"name": "B", "value": "2"}]},
    });
    let Some(objects) = chart(&values).unwrap() else {
        return;
    };
    let objects = Objects::from_documents(objects);
    let (set, pod) = (objects.only("DaemonSet"), objects.pod());
    assert_eq!(set["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    assert_eq!(pod["securityContext"], json!({"fsGroup": 1}));
    assert_eq!(pod["serviceAccountName"], "existing");
    assert!(objects.of_kind("ServiceAccount").is_empty());
    let (init, plugin) = (objects.init(), objects.plugin());
    assert_eq!(words(&init["args"]).last(), Some(&"--set-default"));
    assert_eq!(words(&plugin["args"]).last(), Some(&"--rescan=60"));
    assert_eq!(init["env"], json!([{"name": "A", "value": "1"}]));
    assert_eq!(plugin["env"], json!([{"name": "B", "value": "2"}]));

    // The arguments of an installation are no options of `boathook-init uninstall`.
    values["uninstall"] = json!(true);
    let uninstalled = Objects::from_documents(chart(&values).unwrap().unwrap());
    let init = uninstalled.init();
    assert!(!words(&init["args"]).contains(&"--set-default"));
}

/// The API server has one RuntimeClass and one resource definition of a name, and Helm refuses a
/// release that would create those of another one.
#[test]
fn objects_that_a_cluster_has_once_can_be_left_to_one_release() {
    let of_all = |release, more: Value| {
        let values = with(
            everything(),
            &json!({"engine": "containerd", "dra": {"classes": []}}),
        );
        let objects = chart_as(release, &with(values, &more)).unwrap()?;
        let objects = objects.iter();
        Some(
            objects
                .map(|object| format!("{} {}", text(&object["kind"]), name(object)))
                .collect(),
        )
    };
    let webhook = json!({"enabled": true, "allowFrom": ["10.0.0.4/32"], "crds": false});
    let second_with = |class: Value| json!({"webhook": webhook, "runtimeClass": class});
    let Some(first): Option<BTreeSet<String>> = of_all("boathook", json!({})) else {
        return;
    };
    for (class, is_created) in [
        (json!({"name": "boathook-b"}), true),
        (json!({"create": false}), false),
    ] {
        let second: BTreeSet<String> = of_all("pool-b", second_with(class)).unwrap();
        let both: Vec<_> = first.intersection(&second).collect();
        assert!(both.is_empty(), "{both:?}");
        let created = second
            .iter()
            .any(|object| object.starts_with("RuntimeClass "));
        assert_eq!(created, is_created);
    }
    assert!(first.contains("RuntimeClass boathook"), "{first:?}");
}

/// `helm upgrade --reuse-values` replaces the defaults of the chart by those of the earlier chart. The
/// keys that are new since then are missing.
#[test]
fn an_upgrade_that_reuses_the_values_renders_the_same() {
    let mut old_defaults = fs::read_to_string(repository("deploy/helm/values.yaml")).unwrap();
    for key in ["  name: boathook\n", "  crds: true\n", "  follow: []\n"] {
        assert!(old_defaults.contains(key), "{key}");
        old_defaults = old_defaults.replace(key, "");
    }
    let tests = json!({
        "engine": "containerd", "dra": {"classes": []}, "tests": {"resources": {"a.com/b": 1}},
    });
    let values = with(everything(), &tests);
    let removal = with(values.clone(), &json!({"uninstall": true}));
    for values in [values, removal] {
        let Some(objects) = chart_with_file(&values, "values.yaml", &old_defaults).unwrap() else {
            return;
        };
        assert_eq!(objects, chart(&values).unwrap().unwrap());
    }
}

#[test]
fn two_runtime_classes_of_one_name_are_refused() {
    for (class, engine, is_refused) in [
        (
            json!({"name": "nvidia", "as": ["nvidia"]}),
            "containerd",
            true,
        ),
        (json!({"as": ["nvidia", "nvidia"]}), "cdi", true),
        (
            json!({"name": "nvidia", "as": ["amd"]}),
            "containerd",
            false,
        ),
        // The class with the release's name is not created.
        (json!({"name": "nvidia", "as": ["nvidia"]}), "cdi", false),
        (
            json!({"name": "nvidia", "as": ["nvidia"], "create": false}),
            "containerd",
            false,
        ),
    ] {
        let values = json!({"engine": engine, "runtimeClass": class});
        let Some(output) = helm(&values).unwrap() else {
            return;
        };
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(!output.status.success(), is_refused, "{values}: {message}");
        let reason = "two RuntimeClasses would have the name nvidia";
        assert_eq!(message.contains(reason), is_refused, "{message}");
    }
}

/// The follower and the driver of claims have what the values say of the plugin's pods.
#[test]
fn the_other_pods_have_what_the_values_add_too() {
    let values = json!({
        "updateStrategy": {"type": "OnDelete"},
        "podLabels": {"team": "a"}, "podAnnotations": {"owner": "ops"},
        "extraArgs": {"follow": ["--log-level=info"], "dra": ["--rescan=60"]},
        "extraEnv": {
            "follow": [{"name": "A", "value": "1"}], "dra": [{"name": "B", "value": "2"}],
        },
    });
    let Some(objects) = chart(&with(everything(), &values)).unwrap() else {
        return;
    };
    for (set, argument, variable) in [
        (
            "boathook-follow",
            "--log-level=info",
            json!({"name": "A", "value": "1"}),
        ),
        (
            "boathook-dra",
            "--rescan=60",
            json!({"name": "B", "value": "2"}),
        ),
    ] {
        let is_set = |object: &&Value| object["kind"] == "DaemonSet" && name(object) == set;
        let set = objects.iter().find(is_set).unwrap();
        assert_eq!(set["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
        let metadata = &set["spec"]["template"]["metadata"];
        assert_eq!(metadata["labels"]["team"], "a");
        assert_eq!(metadata["annotations"]["owner"], "ops");
        let container = &pod(set)["containers"][0];
        assert_eq!(words(&container["args"]).last(), Some(&argument));
        let variables = container["env"].as_array().unwrap();
        assert_eq!(variables.last(), Some(&variable));
    }
}
