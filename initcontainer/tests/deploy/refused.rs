//! Values that an API server, a kubelet or a program would refuse after the chart is installed: the chart
//! refuses them before. Beside them are those that look alike and work.

use harness::manifests::{accepted, chart, chart_as, validate};
use serde_json::{Value, json};

use crate::manifest::{Objects, list};

/// Fails if the chart accepts one of these.
fn assert_refused(values: &[Value]) {
    assert_eq!(accepted(values).unwrap(), None);
}

/// Fails if the chart refuses one of these, or if a version of Kubernetes refuses its objects.
fn assert_accepted(values: &[Value]) {
    let mut objects = Vec::new();
    for values in values {
        let Some(rendered) = chart(values).unwrap() else {
            return;
        };
        objects.extend(rendered);
    }
    if let Some(result) = validate(&objects, "1.30").unwrap() {
        assert_eq!(result, Ok(()));
    }
}

#[test]
fn images_have_no_scheme_and_their_tag_and_digest_apart() {
    let of = |repository: &str| json!({"image": {"repository": repository}});
    assert_refused(&[
        of("https://ghcr.io/x/boathook"),
        of("ghcr.io/X/boathook"),
        of("ghcr.io/x/boathook:0.1.0"),
        of("[fd00::1]:5000"),
        of(&format!("ghcr.io/x/boathook@sha256:{}", "a".repeat(64))),
        json!({"image": {"tag": "a tag"}}),
        json!({"image": {"pullSecrets": ["A_secret"]}}),
        json!({"clusterImage": {"repository": "https://ghcr.io/x/cluster"}}),
    ]);
    assert_accepted(&[
        of("registry.example:5000/a/boot-hook/boathook"),
        of("[fd00::1]:5000/boathook"),
        json!({"image": {"tag": "0.1.0-rc.1_2", "pullSecrets": ["a.secret"]}}),
    ]);
}

#[test]
fn labels_and_annotations_are_those_of_kubernetes() {
    assert_refused(&[
        json!({"nodeSelector": {"a b": "c"}}),
        json!({"nodeSelector": {"pool": "two words"}}),
        json!({"runtimeClass": {"nodeSelector": {"pool": "a/b"}}}),
        json!({"podLabels": {"team": "a".repeat(64)}}),
        json!({"commonLabels": {"-team": "a"}}),
        json!({"podAnnotations": {"a/b/c": "d"}}),
        // It starts the pods again when the configuration has changed.
        json!({"podAnnotations": {"checksum/config": "a"}}),
        json!({"serviceAccount": {"annotations": {"a b": "c"}}}),
        json!({"monitoring": {"enabled": true, "podMonitor": true, "podMonitorLabels": {"a": 1}}}),
    ]);
    assert_accepted(&[json!({
        "nodeSelector": {"node-role.kubernetes.io/gpu": "", "pool": "a_b.c"},
        "podAnnotations": {"example.com/text": "any text, {json: true}"},
    })]);
}

/// A label of an object's own comes before the one of all objects.
#[test]
fn a_label_is_written_once() {
    let values = json!({
        "commonLabels": {"team": "all", "stage": "1"}, "podLabels": {"team": "pods"},
        "monitoring": {"enabled": true, "podMonitor": true, "podMonitorLabels": {"team": "monitor"}},
    });
    let Some(objects) = chart(&values).unwrap().map(Objects::from_documents) else {
        return;
    };
    let template = &objects.only("DaemonSet")["spec"]["template"];
    for (labels, team) in [
        (&template["metadata"]["labels"], "pods"),
        (&objects.only("DaemonSet")["metadata"]["labels"], "all"),
        (&objects.only("PodMonitor")["metadata"]["labels"], "monitor"),
    ] {
        assert_eq!(labels["team"], team);
        assert_eq!(labels["stage"], "1");
    }
}

/// `null` is how Helm's users take a default away.
#[test]
fn lists_that_are_taken_away_are_empty() {
    let values = json!({
        "tolerations": null, "extraTolerations": null, "affinity": null, "nodeSelector": null,
        "config": null,
    });
    assert_accepted(std::slice::from_ref(&values));
    if let Some(objects) = chart(&values).unwrap().map(Objects::from_documents) {
        assert_eq!(list(&objects.pod()["tolerations"]).count(), 0);
    }
}

