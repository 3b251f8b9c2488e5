//! The pages that the plugin serves over HTTP if its options request it.

use std::io::{Read, Write};
use std::net::TcpStream;

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
    let rest = log.split(says).nth(1).unwrap().lines().next();
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
