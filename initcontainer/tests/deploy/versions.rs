//! Tests of what the chart refuses on clusters with an older Kubernetes.

use std::fs;

use harness::manifests::{chart_with_file, helm_with_file, repository};
use serde_json::{Value, json};

const CHECKS: &str = "templates/_checks.tpl";

fn read_checks() -> String {
    fs::read_to_string(repository("deploy/helm").join(CHECKS)).unwrap()
}

/// Without the fields that an older API server drops, no driver would offer the devices that the
/// plugin leaves to it, or a webhook would be asked about each pod of the cluster. Helm's library
/// renders for one version of Kubernetes, so a copy of the chart needs a newer one.
#[test]
fn a_kubernetes_that_lacks_what_a_value_needs_is_refused() {
    let clients = json!({"enabled": true, "allowFrom": ["10.0.0.4/32"]});
    for (value, oldest, values) in [
        (
            "dra.classes",
            "1.34",
            json!({"dra": {"classes": ["nvidia-gpu"]}}),
        ),
        (
            "follow.enabled",
            "1.30",
            json!({"follow": {"enabled": true}}),
        ),
        ("webhook.enabled", "1.28", json!({"webhook": clients})),
    ] {
        let needed = format!("\"{oldest}\"");
        assert_eq!(read_checks().matches(&needed).count(), 1, "{oldest}");
        let newer = read_checks().replace(&needed, "\"9.34\"");
        let Some(output) = helm_with_file(&values, CHECKS, &newer).unwrap() else {
            return;
        };
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{value}");
        let wanted = format!("{value} needs Kubernetes 9.34, and this is v1.36.0");
        assert!(message.contains(&wanted), "{message}");
        // The other values, and a removal, need no such version.
        for mut accepted in [json!({}), values] {
            accepted["uninstall"] = json!(accepted != json!({}));
            let rendered = helm_with_file(&accepted, CHECKS, &newer).unwrap().unwrap();
            assert!(rendered.status.success(), "{accepted}: {rendered:?}");
        }
    }
}

/// Clouds add words to the version of Kubernetes, which are no release candidate.
#[test]
fn versions_of_clouds_are_compared_by_their_numbers() {
    let checks = read_checks();
    assert!(checks.contains("(printf \"<%s.0-0\" $oldest)"));
    for (version, is_refused) in [
        ("v1.31.4", true),
        ("v1.33.9-gke.1000", true),
        ("v1.33.5+k3s1", true),
        ("v1.34.0", false),
        ("v1.34.1-gke.1000", false),
        ("v1.34.0-eks-1234567", false),
        ("v1.35.0+rke2r1", false),
    ] {
        let template = format!(
            "kind: Comparison\nisOlder: {{{{ semverCompare \"<1.34.0-0\" \"{version}\" }}}}\n"
        );
        let comparison = chart_with_file(&json!({}), "templates/comparison.yaml", &template);
        let Some(objects) = comparison.unwrap() else {
            return;
        };
        let is_comparison = |object: &&Value| object["kind"] == "Comparison";
        let compared = objects.iter().find(is_comparison).unwrap();
        assert_eq!(compared["isOlder"], is_refused, "{version}");
    }
}
