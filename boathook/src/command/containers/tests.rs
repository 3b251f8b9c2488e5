use std::fs;

use super::*;

/// A container of crun is found by its state. A container whose runtime keeps the state
/// elsewhere is found by its bundle only.
#[test]
fn containers_of_cri_o_are_found() {
    let host = tempfile::tempdir().unwrap();
    let bundle = |id| format!("run/containers/storage/overlay-containers/{id}/userdata");
    let [one, other] = ["0a1b", "0c1d"].map(|id| host.path().join(bundle(id)));
    for bundle in [&one, &other] {
        fs::create_dir_all(bundle).unwrap();
        fs::write(bundle.join("config.json"), "{}").unwrap();
    }
    let state = host.path().join("run/crun/0a1b");
    fs::create_dir_all(&state).unwrap();
    let status = format!(r#"{{"pid":7,"process-start-time":9,"bundle":{one:?}}}"#);
    fs::write(state.join("status"), status).unwrap();
    let found = find_all_containers(None, host.path(), &ProcessSnapshot::read());
    let find_summary = |id| {
        let found = found.iter().find(|container| container.id == id).unwrap();
        (found.pid, found.start_time, found.bundle.clone())
    };
    assert_eq!(find_summary("0a1b"), (Some(7), Some(9), Some(one)));
    assert_eq!(find_summary("0c1d"), (None, None, Some(other)));
}

#[test]
fn the_engine_is_determined_by_the_bundles_directory() {
    for (bundle, engine) in [
        (
            "/run/docker/containerd/daemon/io.containerd.runtime.v2.task/moby/0a1b",
            Some("docker"),
        ),
        (
            "/host/run/containerd/io.containerd.runtime.v2.task/k8s.io/0a1b",
            Some("containerd"),
        ),
        // Docker with the containerd of the host.
        (
            "/run/containerd/io.containerd.runtime.v2.task/moby/0a1b",
            Some("docker"),
        ),
        (
            "/var/lib/containers/storage/overlay-containers/0a1b/userdata",
            Some("podman"),
        ),
        // The bundle of a rootless user.
        (
            "/home/joe/.local/share/containers/storage/vfs-containers/0a1b/userdata",
            Some("podman"),
        ),
        ("/root/bundle", None),
    ] {
        let container = Container {
            bundle: Some(bundle.into()),
            ..Container::default()
        };
        assert_eq!(container.engine_name(), engine, "{bundle}");
    }
}
