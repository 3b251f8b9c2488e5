//! The part of containerd's CRI plugin between an Allocate response and the annotations of a
//! container.

use std::collections::{BTreeMap, HashMap};

use super::manager::Allocation;

/// The prefix of the annotations that containerd's setting `container_annotations` passes to a
/// container. In the setting a `*` follows, which does not match a slash.
const PASSED_ON: &str = "devices.boathook.dev/";

/// Returns the container's annotations: those of the plugin whose keys match the setting
/// `container_annotations`, and those that containerd writes. containerd's are added last, so that
/// a plugin cannot forge them.
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
