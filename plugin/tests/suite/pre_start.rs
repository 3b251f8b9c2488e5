//! Devices that are made what their class says before a container starts.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use harness::kubelet::{Allocation, Event};
use tonic::Code;

use crate::client::Client;
use crate::node::{NPU, Node, PATIENCE};

/// Each device has its own script, which is told the file that must say
/// `ready`.
fn class(root: &Path) -> String {
    let root = root.display();
    format!(
        r#"
version = 1
resource = "dummy.com/npu"
request = {{ env = "DUMMY_VISIBLE_DEVICES" }}
[[discover]]
path = "{root}/sys/{{name}}"
attributes = [{{ name = "script", file = "script" }}]
[device]
id = "{{name}}"
[prepare]
when = "pre-start"
program = "/bin/sh"
arguments = ["-c", "{{script}}", "{root}/sys/{{name}}/state"]
timeout = 2
file = "state"
equals = "ready"
"#
    )
}

/// A node whose host is the real one, but for what the class looks at.
fn node(devices: &[(&str, &str)]) -> Node {
    let node = Node::new(&[]);
    let classes = node.path("classes");
    node.write(
        "config.toml",
        &format!("classes = [{classes:?}]\nhost_root = \"/\"\n"),
    );
    for (name, script) in devices {
        node.write(&format!("host/sys/{name}/script"), script);
        node.write(&format!("host/sys/{name}/state"), "used\n");
    }
    node.write("classes/dummy-npu.toml", &class(&node.path("host")));
    node
}

#[test]
fn a_program_makes_a_device_ready_or_the_container_does_not_start() {
    let mut node = node(&[
        ("good", "echo ready > $0"),
        ("loud", "echo it is broken >&2; exit 3"),
        ("idle", "true"),
        ("stuck", "sleep 60"),
        ("done", "exit 9"),
        (
            "bare",
            "env | grep -qv '^_\\|^PWD\\|^SHLVL' || echo ready > $0",
        ),
    ]);
    node.write("host/sys/done/state", "ready");
    let _kubelet = node.kubelet();
    node.start_plugin();
    let client = Client::of(&node, NPU);
    assert!(client.options().pre_start_required);
    let prepared = "of dummy.com/npu is not prepared: /bin/sh";
    for (ids, wanted) in [
        (&["good"][..], Ok(())),
        (&["bare"], Ok(())),
        // It says so already: the program is not run.
        (&["done"], Ok(())),
        (&["good", "done"], Ok(())),
        (
            &["loud"],
            Err((
                Code::Internal,
                format!("loud {prepared} failed (exit status: 3): it is broken"),
            )),
        ),
        (
            &["idle"],
            Err((Code::Internal, format!("idle {prepared} exited 0, but "))),
        ),
        (
            &["stuck", "good"],
            Err((
                Code::DeadlineExceeded,
                format!("stuck {prepared} took longer than 2 seconds and was killed"),
            )),
        ),
        (
            &["idle", "loud"],
            Err((Code::Internal, format!("idle {prepared}"))),
        ),
        (
            &["good", "gone"],
            Err((Code::NotFound, "dummy.com/npu has no device `gone`".into())),
        ),
        (
            &[],
            Err((Code::InvalidArgument, "empty device list".into())),
        ),
    ] {
        match (client.pre_start(ids), wanted) {
            (Ok(()), Ok(())) => {}
            (Err(status), Err((code, said))) => {
                assert_eq!(status.code(), code, "{ids:?}: {status}");
                assert!(status.message().contains(&said), "{ids:?}: {status}");
            }
            (got, wanted) => panic!("{ids:?}: {got:?}, not {wanted:?}"),
        }
    }
}

