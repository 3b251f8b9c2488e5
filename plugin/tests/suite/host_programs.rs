//! Tests of programs that report facts or health. They belong to a host whose file tree is
//! mounted at another path, as in the privileged DaemonSet.

use std::collections::BTreeSet;
use std::process::Command;

use harness::kubelet::{DeviceReport, Event, FakeKubelet};
use harness::privilege::missing_for_engines;
use nix::sys::signal::Signal;

use crate::node::{Node, PATIENCE, wait_list, wait_until};

/// A class whose device attributes come from a program. The program and the file that it
/// prints are at paths of the host. A device without facts has the resource `dummy.com/npu`.
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
    add_busybox(&node, program);
    Some(node)
}

/// Copies busybox to a path of the node.
fn add_busybox(node: &Node, path: &str) {
    // Another process copies the file. If this process had it open for writing, a child that
    // another test starts at that moment would inherit the descriptor, and executing the file
    // would fail with ETXTBSY.
    let mut copy = Command::new("/bin/cp");
    copy.arg("/bin/busybox").arg(node.path(path));
    assert!(copy.status().unwrap().success());
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

/// The class [`FACTS`] whose program waits for the file `/opt/go` before it ends, and a second
/// class, whose devices have a name without facts and a health by one.
const SLOW: [(&str, &str); 2] = [
    (
        "dummy-npu",
        r#"
version = 1
resource = "dummy.com/{model}"
request = { env = "DUMMY_VISIBLE_DEVICES" }
device = { id = "npu-{serial}" }

[[facts]]
program = ["/opt/busybox", "sh", "-c", "until /opt/busybox test -e /opt/go; do /opt/busybox usleep 10000; done; /opt/busybox cat /opt/output"]
lines = [{ line = "^NPU (?<npu>[0-9]+): (?<model>.+) (?<serial>.+)$", facts = { "{npu} model" = "{model}", "{npu} serial" = "{serial}" } }]

[[discover]]
count = 1
attributes = [
  { name = "model", fact = "{index} model", default = "npu" },
  { name = "serial", fact = "{index} serial", default = "{index}" },
]
"#,
    ),
    (
        "plain",
        r#"
version = 1
resource = "dummy.com/plain"
request = { env = "PLAIN_VISIBLE_DEVICES" }
device = { id = "plain-{index}", health = [{ value = "{state}", not_equals = "broken" }] }

[[facts]]
program = ["/opt/busybox", "sh", "-c", "until /opt/busybox test -e /opt/go; do /opt/busybox usleep 10000; done; /opt/busybox cat /opt/output"]
lines = [{ line = "^plain (?<npu>[0-9]+) is (?<state>.+)$", facts = { "{npu}" = "{state}" } }]

[[discover]]
count = 1
attributes = [{ name = "state", fact = "{index}", default = "unknown" }]
"#,
    ),
];

/// A node that scans only when something says that it has to. Returns `None` if the machine cannot
/// run programs of a mounted host.
fn slow_node(classes: &[(&str, &str)], output: &str) -> Option<Node> {
    if let Some(reason) = missing_for_engines() {
        skip::report("programs of a mounted host", &reason);
        return None;
    }
    let node = Node::new(classes).without_rescans();
    node.write("host/opt/output", output);
    add_busybox(&node, "host/opt/busybox");
    Some(node)
}

/// The resources that were registered so far.
fn registered(kubelet: &FakeKubelet) -> BTreeSet<String> {
    let events = kubelet.so_far().into_iter();
    let resources = events.filter_map(|event| match event {
        Event::Registered { resource, .. } => Some(resource),
        _ => None,
    });
    resources.collect()
}

fn ids(devices: Vec<DeviceReport>) -> Vec<String> {
    devices.into_iter().map(|device| device.id).collect()
}

/// Writes facts of the class `dummy-npu`, as if they had been reported so many seconds after the
/// boot.
fn write_facts(node: &Node, uptime: u64) {
    let facts = format!("boathook uptime\t{uptime}\n0 model\tfast\n0 serial\t77\n");
    node.write("host/run/boathook/facts/dummy-npu", &facts);
}

/// The program of the driver ends after everything else was checked.
#[test]
fn registration_does_not_wait_for_a_program_that_reports_facts() {
    let output = "NPU 0: fast 77\nplain 0 is broken\n";
    for (uptime, first) in [
        // No program has run in this boot: nothing is registered by a name that may change.
        (None, &["dummy.com/plain"][..]),
        (Some(99_999_999_999), &["dummy.com/plain"]),
        // The last run of this boot counts.
        (Some(0), &["dummy.com/fast", "dummy.com/plain"]),
    ] {
        let Some(mut node) = slow_node(&SLOW, output) else {
            return;
        };
        if let Some(uptime) = uptime {
            write_facts(&node, uptime);
        }
        let kubelet = node.kubelet();
        node.start_plugin();
        for resource in first {
            let devices = kubelet.wait_devices(PATIENCE, resource).unwrap();
            assert_eq!(devices[0].health, "Healthy", "{devices:?}");
        }
        let wanted: BTreeSet<String> = first.iter().map(ToString::to_string).collect();
        assert_eq!(registered(&kubelet), wanted, "{uptime:?}");
        node.write("host/opt/go", "");
        // A fact that the run has changed, and the name that it reports.
        wait_list(&kubelet, |devices| {
            devices[0].id == "plain-0" && devices[0].health == "Unhealthy"
        });
        wait_until("the name is known", || {
            registered(&kubelet).contains("dummy.com/fast")
        });
        let all = ["dummy.com/fast", "dummy.com/plain"].map(str::to_owned);
        assert_eq!(registered(&kubelet), all.into(), "{uptime:?}");
    }
}

/// The names stay while the program runs after a restart, and if it then reports nothing.
#[test]
fn names_of_devices_do_not_change_at_a_restart() {
    let Some(mut node) = slow_node(&SLOW, "NPU 0: fast 77\nplain 0 is fine\n") else {
        return;
    };
    node.write("host/opt/go", "");
    let kubelet = node.serve("dummy.com/fast");
    node.end_plugin(Signal::SIGTERM);
    drop(kubelet);
    for (is_ending, output) in [
        (false, "NPU 0: fast 77\n"),
        (true, ""),
        (true, "plain 1 is fine\n"),
    ] {
        node.write("host/opt/output", output);
        node.remove("log");
        if is_ending {
            node.write("host/opt/go", "")
        } else {
            node.remove("host/opt/go")
        }
        let kubelet = node.kubelet();
        node.start_plugin();
        let devices = kubelet.wait_devices(PATIENCE, "dummy.com/fast").unwrap();
        assert_eq!(ids(devices), ["npu-77"]);
        if is_ending {
            node.wait_log("printed nothing that the class knows");
        }
        let all = ["dummy.com/fast", "dummy.com/plain"].map(str::to_owned);
        wait_until("both are registered", || registered(&kubelet).len() > 1);
        assert_eq!(registered(&kubelet), all.into(), "{output:?}");
        node.end_plugin(Signal::SIGTERM);
    }
}

/// Devices with nodes, and programs for their facts and health. The programs wait for the file
/// `/opt/go`, but that of the device 1 fails at once.
const HANGING: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ path = "/dev/npu{index:number}" }]

