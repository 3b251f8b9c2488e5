//! Tests of the RuntimeClasses of the chart while nodes change from a handler to CDI.

use harness::manifests::{chart, helm, helm_with_file};
use serde_json::json;

use crate::manifest::{Objects, mount_at, name, text};

/// Returns the names and handlers of the RuntimeClasses.
fn handlers(objects: &Objects) -> Vec<(&str, &str)> {
    let classes = objects.of_kind("RuntimeClass").into_iter();
    classes
        .map(|class| (name(class), text(&class["handler"])))
        .collect()
}

/// The values of docs/administration.md. Pods that were started with the handler need the class,
/// and Helm deletes what a release has no more.
#[test]
fn pods_of_a_handler_keep_their_class_with_cdi() {
    let kept = json!({"as": ["boathook"], "handler": "boathook"});
    for (values, wanted) in [
        (
            json!({"engine": "containerd"}),
            vec![("boathook", "boathook")],
        ),
        (json!({"engine": "cdi"}), vec![]),
        (
            json!({"engine": "cdi", "runtimeClass": kept}),
            vec![("boathook", "boathook")],
        ),
        (
            json!({"engine": "cdi", "uninstall": true, "runtimeClass": kept}),
            vec![("boathook", "boathook")],
        ),
        (
            json!({"engine": "containerd", "uninstall": true, "runtimeClass": kept}),
            vec![("boathook", "boathook")],
        ),
    ] {
        let Some(objects) = chart(&values).unwrap() else {
            return;
        };
        let objects = Objects::from_documents(objects);
        assert_eq!(handlers(&objects), wanted, "{values}");
    }
}

/// The handler is removed from the engine's configuration, which a release for CDI does not mount.
#[test]
fn the_handler_is_removed_by_an_uninstallation_with_its_engine() {
    for (engine, directory) in [
        ("containerd", "/host/etc/containerd"),
        ("crio", "/host/etc/crio"),
        ("k3s", "/host/var/lib/rancher/k3s/agent/etc/containerd"),
        ("rke2", "/host/var/lib/rancher/rke2/agent/etc/containerd"),
    ] {
        let values = json!({
            "engine": engine, "uninstall": true,
            "runtimeClass": {"as": ["boathook"], "handler": "boathook"},
        });
        let Some(objects) = chart(&values).unwrap() else {
            return;
        };
        let objects = Objects::from_documents(objects);
        for path in [directory, "/host/var/run/cdi"] {
            let mount = mount_at(objects.init(), path).unwrap();
            assert_ne!(mount["readOnly"], true, "{engine}: {path}");
        }
    }
}

/// Two objects would have one name.
#[test]
fn a_handler_has_no_second_class_of_its_name() {
    let values = json!({
        "engine": "containerd", "runtimeClass": {"as": ["boathook"], "handler": "boathook"},
    });
    let Some(output) = helm(&values).unwrap() else {
        return;
    };
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(message.contains("have the name boathook"), "{message}");
}

/// The API server changes no handler. `present` is the class of the cluster: an empty table without
/// a cluster, or if there is none.
#[test]
fn a_class_whose_handler_would_change_is_refused() {
    for (present, handler, is_refused) in [
        (json!({}), "runc", false),
        (json!({"handler": "nvidia"}), "nvidia", false),
        (json!({"handler": "nvidia"}), "runc", true),
        (json!({"handler": "runc"}), "nvidia", true),
    ] {
        let template = format!(
            "{{{{ include \"boathook.checkHandler\" \
             (dict \"name\" \"nvidia\" \"handler\" \"{handler}\" \"class\" (fromJson {})) }}}}\n",
            json!(present.to_string())
        );
        let output = helm_with_file(&json!({}), "templates/check.yaml", &template);
        let Some(output) = output.unwrap() else {
            return;
        };
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !is_refused, "{message}");
        let wanted = "delete it first with kubectl delete runtimeclass nvidia";
        assert_eq!(message.contains(wanted), is_refused, "{message}");
    }
}

/// Without a cluster no class differs. So the check is replaced by one that always fails, and says
/// what it was called with.
#[test]
fn every_class_is_compared_with_that_of_the_cluster() {
    let checks = include_str!("../../../deploy/helm/templates/_checks.tpl");
    let start = "{{- define \"boathook.checkHandler\" -}}\n";
    let failing = format!("{start}{{{{- fail (printf \"%s by %s\" .name .handler) }}}}\n");
    assert!(checks.contains(start));
    let checks = checks.replace(start, &failing);
    for (values, wanted) in [
        (json!({"engine": "containerd"}), "boathook by boathook"),
        (
            json!({"engine": "cdi", "runtimeClass": {"as": ["nvidia"]}}),
            "nvidia by runc",
        ),
        (
            json!({"engine": "crio", "runtimeClass": {"as": ["nvidia"], "create": false}}),
            "nvidia by nvidia",
        ),
    ] {
        let output = helm_with_file(&values, "templates/_checks.tpl", &checks);
        let Some(output) = output.unwrap() else {
            return;
        };
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(wanted), "{message}");
    }
}
