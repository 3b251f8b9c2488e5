//! What reaches a container of an Allocate response, through the kubelet and
//! containerd's CRI plugin.

use std::collections::{BTreeMap, HashMap};

use super::manager::Allocation;

/// The container's environment. The kubelet writes the plugin's first and the
/// pod's after; engines keep the last of a name.
pub(super) fn environment(
    plugin: &HashMap<String, String>,
    pod: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let both = plugin.iter().chain(pod);
    both.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The container's annotations. containerd keeps those whose key matches one
/// of the handler's `container_annotations` and then writes its own, so that
/// these cannot be forged.
pub(super) fn annotations(
    plugin: &HashMap<String, String>,
    patterns: &[String],
    allocation: &Allocation,
) -> BTreeMap<String, String> {
    let passes = |key: &str| patterns.iter().any(|pattern| matches(pattern, key));
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

/// Go's `path.Match` as far as these patterns need it: `*` is any run of
/// characters but slashes.
fn matches(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == key,
        Some((before, after)) => key.strip_prefix(before).is_some_and(|rest| {
            let run = rest.find('/').unwrap_or(rest.len());
            let ends = (0..=run).filter(|end| rest.is_char_boundary(*end));
            ends.into_iter().any(|end| matches(after, &rest[end..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pods_variable_wins() {
        let plugin = HashMap::from([
            ("A".to_owned(), "plugin".to_owned()),
            ("B".into(), "b".into()),
        ]);
        let pod = BTreeMap::from([("A".to_owned(), "pod".to_owned())]);
        let wanted = [("A", "pod"), ("B", "b")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(environment(&plugin, &pod), BTreeMap::from(wanted));
    }

    #[test]
    fn only_annotations_that_match_pass_and_containerds_own_are_not_forged() {
        let plugin = [
            "devices.boathook.dev/npu",
            "other/x",
            "io.kubernetes.cri.sandbox-uid",
        ];
        let plugin = plugin
            .map(|key| (key.to_owned(), "plugin".to_owned()))
            .into();
        let patterns = [
            "devices.boathook.dev/*".to_owned(),
            "io.kubernetes.cri.*".to_owned(),
        ];
        let got = annotations(&plugin, &patterns, &Allocation::of("r", 1));
        assert!(got.contains_key("devices.boathook.dev/npu") && !got.contains_key("other/x"));
        assert_ne!(got["io.kubernetes.cri.sandbox-uid"], "plugin");
    }

    #[test]
    fn a_star_stops_at_a_slash() {
        for (pattern, key, wanted) in [
            ("a/*", "a/b", true),
            ("a/*", "a/b/c", false),
            ("*/b", "a/b", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "ab", true),
        ] {
            assert_eq!(matches(pattern, key), wanted, "{pattern} {key}");
        }
    }
}
