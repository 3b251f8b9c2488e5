//! Programs of the host that report health, of a host whose tree is mounted somewhere,
//! as in the privileged DaemonSet.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use harness::kubelet::{Event, FakeKubelet};

use crate::node::{Node, PATIENCE};

/// The program and the file that it prints are at paths of the host.
const CLASS: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ count = 1 }]
[device]
id = "npu-{index}"
health = [{ program = ["/opt/busybox", "cat", "/opt/npu-{index}"], equals = "OK" }]
"#;

#[test]
fn the_program_of_the_host_is_run_with_the_hosts_root() {
    let Some((node, kubelet)) = node_printing("Alarm\n", true) else {
        return;
    };
    node.wait_log("/opt/busybox printed `Alarm`");
    let is_unhealthy = |event: &Event| match event {
        Event::Devices { devices, .. } => devices.iter().all(|npu| npu.health == "Unhealthy"),
        _ => false,
    };
    kubelet.wait(PATIENCE, is_unhealthy).unwrap();
}

#[test]
fn a_program_that_the_host_lacks_is_reported() {
    let Some((node, _kubelet)) = node_printing("OK\n", false) else {
        return;
    };
    node.wait_log("/opt/busybox cannot be run: ");
}

/// A plugin on a host whose program prints this, or which lacks the program.
fn node_printing(output: &str, has_program: bool) -> Option<(Node, FakeKubelet)> {
    let busybox = Path::new("/bin/busybox");
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 || !busybox.exists() {
        let reason = "needs root and a static /bin/busybox";
        skip::report("a health program of a mounted host", reason);
        return None;
    }
    let mut node = Node::new(&[("dummy-npu", CLASS)]);
    let (classes, host) = (node.path("classes"), node.path("host"));
    let config = format!(
        "classes = [{classes:?}]\nhost_root = {host:?}\n\
         [class.dummy-npu]\nhealth_programs = true\n"
    );
    node.write("config.toml", &config);
    node.write("host/opt/npu-0", output);
    if has_program {
        // By another process, or what is started just then could keep it open.
        let copied = Command::new("/bin/cp")
            .args([busybox, &node.path("host/opt/busybox")])
            .status();
        assert!(copied.unwrap().success());
    }
    // The first list may already have what the program reported: it is left to the tests.
    let kubelet = node.kubelet();
    node.start_plugin();
    Some((node, kubelet))
}