[[facts]]
program = ["/opt/busybox", "sh", "-c", "until /opt/busybox test -e /opt/go; do /opt/busybox usleep 10000; done"]
lines = []

[device]
id = "npu-{index}"
health = [{ program = ["/opt/busybox", "sh", "-c", "until /opt/busybox test -e /opt/go; do /opt/busybox test {index} -eq 1 && exit 1; /opt/busybox usleep 10000; done"] }]
"#;

/// As with a GPU that is off the bus: the driver's programs hang for some devices, and fail for
/// another one. Nothing else makes the plugin scan.
#[test]
fn a_fault_is_reported_while_programs_of_other_devices_hang() {
    let Some(mut node) = slow_node(&[("dummy-npu", HANGING)], "") else {
        return;
    };
    node.configure("[class.dummy-npu]\nhealth_programs = true\n");
    for index in 0..3 {
        node.write(&format!("host/dev/npu{index}"), "");
    }
    let kubelet = node.kubelet();
    // The first list may have the fault already.
    node.start_plugin();
    let wait_for = |wanted: [(&str, &str); 3]| {
        wait_list(&kubelet, |devices| {
            let mut devices: Vec<(&str, &str)> = devices
                .iter()
                .map(|device| (&*device.id, &*device.health))
                .collect();
            devices.sort_unstable();
            devices == wanted
        });
    };
    wait_for([
        ("npu-0", "Healthy"),
        ("npu-1", "Unhealthy"),
        ("npu-2", "Healthy"),
    ]);
    // A device that is gone, too.
    node.remove("host/dev/npu0");
    wait_for([
        ("npu-0", "Unhealthy"),
        ("npu-1", "Unhealthy"),
        ("npu-2", "Healthy"),
    ]);
    node.write("host/opt/go", "");
}
