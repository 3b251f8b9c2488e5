//! What the plugin serves over HTTP, if asked to.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::node::{NPU, NPUS, Node, wait_until};

/// The arguments with which it serves, at any free port.
pub(crate) const SERVE: [&str; 2] = ["--http", "127.0.0.1:0"];

/// The address at which a plugin with [`SERVE`] serves.
pub(crate) fn address(node: &Node) -> String {
    logged(node, "serving metrics and health at http://")
}

/// What the log says after these words.
fn logged(node: &Node, says: &str) -> String {
    node.wait_log(says);
    let log = node.log();
    let rest = log.split(says).nth(1).unwrap().lines().next();
    rest.unwrap().to_owned()
}

/// A page, with its head.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nHost: node\r\n\r\n").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// What listens for the kubelet's probes has no metrics.
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

/// One number of `/metrics`, by its name and labels as they are written there.
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
    // The next one may have begun already.
    wait_until("two scans", || scans() >= before + 2);
}
