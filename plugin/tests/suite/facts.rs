//! Programs of the host that report facts, of a host whose tree is mounted somewhere.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::node::{Node, PATIENCE};

const CLASS: &str = r#"
version = 1
resource = "dummy.com/{model}"
request = { env = "DUMMY_VISIBLE_DEVICES" }
device = { id = "npu-{index}" }

[[facts]]
program = ["/opt/busybox", "cat", "/opt/models"]
lines = [{ line = "^NPU (?<npu>[0-9]+): (?<model>.+)$", facts = { "{npu}" = "{model}" } }]

[[discover]]
count = 1
attributes = [{ name = "model", fact = "{index}", default = "npu" }]
"#;

/// The file is below the host's /run, where the hook reads it.
#[test]
fn a_resource_is_named_by_what_the_program_of_the_host_reports() {
    let busybox = Path::new("/bin/busybox");
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 || !busybox.exists() {
        let test = "a_resource_is_named_by_what_the_program_of_the_host_reports";
        return skip::report(test, "needs root and a static /bin/busybox");
    }
    for (further, resource) in [("", "dummy.com/fast"), ("facts = false\n", "dummy.com/npu")] {
        let mut node = Node::new(&[("dummy-npu", CLASS)]);
        let (classes, host) = (node.path("classes"), node.path("host"));
        let config =
            format!("classes = [{classes:?}]\nhost_root = {host:?}\n[class.dummy-npu]\n{further}");
        node.write("config.toml", &config);
        node.write("host/opt/models", "NPU 0: fast\n");
        // By another process, or what is started just then could keep it open.
        let copied = Command::new("/bin/cp")
            .args([busybox, &node.path("host/opt/busybox")])
            .status();
        assert!(copied.unwrap().success());
        let kubelet = node.kubelet();
        node.start_plugin();
        assert_eq!(kubelet.wait_devices(PATIENCE, resource).unwrap().len(), 1);
        let facts = std::fs::read_to_string(node.path("host/run/boathook/facts/dummy-npu"));
        let is_told = facts.is_ok_and(|text| text.ends_with("\n0\tfast\n"));
        assert_eq!(is_told, further.is_empty(), "{resource}");
    }
}
