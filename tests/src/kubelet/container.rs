//! What reaches a container of an Allocate response through containerd's CRI plugin.

use std::collections::{BTreeMap, HashMap};

use super::manager::Allocation;

/// What `container_annotations` of the handler begins with, before a star that no slash matches.
const PASSED_ON: &str = "devices.boathook.dev/";

/// The container's annotations. containerd keeps those whose key matches one
/// of the handler's `container_annotations` and then writes its own, so that
/// these cannot be forged.
pub(super) fn annotations(
    plugin: &HashMap<String, String>,
    allocation: &Allocation,
) -> BTreeMap<String, String> {
    let passes = |key: &str| {
        let rest = key.strip_prefix(PASSED_ON);
        rest.is_some_and(|rest| !rest.contains('/'))
    };
    let kept = plugin.iter().filter(|(key, _)| passes(key));
    let mut annotations: BTreeMap<_, _> = kept.map(|(k, v)| (k.clone(), v.clone())).collect();
    for (key, value) in [
        ("container-name", allocation.container.as_str()),
        ("container-type", "container"),
        ("sandbox-name", "pod"),
        ("sandbox-namespace", "default"),
        ("sandbox-uid", allocation.pod_uid.as_str()),
    ] {
        annotations.insert(format!("io.kubernetes.cri.{key}"), value.to_owned());
    }
    annotations
}

#[test]
fn only_annotations_that_match_pass() {
    let keys = ["devices.boathook.dev/npu", "devices.boathook.dev/a/b", "x"];
    let plugin = keys.map(|key| (key.to_owned(), "plugin".to_owned()));
    let got = annotations(&plugin.into(), &Allocation::new("r", 1));
    let passed = got.iter().filter(|(_, value)| *value == "plugin");
    assert!(passed.map(|(key, _)| key.as_str()).eq([keys[0]]));
}
