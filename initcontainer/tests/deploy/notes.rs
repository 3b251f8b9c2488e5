//! Tests of what the chart tells after an installation.

use harness::manifests::chart_with_file;
use serde_json::{Value, json};

use crate::manifest::text;

/// Returns the notes. `helm template` does not print them, so a copy of the chart has them in an
/// object.
fn render_notes(values: &Value) -> Option<String> {
    let template = "kind: Notes\ntext: {{ include \"boathook/templates/NOTES.txt\" . | toJson }}\n";
    let objects = chart_with_file(values, "templates/notes.yaml", template).unwrap()?;
    let notes = objects.iter().find(|object| object["kind"] == "Notes");
    Some(text(&notes.unwrap()["text"]).to_owned())
}

/// Each row has values, and a text that the notes have or have not.
#[test]
fn the_notes_name_what_is_left_to_do() {
    let registry = json!({"repository": "registry.example/boathook"});
    let imported = json!({"pullPolicy": "Never"});
    let claims =
        json!({"classes": {"disabled": ["amd-gpu"]}, "dra": {"classes": ["nvidia-gpu", "hailo"]}});
    let device_class = "exec daemonset/boathook-dra -c dra -- \\\n      /boathook-dra device-class nvidia-gpu hailo \
                        --config /config/config.toml --host-root /host | kubectl apply -f -";
    let no_registry = "The image boathook:";
    let no_cluster_registry = "The image boathook-cluster:";
    let moved = "set uninstall: true with\nthe present values";
    let var_lib = "can write to all of the nodes' /var/lib";
    let xid = "a GPU with a fatal Xid error stays healthy";
    for (values, has, part) in [
        (json!({}), false, "device-class"),
        (claims.clone(), true, device_class),
        (
            claims.clone(),
            true,
            "by a limit, and for those of nvidia-gpu, hailo by a claim.",
        ),
        (json!({}), true, no_registry),
        (json!({"image": registry}), false, no_registry),
        (json!({"image": imported}), false, no_registry),
        (json!({}), false, no_cluster_registry),
        (claims.clone(), true, no_cluster_registry),
        (
            json!({"clusterImage": registry, "dra": {"classes": ["hailo"]}}),
            false,
            no_cluster_registry,
        ),
        (json!({}), true, xid),
        (json!({"hostPrograms": true}), false, xid),
        (json!({"plugin": {"hostService": true}}), false, xid),
        (json!({"classes": {"disabled": ["nvidia-gpu"]}}), false, xid),
        (
            json!({"config": "[class.nvidia-gpu]\nenabled = false"}),
            false,
            xid,
        ),
        (
            json!({"classes": {"disabled": ["nvidia-gpu"], "enabled": ["gpu-share"]}}),
            true,
            xid,
        ),
        (json!({"uninstall": true}), false, xid),
        (json!({}), false, moved),
        (json!({}), false, var_lib),
        (json!({"installDir": "/data/boathook"}), true, var_lib),
        (json!({"configDir": "/data/boathook"}), true, var_lib),
        (json!({"installDir": "/var/lib/boathook"}), true, moved),
        (json!({"configDir": "/var/lib/c/boathook"}), true, moved),
    ] {
        let Some(notes) = render_notes(&values) else {
            return;
        };
        assert_eq!(notes.contains(part), has, "{values}: {part}: {notes}");
    }
}
