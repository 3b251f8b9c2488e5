//! Tests of what OpenShift allows the pods of the chart.

use std::collections::BTreeSet;

use harness::manifests::chart;
use serde_json::{Value, json};

use crate::manifest::{Objects, list, pod, text, words};
use crate::references::containers;

/// The constraints allow exactly what the pods of these values have: OpenShift refuses a pod that
/// has more, and a pod should not be able to have more.
#[test]
fn the_constraints_allow_what_the_pods_have() {
    for values in [
        json!({}),
        json!({"engine": "containerd", "restartEngine": true}),
        json!({"follow": {"enabled": true}}),
        json!({"hostPrograms": true, "classes": {"enabled": ["dummy-npu"]}, "dra": {"classes": ["dummy-npu"]}}),
        json!({"uninstall": true}),
        json!({"plugin": {"hostService": true}}),
        json!({"plugin": {"hostService": true}, "monitoring": {"enabled": true}}),
    ] {
        let mut with = values.clone();
        with["openshift"] = json!({"enabled": true});
        let Some(objects) = chart(&with).unwrap() else {
            return;
        };
        let objects = Objects::from_documents(objects);
        let allowed = objects.only("SecurityContextConstraints");
        let mut capabilities = BTreeSet::new();
        let (mut privileged, mut escalation, mut host_pid, mut host_network) =
            (false, false, false, false);
        let mut volumes = BTreeSet::new();
        let mut users = BTreeSet::new();
        for set in objects.of_kind("DaemonSet") {
            let pod = pod(set);
            host_pid |= pod["hostPID"] == true;
            host_network |= pod["hostNetwork"] == true;
            users.insert(format!(
                "system:serviceaccount:boathook-system:{}",
                text(&pod["serviceAccountName"])
            ));
            for volume in list(&pod["volumes"]) {
                let kinds = volume.as_object().unwrap().keys();
                volumes.extend(kinds.filter(|key| *key != "name").cloned());
            }
            for container in containers(pod) {
                let context = &container["securityContext"];
                privileged |= context["privileged"] == true;
                // Without the key a process may gain privileges.
                escalation |= context["allowPrivilegeEscalation"] != false;
                let added = words(&context["capabilities"]["add"]).into_iter();
                capabilities.extend(added.map(str::to_owned));
                assert_eq!(context["readOnlyRootFilesystem"], true);
            }
        }
        // Kubernetes mounts the token of an account as a projected volume.
        volumes.insert("projected".to_owned());
        let set = |value: &Value| -> BTreeSet<String> {
            words(value).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(
            set(&allowed["allowedCapabilities"]),
            with_installer(capabilities),
            "{values}"
        );
        assert_eq!(
            set(&allowed["volumes"]),
            volumes_of_all(volumes),
            "{values}"
        );
        assert_eq!(set(&allowed["users"]), users, "{values}");
        for (key, has) in [
            ("allowPrivilegedContainer", privileged),
            ("allowPrivilegeEscalation", escalation),
            ("allowHostPID", host_pid),
            ("allowHostNetwork", host_network),
            ("allowHostPorts", host_network),
        ] {
            assert_eq!(allowed[key], has, "{key} of {values}");
        }
    }
}

/// The init container has these three in every form of the chart.
fn with_installer(mut capabilities: BTreeSet<String>) -> BTreeSet<String> {
    capabilities.extend(["CHOWN", "DAC_OVERRIDE", "FOWNER"].map(str::to_owned));
    capabilities
}

/// The uninstallation mounts no ConfigMap, and may still have the constraints of before.
fn volumes_of_all(mut volumes: BTreeSet<String>) -> BTreeSet<String> {
    volumes.extend(["configMap", "hostPath"].map(str::to_owned));
    volumes
}

/// The programs beside the nodes are not root, for which OpenShift has a constraint of its own.
#[test]
fn the_programs_beside_the_nodes_have_the_constraint_for_users_that_are_not_root() {
    let values = json!({
        "openshift": {"enabled": true},
        "scheduler": {"enabled": true, "allowFrom": ["10.0.0.4/32"]},
    });
    let Some(objects) = chart(&values).unwrap() else {
        return;
    };
    let objects = Objects::from_documents(objects);
    let binding = objects.only("RoleBinding");
    assert_eq!(
        binding["roleRef"]["name"],
        "system:openshift:scc:nonroot-v2"
    );
    let account = &objects.only("Deployment")["spec"]["template"]["spec"]["serviceAccountName"];
    assert_eq!(binding["subjects"][0]["name"], *account);
    let Some(plain) = chart(&json!({})).unwrap() else {
        return;
    };
    let plain = Objects::from_documents(plain);
    assert!(plain.of_kind("SecurityContextConstraints").is_empty());
}
