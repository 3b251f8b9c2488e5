use tempfile::TempDir;

use super::*;

fn name(text: &str) -> ReleaseName {
    text.parse().unwrap()
}

/// Returns a host, and the names of two releases.
fn host() -> (TempDir, ReleaseName, ReleaseName) {
    let host = tempfile::tempdir().unwrap();
    (host, name("system/pool-a"), name("system/pool-b"))
}

/// An update runs the old pod, the new init container and the new pod side by side.
#[test]
fn processes_of_one_release_share_the_lock() {
    let (host, a, _) = host();
    let _old = NodeReleaseLock::acquire_to_serve(host.path(), &a).unwrap();
    let installing = NodeReleaseLock::acquire_to_install(host.path(), &a).unwrap();
    drop(installing);
    NodeReleaseLock::acquire_to_serve(host.path(), &a).unwrap();
}

#[test]
fn a_second_release_on_a_node_is_refused_while_the_first_runs() {
    let (host, a, b) = host();
    drop(NodeReleaseLock::acquire_to_install(host.path(), &a).unwrap());
    let serving = NodeReleaseLock::acquire_to_serve(host.path(), &a).unwrap();
    let refused = NodeReleaseLock::acquire_to_install(host.path(), &b).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "release system/pool-a of boathook runs on this node, and this pod is of release \
         system/pool-b; choose different nodes for them, by nodeSelector or affinity"
    );
    NodeReleaseLock::acquire_to_serve(host.path(), &b).unwrap_err();
    // The node moves to the other pool: the first release's pod ends, and the second one's
    // starts.
    drop(serving);
    drop(NodeReleaseLock::acquire_to_install(host.path(), &b).unwrap());
    NodeReleaseLock::acquire_to_serve(host.path(), &b).unwrap();
}

/// Two releases that start at the same time can install one after the other before either of
/// them serves. The node's files are those of the second one.
#[test]
fn a_release_does_not_serve_with_the_files_of_another_one() {
    let (host, a, b) = host();
    drop(NodeReleaseLock::acquire_to_install(host.path(), &a).unwrap());
    drop(NodeReleaseLock::acquire_to_install(host.path(), &b).unwrap());
    let refused = NodeReleaseLock::acquire_to_serve(host.path(), &a).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("release system/pool-b of boathook has installed its files"),
        "{refused}"
    );
    NodeReleaseLock::acquire_to_serve(host.path(), &b).unwrap();
}

#[test]
fn a_release_is_named_by_its_namespace_and_name() {
    for valid in ["boathook-system/boathook", "a/b.c-1"] {
        assert_eq!(name(valid).as_str(), valid);
    }
    for invalid in ["", "a", "/a", "a/", "a/b/c", "a/B", "a/b\n", "ä/b"] {
        assert!(invalid.parse::<ReleaseName>().is_err(), "{invalid:?}");
    }
    assert!(
        format!("a/{}", "b".repeat(400))
            .parse::<ReleaseName>()
            .is_err()
    );
}
