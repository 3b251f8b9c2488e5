//! Tests with the mounts of the shipped DaemonSet, in a private mount namespace.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use harness::manifests::{documents, repository};
use harness::privilege::missing_for_engines;
use nix::sys::signal::Signal;

use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};
use crate::pages::{SERVE, address, metric, wait_for_scan};

/// Returns the paths of the host that the shipped DaemonSet mounts in the plugin's container,
/// for directories.
fn host_mounts() -> Vec<String> {
    let text = fs::read_to_string(repository("deploy/base/daemon-set.yaml")).unwrap();
    let daemon_set = documents(&text).unwrap().remove(0);
    let plugin = &daemon_set["spec"]["template"]["spec"]["containers"][0];
    let mounts = plugin["volumeMounts"].as_array().unwrap().iter();
    let paths = mounts.filter_map(|mount| mount["mountPath"].as_str()?.strip_prefix("/host"));
    paths.map(str::to_owned).collect()
}

/// Returns a node with all shipped classes. Its host has the mounts of the DaemonSet, each a file
/// system of its own with what the directory `prepared` has there.
fn node() -> Option<Node> {
    if let Some(reason) = missing_for_engines() {
        skip::report("mounts of the DaemonSet", &reason);
        return None;
    }
    let classes = repository("device-class/classes");
    let files = fs::read_dir(&classes)
        .unwrap()
        .map(|file| file.unwrap().path());
    let read = |file: &Path| fs::read_to_string(file).unwrap();
    let stem = |file: &Path| file.file_stem().unwrap().to_str().unwrap().to_owned();
    let files: Vec<(String, String)> = files
        .filter(|file| file.extension().is_some_and(|one| one == "toml"))
        .map(|file| (stem(&file), read(&file)))
        .collect();
    let classes: Vec<(&str, &str)> = files.iter().map(|(a, b)| (&**a, &**b)).collect();
    let node = Node::new(&classes).with_arguments(&SERVE);
    let (host, prepared) = (node.path("host"), node.path("prepared"));
    let (host, prepared) = (host.display(), prepared.display());
    let mut script = String::from("set -e; ");
    for path in host_mounts() {
        // A mount of a single file shows as an own file system, too.
        let target = format!("{host}{path}");
        let made = if path == "/proc/devices" {
            format!("mkdir -p {host}/proc; touch {target}; mount --bind /proc/devices {target}; ")
        } else {
            format!(
                "mkdir -p {target}; mount -t tmpfs -o mode=755 none {target}; \
                 if [ -d {prepared}{path} ]; then cp -a {prepared}{path}/. {target}; fi; "
            )
        };
        write!(script, "{made}").unwrap();
    }
    script.push_str("exec \"$@\"");
    Some(node.within(&["unshare", "--mount", "sh", "-c", &script, "sh"]))
}

/// A shipped class that reads a path which the DaemonSet does not mount is no error on a host
/// without its hardware: the alert for broken classes would always fire.
#[test]
fn the_shipped_classes_have_no_error_in_the_shipped_daemon_set() {
    let Some(mut node) = node() else {
        return;
    };
    let _kubelet = node.kubelet();
    node.start_plugin();
    wait_for_scan(&address(&node));
    assert_eq!(metric(&address(&node), "boathook_class_errors"), 0);
    let log = node.log();
    assert!(!log.contains("class left out"), "{log}");
}

/// A class that reads a path which is not mounted is an error where its hardware is, since the
/// plugin would find other devices than the hook.
#[test]
fn an_unmounted_path_is_an_error_where_the_hardware_is() {
    let Some(mut node) = node() else {
        return;
    };
    let card = "prepared/sys/class/drm/card0/device";
    node.write(&format!("{card}/vendor"), "0x1ed5\n");
    node.write(&format!("{card}/misc/mtgpu.0/dev"), "");
    let _kubelet = node.kubelet();
    node.start_plugin();
    node.wait_log("mthreads-gpu.toml: reads /proc/sgpu_km, which is not mounted");
    let address = address(&node);
    wait_until("one error", || {
        metric(&address, "boathook_class_errors") == 1
    });
}

/// The directory of CDI specifications is removed on the host. In the plugin's container the mount
/// still has the removed directory, so the plugin ends, and the kubelet starts its container again.
#[test]
fn a_removed_directory_of_specifications_is_mounted_again() {
    if let Some(reason) = missing_for_engines() {
        skip::report("a removed directory of specifications", &reason);
        return;
    }
    let node = Node::new(&[("dummy-npu", NPUS)]);
    let (on_host, mounted) = (node.path("host-cdi"), node.path("cdi"));
    let script = format!(
        "set -e; mkdir -p {} {}; mount --bind {0} {1}; exec \"$@\"",
        on_host.display(),
        mounted.display()
    );
    let mut node = node.within(&["unshare", "--mount", "sh", "-c", &script, "sh"]);
    let file = on_host.join("boathook-dummy.com.pods.boathook.dev-npu.json");
    let kubelet = node.serve(NPU);
    assert!(file.exists());
    // The plugin writes a file again that is removed before the directory.
    wait_until("the end of the directory", || {
        fs::remove_dir_all(&on_host).is_ok() || !on_host.exists()
    });
    node.wait_log("cdi was removed on the host, and is still mounted here: ending");
    let (status, _) = node.end_plugin(Signal::SIGTERM);
    assert_eq!(status.code(), Some(1), "{status}");
    // The engine creates the missing directory for the container that the kubelet starts.
    node.start_plugin();
    wait_until("the file again", || file.exists());
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
}

/// The file of a class that is not served any more is removed although another such file cannot be
/// removed: a file on which something is mounted stays busy.
#[test]
fn a_file_that_cannot_be_removed_keeps_no_other_one() {
    if let Some(reason) = missing_for_engines() {
        skip::report("a specification that cannot be removed", &reason);
        return;
    }
    let node = Node::new(&[("dummy-npu", NPUS)]);
    let busy = node.path("cdi/boathook-a.example.pods.boathook.dev-x.json");
    let stale = node.path("cdi/boathook-b.example.pods.boathook.dev-x.json");
    node.write(
        "cdi/boathook-a.example.pods.boathook.dev-x.json",
        "{\"kind\": \"a.example.pods.boathook.dev/x\"}",
    );
    node.write(
        "cdi/boathook-b.example.pods.boathook.dev-x.json",
        "{\"kind\": \"b.example.pods.boathook.dev/x\"}",
    );
    let script = format!("set -e; mount --bind {0} {0}; exec \"$@\"", busy.display());
    let mut node = node.within(&["unshare", "--mount", "sh", "-c", &script, "sh"]);
    let _kubelet = node.serve(NPU);
    wait_until("the end of the other file", || !stale.exists());
    assert!(busy.exists());
    node.wait_log("a.example.pods.boathook.dev-x.json: Device or resource busy");
}
