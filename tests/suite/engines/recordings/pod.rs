//! A pod gets two of 64 devices: containerd, the plugin and the hook are real, and a test's
//! kubelet allocates. The devices are aliases of one of this kernel.

use super::super::cri_plugin::Node;
use super::terminal::Terminal;

#[test]
fn a_pod_has_two_of_64_devices() {
    let Some(node) = Node::new("the recording pod") else {
        return;
    };
    let machine = node.engine.machine();
    super::install_programs(machine);
    let socket = machine.path("socket").display().to_string();
    let mut terminal = Terminal::new(
        machine,
        vec![
            ("CONTAINERD_ADDRESS", socket),
            ("CONTAINERD_NAMESPACE", "k8s.io".to_owned()),
        ],
    );
    terminal.run("boathook list dummy-npu | head -n 4");
    terminal.run("boathook list dummy-npu | grep -c healthy");
    terminal
        .remark("The kubelet allocates two devices to the container of a pod, whose id is $POD.");
    let pod = node.start(0, "npu-3,npu-5").unwrap();
    terminal.set("POD", pod.id());
    terminal.run("boathook list --used");
    terminal.run("ctr task exec --exec-id 1 $POD sh -c 'ls /dev | grep npu'");
    let open = "for npu in 3 5; do head -c 1 /dev/dummy-npu$npu | wc -c; done";
    terminal.run(&format!("ctr task exec --exec-id 2 $POD sh -c '{open}'"));
    terminal.finish("pod", "A pod gets two of 64 devices");
}
