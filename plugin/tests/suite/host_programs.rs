//! Tests of programs that report facts or health. They belong to a host whose file tree is
//! mounted at another path, as in the privileged DaemonSet.

use std::process::Command;

use harness::privilege::missing_for_engines;

use crate::node::{Node, PATIENCE, wait_list};

/// A class whose device attributes come from a program. The program and the file that it
/// prints are at paths of the host.
const FACTS: &str = r#"
version = 1
resource = "dummy.com/{model}"
request = { env = "DUMMY_VISIBLE_DEVICES" }
device = { id = "npu-{index}" }

[[facts]]
program = ["/opt/busybox", "cat", "/opt/output"]
lines = [{ line = "^NPU (?<npu>[0-9]+): (?<model>.+)$", facts = { "{npu}" = "{model}" } }]

[[discover]]
count = 1
attributes = [{ name = "model", fact = "{index}", default = "npu" }]
"#;

const HEALTH: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ count = 1 }]
[device]
id = "npu-{index}"
health = [{ program = ["/opt/busybox", "cat", "/opt/output"], equals = "OK" }]
"#;

/// Returns a node whose host has busybox at the path `program` and a file with `output` for it
/// to print. Returns `None` if the machine cannot run programs of a mounted host.
fn node(class: &str, further: &str, program: &str, output: &str) -> Option<Node> {
    if let Some(reason) = missing_for_engines() {
        skip::report("programs of a mounted host", &reason);
        return None;
    }
    let node = Node::new(&[("dummy-npu", class)]);
    node.configure(&format!("[class.dummy-npu]\n{further}\n"));
    node.write("host/opt/output", output);
    // Another process copies the file. If this process had it open for writing, a child that
    // another test starts at that moment would inherit the descriptor, and executing the file
    // would fail with ETXTBSY.
    let mut copy = Command::new("/bin/cp");
    copy.arg("/bin/busybox").arg(node.path(program));
    assert!(copy.status().unwrap().success());
    Some(node)
}

/// The plugin writes the facts to a file below the host's /run, where the hook reads them.
#[test]
fn a_resource_is_named_by_what_the_program_of_the_host_reports() {
    for (further, resource) in [("", "dummy.com/fast"), ("facts = false", "dummy.com/npu")] {
        let Some(mut node) = node(FACTS, further, "host/opt/busybox", "NPU 0: fast\n") else {
            return;
        };
        let kubelet = node.kubelet();
        node.start_plugin();
        assert_eq!(kubelet.wait_devices(PATIENCE, resource).unwrap().len(), 1);
        let facts = std::fs::read_to_string(node.path("host/run/boathook/facts/dummy-npu"));
        let is_told = facts.is_ok_and(|text| text.ends_with("\n0\tfast\n"));
        assert_eq!(is_told, further.is_empty(), "{resource}");
    }
}

#[test]
fn the_health_program_of_the_host_is_run_with_the_hosts_root_or_reported() {
    let on = "health_programs = true";
    for (program, output, said) in [
        (
            "host/opt/busybox",
            "Alarm\n",
            "/opt/busybox printed `Alarm`",
        ),
        ("host/opt/other", "OK\n", "/opt/busybox cannot be run: "),
    ] {
        let Some(mut node) = node(HEALTH, on, program, output) else {
            return;
        };
        let kubelet = node.kubelet();
        node.start_plugin();
        node.wait_log(said);
        if output == "Alarm\n" {
            wait_list(&kubelet, |npus| npus[0].health == "Unhealthy");
        }
    }
}