#[test]
fn the_kubelet_starts_no_container_whose_devices_are_not_ready() {
    let mut node = node(&[("good", "echo ready > $0"), ("loud", "exit 3")]);
    let kubelet = node.serve(NPU);
    let state = |name: &str| {
        let file = node.path(&format!("host/sys/{name}/state"));
        std::fs::read_to_string(file).unwrap()
    };
    assert_eq!(state("good"), "used\n");
    kubelet
        .allocate(Allocation::of_ids(NPU, &["good"]))
        .unwrap();
    assert_eq!(state("good"), "ready\n");
    let refused = kubelet.allocate(Allocation::of_ids(NPU, &["loud"]));
    let said = "Internal: loud of dummy.com/npu is not prepared: /bin/sh failed (exit status: 3): ";
    assert_eq!(refused.unwrap_err(), said);
    node.wait_log("container not started: loud of dummy.com/npu");
}

#[test]
fn a_program_that_is_missing_is_named() {
    let mut node = node(&[("good", "true")]);
    let text = class(&node.path("host")).replace("/bin/sh", "/nowhere/programmer");
    node.write("classes/dummy-npu.toml", &text);
    let _kubelet = node.kubelet();
    node.start_plugin();
    let status = Client::of(&node, NPU).pre_start(&["good"]).unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let said = "/nowhere/programmer cannot be run: ";
    assert!(status.message().contains(said), "{status}");
}

#[test]
fn a_device_is_prepared_by_one_program_at_a_time() {
    // A second one at the same time would find the directory there.
    let script =
        "mkdir $0.busy || exit 5; echo >> $0.runs; sleep 0.3; rmdir $0.busy; echo ready > $0";
    let mut node = node(&[("npu", script)]);
    let _kubelet = node.kubelet();
    node.start_plugin();
    Client::of(&node, NPU);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Client::of(&node, NPU).pre_start(&["npu"]).unwrap());
        }
    });
    // Those who waited found nothing to do.
    let runs = std::fs::read_to_string(node.path("host/sys/npu/state.runs")).unwrap();
    assert_eq!(runs.lines().count(), 1);
}

#[test]
fn the_kubelet_reads_the_options_again_when_a_class_begins_to_prepare() {
    let mut node = node(&[("good", "echo ready > $0")]);
    let text = class(&node.path("host"));
    node.write(
        "classes/dummy-npu.toml",
        &text.replace("pre-start", "container-start"),
    );
    let kubelet = node.kubelet();
    node.start_plugin();
    let registered = |event: &Event| matches!(event, Event::Registered { .. });
    kubelet.wait(PATIENCE, registered).unwrap();
    assert!(!Client::of(&node, NPU).options().pre_start_required);
    node.write("classes/dummy-npu.toml", &text);
    kubelet.wait(PATIENCE, registered).unwrap();
    assert!(Client::of(&node, NPU).options().pre_start_required);
}

/// As in a container, where the host's tree is mounted somewhere.
#[test]
fn a_program_of_a_mounted_host_has_that_for_its_root() {
    let busybox = Path::new("/bin/busybox");
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 || !busybox.exists() {
        return skip::report(
            "a class's program on the host",
            "needs root and a static /bin/busybox",
        );
    }
    let mut node = Node::new(&[]);
    let text = class(Path::new(""))
        .replace("/bin/sh", "/bin/busybox")
        .replace("[\"-c\"", "[\"sh\", \"-c\"");
    node.write("classes/dummy-npu.toml", &text);
    node.write("host/sys/npu/script", "echo ready > $0");
    node.write("host/sys/npu/state", "used");
    std::fs::create_dir_all(node.path("host/bin")).unwrap();
    // By another process, or what is started just then could keep it open.
    let copied = Command::new("/bin/cp")
        .args([busybox, &node.path("host/bin/busybox")])
        .status();
    assert!(copied.unwrap().success());
    let _kubelet = node.kubelet();
    node.start_plugin();
    let client = Client::of(&node, NPU);
    client.pre_start(&["npu"]).unwrap();
    let state = std::fs::read_to_string(node.path("host/sys/npu/state")).unwrap();
    assert_eq!(state, "ready\n");

    node.write("host/sys/npu/state", "used");
    node.remove("host/bin/busybox");
    let status = client.pre_start(&["npu"]).unwrap_err();
    let said = "/bin/busybox cannot be run: ";
    assert!(status.message().contains(said), "{status}");
}
