//! Tests of the registration with kubelets that start, end, refuse, hang and come back.

use std::fs;
use std::time::{Duration, Instant};

use harness::kubelet::{Event, RegisterFault};

use crate::node::{NPU, NPUS, Node, PATIENCE, wait_until};

fn node() -> Node {
    Node::new(&[("dummy-npu", NPUS)])
}

fn is_registered(event: &Event) -> bool {
    matches!(event, Event::Registered { resource, .. } if resource == NPU)
}

#[test]
fn a_kubelet_that_starts_later_is_found_at_once() {
    let mut node = node();
    node.start_plugin();
    node.wait_log("waiting for the kubelet to create");
    let since = Instant::now();
    let kubelet = node.kubelet();
    kubelet.wait(PATIENCE, is_registered).unwrap();
    // Less than 5 s means that an event started the registration: the plugin polls only every
    // 10 s.
    let took = since.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_deleted_socket_is_made_again_while_the_old_stream_goes_on() {
    let mut node = node();
    let kubelet = node.serve(NPU);
    node.remove("kubelet/device-plugins/boathook-dummy.com_npu.sock");
    // The next event is a registration with the new socket. The old stream was not broken
    // before.
    let next = |event: &Event| !matches!(event, Event::Devices { .. });
    assert!(is_registered(&kubelet.wait(PATIENCE, next).unwrap()));
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    assert_eq!(node.sockets(), ["boathook-dummy.com_npu.sock"]);
}

#[test]
fn a_directory_that_is_removed_and_created_again_is_used_again() {
    let mut node = node();
    let mut kubelet = node.serve(NPU);
    kubelet.stop();
    // The directory is renamed before it is removed, because the plugin may make its socket
    // again at any moment.
    fs::rename(node.path("kubelet"), node.path("old")).unwrap();
    fs::remove_dir_all(node.path("old")).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    kubelet.resume().unwrap();
    kubelet.wait(PATIENCE, is_registered).unwrap();
    assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 64);
}

#[test]
fn a_refusal_is_reported_once_and_tried_again() {
    let mut node = node();
    let refuse = RegisterFault::Refuse("not\ntoday".to_owned());
    let mut kubelet = node.faulty_kubelet(refuse);
    node.start_plugin();
    node.wait_log("the kubelet refused the registration: Unknown: not\\ntoday; trying again");
    for _ in 0..4 {
        let refused = |event: &Event| matches!(event, Event::Refused { .. });
        kubelet.wait(PATIENCE, refused).unwrap();
    }
    kubelet.set_register_fault(RegisterFault::None);
    kubelet.wait(PATIENCE, is_registered).unwrap();
    assert_eq!(node.log().matches("refused").count(), 1, "{}", node.log());
}

#[test]
fn a_registration_that_hangs_is_given_up_and_tried_again() {
    let mut node = node().with_arguments(&["--register-timeout=0.3"]);
    let mut kubelet = node.faulty_kubelet(RegisterFault::Hang);
    node.start_plugin();
    node.wait_log("the kubelet did not answer the registration in 0.3 s; trying again");
    kubelet.set_register_fault(RegisterFault::None);
    kubelet.wait(PATIENCE, is_registered).unwrap();
}

#[test]
fn a_socket_without_a_server_is_reported_and_waited_for() {
    let mut node = node();
    let mut kubelet = node.kubelet();
    kubelet.stop();
    node.start_plugin();
    node.wait_log("cannot reach the kubelet at ");
    kubelet.resume().unwrap();
    kubelet.wait(PATIENCE, is_registered).unwrap();
}

#[test]
fn the_newest_of_two_plugins_serves_and_the_other_waits() {
    let mut node = node();
    let kubelet = node.serve(NPU);
    let mut second = node.second_plugin();
    kubelet.wait(PATIENCE, is_registered).unwrap();
    // There are no further registrations. They would not end if both plugins made the socket
    // again and again.
    let more = kubelet.wait(Duration::from_millis(500), is_registered);
    assert!(more.is_err(), "{more:?}");
    // The second plugin is killed and leaves its socket. The first plugin takes over.
    second.kill();
    kubelet.wait(PATIENCE, is_registered).unwrap();
}

#[test]
fn sockets_of_a_killed_process_are_removed_at_the_next_start() {
    let mut node = node();
    let kubelet = node.kubelet();
    let stale = node.path("kubelet/device-plugins/boathook-gone.example_x.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    node.start_plugin();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    wait_until("the stale socket is removed", || !stale.exists());
}

#[test]
fn the_plugin_watcher_finds_the_plugin_by_itself_again_and_again() {
    let mut node = node().with_arguments(&["--register=watcher"]);
    let mut kubelet = node.kubelet();
    node.start_plugin();
    for _ in 0..3 {
        assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 64);
        kubelet.resume().unwrap();
    }
    node.wait_log("registered by the plugin watcher");
    assert_eq!(node.sockets(), [""; 0], "all are in plugins_registry");
    let socket = node.path("kubelet/plugins_registry/boathook-dummy.com_npu.sock");
    fs::remove_file(&socket).unwrap();
    wait_until("the socket is made again", || socket.exists());
    kubelet.wait(PATIENCE, is_registered).unwrap();
    node.end_plugin(nix::sys::signal::Signal::SIGTERM);
    assert!(!socket.exists());
}
