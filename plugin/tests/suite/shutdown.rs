//! Tests of the end of the plugin's process.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use harness::kubelet::{Event, RegisterFault};
use nix::sys::signal::Signal;

use crate::listeners::Listeners;
use crate::node::{CARDS, NPU, NPUS, Node, PATIENCE, wait_until};

/// Ends the plugin with SIGTERM. It must end with status 0 within 10 s and leave no socket.
fn end(node: &mut Node) {
    end_by(node, Signal::SIGTERM);
}

fn end_by(node: &mut Node, signal: Signal) {
    let (status, took) = node.end_plugin(signal);
    assert_eq!(status.code(), Some(0), "{status}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(node.sockets(), [""; 0]);
}

#[test]
fn a_signal_ends_the_process_soon_and_leaves_no_socket() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT] {
        let mut node = Node::new(&[("dummy-npu", NPUS), ("cards", CARDS)]);
        node.add_card(0, "mark-1", -1);
        let kubelet = node.serve(NPU);
        end_by(&mut node, signal);
        let broken = |event: &Event| matches!(event, Event::StreamBroken { .. });
        kubelet.wait(PATIENCE, broken).unwrap();
    }
}

#[test]
fn it_ends_as_well_while_there_is_no_kubelet() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    node.start_plugin();
    node.wait_log("waiting for the kubelet");
    end(&mut node);
}

#[test]
fn it_ends_as_well_with_many_streams_open() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let _kubelet = node.serve(NPU);
    let mut listeners = Listeners::open(&node.socket(NPU), 50, 1);
    assert_eq!(listeners.next(), [Some(64); 50]);
    end(&mut node);
    assert_eq!(listeners.next(), [None; 50]);
}

#[test]
fn it_ends_even_if_its_output_is_not_read() {
    let many = format!("{NPUS}sharing = {{ replicas = 400 }}\n");
    let mut node = Node::new(&[("dummy-npu", &many)]);
    let _kubelet = node.serve(NPU);
    let _deaf = Listeners::open_narrow(&node.socket(NPU), 50);
    end(&mut node);
}

#[test]
fn it_ends_as_well_while_it_registers() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.faulty_kubelet(RegisterFault::Hang);
    node.start_plugin();
    let asked = |event: &Event| matches!(event, Event::Unanswered { .. });
    kubelet.wait(PATIENCE, asked).unwrap();
    end(&mut node);
}

#[test]
fn it_ends_as_well_while_the_kubelet_takes_no_connection() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    std::fs::create_dir_all(node.path("kubelet/device-plugins")).unwrap();
    // The kernel completes connections to this socket, but nobody accepts them.
    let _stuck = UnixListener::bind(node.path("kubelet/device-plugins/kubelet.sock")).unwrap();
    node.start_plugin();
    let socket = node.socket(NPU);
    wait_until("it serves, and registers then", || socket.exists());
    end(&mut node);
}