#[test]
fn tolerations_and_affinity_are_those_of_kubernetes() {
    let toleration = |toleration: Value| json!({"extraTolerations": [toleration]});
    assert_refused(&[
        json!({"tolerations": ["nvidia.com/gpu"]}),
        toleration(json!({"key": "a", "operator": "exists"})),
        toleration(json!({"key": "a", "operator": "Exists", "value": "b"})),
        toleration(json!({"key": "a", "value": true})),
        toleration(json!({"key": "a", "effect": "noSchedule"})),
        toleration(json!({"operator": "Equal", "value": "a"})),
        json!({"affinity": {"nodeAffinity": {"required": []}}}),
    ]);
    assert_accepted(&[
        json!({"tolerations": [{"operator": "Exists"}]}),
        toleration(json!({"key": "dedicated", "value": "gpu", "effect": "NoSchedule"})),
        toleration(
            json!({"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}),
        ),
    ]);
}

#[test]
fn an_update_has_either_more_pods_or_fewer() {
    let update =
        |rolling_update: Value| json!({"updateStrategy": {"rollingUpdate": rolling_update}});
    let surge = json!({"maxSurge": 1, "maxUnavailable": 0});
    let mut by_watcher = update(surge.clone());
    by_watcher["register"] = json!("watcher");
    assert_refused(&[
        // Without it maxUnavailable is 1.
        update(json!({"maxSurge": 1})),
        update(json!({"maxSurge": "10%", "maxUnavailable": 1})),
        update(json!({"maxSurge": 0, "maxUnavailable": "0%"})),
        update(json!({"maxUnavailable": "one"})),
        by_watcher,
    ]);
    assert_accepted(&[
        update(surge),
        update(json!({"maxSurge": "25%", "maxUnavailable": "0%"})),
        update(json!({"maxUnavailable": "25%"})),
        update(json!({})),
        json!({"updateStrategy": {"type": "OnDelete"}}),
    ]);
}

#[test]
fn what_a_container_gets_is_what_it_can_have() {
    let plugin = |resources: Value| json!({"resources": {"plugin": resources}});
    let variables = |variables: Value| json!({"extraEnv": {"plugin": variables}});
    let claims = json!({"classes": {"enabled": ["dummy-npu"]}, "dra": {"classes": ["dummy-npu"]}});
    let mut own_variable = claims.clone();
    own_variable["extraEnv"] = json!({"dra": [{"name": "NODE_NAME", "value": "a"}]});
    assert_refused(&[
        plugin(json!({"limit": {"memory": "1Gi"}})),
        plugin(json!({"limits": {"memory": "64MB"}})),
        plugin(json!({"limits": {"memory": "."}})),
        plugin(json!({"limits": {"cpu": "-1"}})),
        variables(json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])),
        variables(json!([{"name": "A B", "value": "1"}])),
        variables(
            json!([{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]),
        ),
        own_variable,
        // The containers are root, and the kubelet would not start them.
        json!({"podSecurityContext": {"runAsNonRoot": true}}),
        json!({"podSecurityContext": {"runAsUser": "0"}}),
        json!({"podSecurityContext": {"hostNetwork": true}}),
        json!({"seLinuxType": {"plugin": "a b"}}),
        json!({"priorityClassName": "A_class"}),
        json!({"serviceAccount": {"create": false}}),
        json!({"replicas": {"nvidia-gpu": 65536}}),
    ]);
    assert_accepted(&[
        plugin(json!({"limits": {"memory": "64Mi", "cpu": 0.5}, "requests": {"cpu": "100m"}})),
        plugin(json!({"limits": {"memory": "+1Gi", "cpu": ".5"}})),
        variables(json!([{"name": "A", "value": "1"}, {"name": "b.c-d", "value": ""}])),
        json!({"serviceAccount": {"create": false, "name": "other"}}),
        claims,
    ]);
}

/// A program wants each option once. Which the chart sets, depends on the values.
#[test]
fn options_that_a_container_has_are_not_given_again() {
    let claims = json!({"classes": {"enabled": ["dummy-npu"]}, "dra": {"classes": ["dummy-npu"]}});
    let moved = json!({"installDir": "/data/boathook"});
    let by_names = json!({"engine": "containerd", "runtimeClass": {"as": ["nvidia"]}});
    for (container, arguments, values) in [
        (
            "plugin",
            json!(["--log-level=debug"]),
            json!({"logLevel": "warn"}),
        ),
        (
            "plugin",
            json!(["--rescan=60", "--http", "[::]:9912"]),
            json!({"monitoring": {"enabled": true}}),
        ),
        (
            "plugin",
            json!(["--delivery=cdi"]),
            json!({"engine": "crio"}),
        ),
        ("plugin", json!(["--hook=/x"]), moved.clone()),
        ("install", json!(["--as=nvidia"]), by_names),
        ("install", json!(["--config-dir=/x/boathook"]), moved),
        ("dra", json!(["--cdi=/x"]), json!({"cdiDir": "/var/cdi"})),
    ] {
        let mut usual = json!({"extraArgs": {}});
        if container == "dra" {
            usual
                .as_object_mut()
                .unwrap()
                .extend(claims.as_object().unwrap().clone());
        } else if container == "install" {
            usual["engine"] = json!("containerd");
        }
        usual["extraArgs"][container] = arguments;
        let mut again = usual.clone();
        again
            .as_object_mut()
            .unwrap()
            .extend(values.as_object().unwrap().clone());
        assert_refused(&[again]);
        // Elsewhere it is an option as others. These directories the pod would not have.
        if !usual["extraArgs"].to_string().contains("--config-dir") {
            assert_accepted(&[usual]);
        }
    }
    assert_refused(&[
        json!({"extraArgs": {"plugin": ["--probes=[::]:1"]}}),
        json!({"extraArgs": {"install": ["--config=/x"]}}),
        json!({"extraArgs": {"install": ["--prefix", "/x/boathook"]}}),
    ]);
}

#[test]
fn directories_and_networks_are_usable() {
    let scheduler = |key: &str, value: Value| {
        let mut scheduler = json!({"enabled": true, "allowFrom": ["10.0.0.4/32"]});
        scheduler[key] = value;
        json!({"scheduler": scheduler})
    };
    assert_refused(&[
        json!({"kubeletDir": "/var/lib/kubelet/"}),
        json!({"kubeletDir": "/var/../kubelet"}),
        json!({"kubeletDir": format!("/{}", "a".repeat(41))}),
        json!({"nodeLabels": true, "nodeLabelsDir": "/a: b"}),
        json!({"cdiDir": "/dev"}),
        json!({"cdiDir": "/etc/boathook/cdi"}),
        json!({"cdiDir": "/var/lib/kubelet/device-plugins"}),
        json!({"monitoring": {"enabled": true, "allowFrom": [{"cidr": "10.0.0.0/8"}]}}),
        json!({"monitoring": {"enabled": true, "allowFrom": [{}]}}),
        json!({"runtimeClass": {"as": ["nvidia"], "handler": "a handler"}}),
        scheduler("allowFrom", json!(["10.0.0.4"])),
        scheduler("allowFrom", json!(["10.0.0.0/33"])),
        scheduler("allowFrom", json!(["256.0.0.4/32"])),
        scheduler("allowFrom", json!(["10.0.0.999/32"])),
        scheduler("nodeSelector", json!({"pool": 1})),
        scheduler("tolerations", json!(["control-plane"])),
        json!({"webhook": {"allowFrom": ["10.300.0.4/32"]}}),
        json!({"webhook": {"nodeSelector": {"a b": "c"}}}),
        scheduler("clusterIP", json!("scheduler")),
    ]);
    assert_accepted(&[
        json!({"kubeletDir": "/var/snap/microk8s/common/var/lib/kubelet"}),
        json!({"cdiDir": "/etc/cdi"}),
        scheduler("allowFrom", json!(["10.0.0.0/8", "fd00::/64", "::1/128"])),
        scheduler("allowFrom", json!(["255.249.199.99/32", "0.0.0.0/0"])),
        scheduler("clusterIP", json!("fd00::10")),
    ]);
}

/// A Service has stricter rules for its name than a release.
#[test]
fn names_of_releases_are_those_that_a_service_can_have() {
    let values = json!({"scheduler": {"enabled": true, "allowFrom": ["10.0.0.4/32"]}});
    for (release, is_accepted) in [("a.b", false), ("9a", false), ("a9", true)] {
        let rendered = chart_as(release, &values);
        assert_eq!(rendered.is_ok(), is_accepted, "{release}");
        assert!(chart_as(release, &json!({})).is_ok(), "{release}");
    }
}
