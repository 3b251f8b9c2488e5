//! Tests of `boathook-plugin replace`, by which a reload of the service replaces the instance.

use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;

use harness::kubelet::{Allocation, FakeKubelet};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::node::{CARDS, NPU, NPUS, Node, PATIENCE, wait_until};

/// The reason that a new instance logs if it cannot serve.
const REASON: &str = "the earlier instance cannot end yet: no kubelet has a ListAndWatch stream for cards.example/big";

/// Starts an instance that serves, and lets no other one have a socket for a resource that is found
/// after that.
fn start_before_a_faulty_version(node: &mut Node) -> (FakeKubelet, UnixDatagram) {
    let kubelet = node.serve(NPU);
    let file = "kubelet/device-plugins/boathook-cards.example_big.sock";
    node.write(file, "no socket");
    node.add_card(0, "big", 0);
    node.write("classes/cards.toml", CARDS);
    let service_manager = UnixDatagram::bind(node.path("notify")).unwrap();
    service_manager.set_nonblocking(true).unwrap();
    (kubelet, service_manager)
}

/// The service has the earlier instance only, and the kubelet has its devices.
fn assert_earlier_instance_serves(
    node: &Node,
    kubelet: &FakeKubelet,
    service_manager: &UnixDatagram,
) {
    wait_until("only the earlier instance is left", || {
        node.list_instances() == [node.pid()]
    });
    let message = service_manager.recv(&mut [0; 64]);
    assert!(message.is_err(), "the main process is the earlier instance");
    wait_until("a pod is admitted", || {
        kubelet.allocate(Allocation::new(NPU, 1)).is_ok()
    });
}

#[test]
fn a_new_instance_that_does_not_serve_ends_and_the_earlier_one_goes_on() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let (kubelet, service_manager) = start_before_a_faulty_version(&mut node);
    let notify_socket = node.path("notify");
    let mut replacement = node.replace_plugin(&notify_socket, &["--ready-timeout=3"]);
    node.wait_log(REASON);
    assert!(!replacement.wait().success());
    node.wait_log("run `systemctl restart boathook-plugin.service`");
    assert_earlier_instance_serves(&node, &kubelet, &service_manager);
}

#[test]
fn a_new_instance_ends_if_its_replacement_is_killed() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let (kubelet, service_manager) = start_before_a_faulty_version(&mut node);
    let mut replacement = node.replace_plugin(&node.path("notify"), &[]);
    node.wait_log(REASON);
    assert_eq!(node.list_instances().len(), 2);
    replacement.end(Signal::SIGKILL);
    assert_earlier_instance_serves(&node, &kubelet, &service_manager);
}

#[test]
fn the_new_instance_goes_on_when_the_replacement_has_ended() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    let service_manager = UnixDatagram::bind(node.path("notify")).unwrap();
    let mut replacement = node.replace_plugin(&node.path("notify"), &[]);
    // The earlier instance is a child of this test.
    assert!(node.take_plugin().wait().success());
    assert!(replacement.wait().success());
    let mut message = [0; 64];
    let length = service_manager.recv(&mut message).unwrap();
    let pid = str::from_utf8(&message[..length]).unwrap();
    let pid = pid.trim().strip_prefix("MAINPID=").unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    kubelet.allocate(Allocation::new(NPU, 1)).unwrap();
    let instances = node.list_instances();
    assert_eq!(instances.len(), 1);
    assert_eq!(instances[0].to_string(), pid);
    let pid = Pid::from_raw(pid.parse().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    wait_until("no instance is left", || node.list_instances().is_empty());
}

/// `/dev/zero` lets the instance go on, as a replacement does that has ended.
#[test]
fn a_new_instance_says_which_address_another_program_has() {
    let other_program = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other_program.local_addr().unwrap();
    let mut node = Node::new(&[("dummy-npu", NPUS)])
        .with_arguments(&["--report-ready", &format!("--http={address}")])
        .within(&["/bin/sh", "-c", r#"exec "$0" "$@" </dev/zero"#]);
    let _kubelet = node.serve(NPU);
    node.wait_log(&format!("--http {address}: cannot listen"));
    drop(other_program);
    node.wait_log(&format!("serving metrics and health at http://{address}"));
}
