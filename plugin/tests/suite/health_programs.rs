//! Programs of the host that report health, of a host whose tree is mounted somewhere,
//! as in the privileged DaemonSet.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use harness::kubelet::Event;

use crate::node::{NPU, Node, PATIENCE};

/// The program and the file that it prints are at paths of the host.
const CLASS: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ count = 1 }]
[device]
id = "npu-{index}"
health = [{ program = ["/opt/busybox", "cat", "/opt/npu-{index}"], every = 1, equals = "OK" }]
"#;

#[test]
fn the_program_of_the_host_is_run_with_the_hosts_root() {
    let busybox = Path::new("/bin/busybox");
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 || !busybox.exists() {
        let reason = "needs root and a static /bin/busybox";
        return skip::report("a health program of a mounted host", reason);
    }
    let mut node = Node::new(&[("dummy-npu", CLASS)]);
    let (classes, host) = (node.path("classes"), node.path("host"));
    let config = format!(
        "classes = [{classes:?}]\nhost_root = {host:?}\n\
         [class.dummy-npu]\nhealth_programs = true\n"
    );
    node.write("config.toml", &config);
    node.write("host/opt/npu-0", "OK\n");
    // By another process, or what is started just then could keep it open.
    let copied = Command::new("/bin/cp")
        .args([busybox, &node.path("host/opt/busybox")])
        .status();
    assert!(copied.unwrap().success());
    let kubelet = node.serve(NPU);
    let wait = |wanted: &str| {
        let is_it = |event: &Event| match event {
            Event::Devices { devices, .. } => devices.iter().all(|npu| npu.health == wanted),
            _ => false,
        };
        kubelet.wait(PATIENCE, is_it).unwrap();
    };
    node.write("host/opt/npu-0", "Alarm\n");
    wait("Unhealthy");
    node.wait_log("/opt/busybox printed `Alarm`");
    node.write("host/opt/npu-0", "OK\n");
    wait("Healthy");
    node.remove("host/opt/busybox");
    node.wait_log("/opt/busybox cannot be run: ");
}
