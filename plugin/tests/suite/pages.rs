//! The pages that the plugin serves over HTTP if its options request it.

use std::io::{Read, Write};
use std::net::TcpStream;

use harness::kubelet::Allocation;

use crate::node::{NPU, NPUS, Node, wait_until};

/// The arguments with which the plugin serves its pages, at any free port.
pub(crate) const SERVE: [&str; 2] = ["--http", "127.0.0.1:0"];

/// Returns the address at which a plugin with the arguments [`SERVE`] serves its pages.
pub(crate) fn address(node: &Node) -> String {
    logged(node, "serving metrics and health at http://")
}

/// Waits for the text `says` in the log and returns the rest of that line.
fn logged(node: &Node, says: &str) -> String {
    node.wait_log(says);
    let log = node.log();
    // The plugin may have been started again, with another port.
    let rest = log.rsplit(says).next().unwrap().lines().next();
    rest.unwrap().to_owned()
}

/// Requests a page and returns the whole answer, with status and headers.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// The listener for the kubelet's probes does not serve the metrics.
#[test]
fn probes_are_served_without_the_metrics() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&["--probes", "[::]:0"]);
    let _kubelet = node.serve(NPU);
    let address = logged(&node, "serving health at http://");
    let address = format!("127.0.0.1:{}", address.rsplit(':').next().unwrap());
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    wait_until("readiness", || {
        get(&address, "/readyz").starts_with("HTTP/1.1 200")
    });
    assert!(get(&address, "/metrics").starts_with("HTTP/1.1 404"));
}

/// The kubelet's checkpoint keeps a pod that has ended, and knows pods by their uids.
#[test]
fn the_metrics_have_the_pods_that_have_devices_now_by_their_names() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&SERVE);
    let mut kubelet = node.serve(NPU);
    let address = address(&node);
    for (pod, devices) in [("a", &["npu-1", "npu-2"][..]), ("b", &["npu-3"])] {
        let allocation = Allocation {
            pod_uid: pod.to_owned(),
            ..Allocation::of_ids(NPU, devices)
        };
        kubelet.allocate(allocation).unwrap();
    }
    let allocated = |labels: &str| {
        let page = get(&address, "/metrics");
        let name = format!("boathook_allocated_devices{{resource=\"{NPU}\",{labels}}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&name));
        value.map(ToOwned::to_owned)
    };
    let [a, b] =
        ["a", "b"].map(|pod| format!("namespace=\"default\",pod=\"pod-{pod}\",container=\"main\""));
    assert_eq!(allocated(&a).as_deref(), Some("2"));
    kubelet.end_pod("a");
    wait_until("the end of the pod", || allocated(&a).is_none());
    assert_eq!(allocated(&b).as_deref(), Some("1"));
    // Without an answer of the kubelet its checkpoint counts.
    kubelet.stop();
    let by_record = "pod_uid=\"b\",container=\"main\"";
    assert_eq!(allocated(by_record).as_deref(), Some("1"));
    assert_eq!(allocated(&b), None);
}

/// Returns one number of `/metrics`. `name` is the name with its labels, as the page has them.
pub(crate) fn metric(address: &str, name: &str) -> usize {
    let page = get(address, "/metrics");
    let mut values = page.lines().filter_map(|line| line.strip_prefix(name));
    let value = values.find_map(|rest| rest.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {name} in {page}"))
        .parse()
        .unwrap()
}

/// Waits until a device scan that began after this call has ended.
pub(crate) fn wait_for_scan(address: &str) {
    let scans = || metric(address, "boathook_scan_duration_seconds_count");
    let before = scans();
    // A scan may already be running, so one that began after this call is the second to end.
    wait_until("two scans", || scans() >= before + 2);
}
