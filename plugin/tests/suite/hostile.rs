//! Tests with clients that do not behave like a kubelet, and with a process that has no free
//! descriptors.

use std::io::Write;
use std::os::unix::net::UnixStream;

use harness::kubelet::Allocation;

use crate::footprint::Footprint;
use crate::listeners::Listeners;
use crate::node::{NPU, NPUS, Node, PATIENCE};
use crate::pages;

/// The preface with which each HTTP/2 connection begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[test]
fn malformed_or_missing_messages_at_the_socket_do_not_affect_other_clients() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&pages::SERVE);
    let kubelet = node.serve(NPU);
    let address = pages::address(&node);
    let before = Footprint::at_rest(&node, &address);
    let frame_of_16_mib = [PREFACE, b"\xff\xff\xff\x00\x00\x00\x00\x00\x01"].concat();
    let window_of_0 = [
        PREFACE,
        b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00",
    ]
    .concat();
    let words: [&[u8]; 7] = [
        b"",
        b"\x00",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0xff; 100_000],
        &PREFACE[..10],
        &frame_of_16_mib,
        &window_of_0,
    ];
    let mut connections = Vec::new();
    for said in words.iter().cycle().take(210) {
        let mut connection = UnixStream::connect(node.socket(NPU)).unwrap();
        // The server may close the connection before all bytes are written.
        let _ = connection.write_all(said);
        connections.push(connection);
    }
    kubelet.allocate(Allocation::new(NPU, 2)).unwrap();
    let mut listener = Listeners::open(&node.socket(NPU), 1, 1);
    assert_eq!(listener.next(), [Some(64)]);
    drop((connections, listener));
    before.wait_until_again(&node, &address);
}

#[test]
fn without_a_free_descriptor_what_is_known_stays_until_there_are_some() {
    let few = ["sh", "-c", "ulimit -n 40 && exec \"$0\" \"$@\""];
    let mut node = Node::new(&[("dummy-npu", NPUS)])
        .within(&few)
        .with_arguments(&pages::SERVE);
    let mut kubelet = node.serve(NPU);
    // After this, the plugin has opened all descriptors for the directories that it watches.
    Footprint::at_rest(&node, &pages::address(&node));
    let connect = |_| UnixStream::connect(node.socket(NPU)).unwrap();
    let connections: Vec<UnixStream> = (0..60).map(connect).collect();
    node.wait_log("cannot accept a connection: ");
    // Without a free descriptor, neither the host nor the classes can be read. This is certain
    // after the first failed scan: before it, a running scan may release a descriptor.
    node.wait_log("keeping previous scan results: ");
    node.write("classes/dummy-npu.toml", &NPUS.replace("64", "63"));
    node.wait_log("cannot read the classes, keeping previous ones: ");
    kubelet.allocate(Allocation::new(NPU, 2)).unwrap();
    drop(connections);
    for _ in ["as soon as they can be", "by the next kubelet"] {
        let devices = kubelet.wait_devices(PATIENCE, NPU).unwrap();
        assert_eq!(devices.len(), 63);
        assert!(devices.iter().all(|device| device.health == "Healthy"));
        kubelet.resume().unwrap();
    }
}
