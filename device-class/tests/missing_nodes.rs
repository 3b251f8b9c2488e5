//! Nodes that a driver has not made yet: on a host without a display /dev/nvidia-uvm
//! appears when root uses CUDA for the first time, and CUDA fails without it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::{self, Presence};
use device_class::host::RecordedHost;
use device_class::request::Request;

/// What is wrong with the node, if the host has it so.
fn uvm(devices: &str, node: &str) -> Presence<()> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("classes/nvidia-gpu.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let name = "nvidia-gpu".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, &file, &text).unwrap();
    let host = format!(
        "file /proc/driver/nvidia/version\n\
         | NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Wed May  6 2026\n\
         file /proc/devices\n{devices}{node}"
    );
    let host = RecordedHost::parse(&host).unwrap();
    let env = vec!["NVIDIA_VISIBLE_DEVICES=all".to_owned()];
    let request = Request::of(&class, &env.into(), |_| None).unwrap().unwrap();
    let found = discover::look_up(&class, &Config::default(), &request.capabilities, &host);
    let nodes = found.unwrap().edits.nodes;
    let uvm = nodes
        .into_iter()
        .find(|node| node.host.ends_with("nvidia-uvm"));
    match uvm.unwrap().number {
        Presence::Found(_) => Presence::Found(()),
        Presence::Optional => Presence::Optional,
        Presence::Unfit(reason) => Presence::Unfit(reason),
    }
}

#[test]
fn a_node_is_required_while_its_driver_is_loaded() {
    let loaded = "| Character devices:\n| 195 nvidia\n| 511 nvidia-uvm\n|\n| Block devices:\n";
    let other = "| Character devices:\n| 195 nvidia\n| 511 nvidia-uvm-x\n|\n| Block devices:\n\
                 | 259 nvidia-uvm\n";
    let node = "char /dev/nvidia-uvm 511:0\n";
    assert_eq!(uvm(loaded, node), Presence::Found(()));
    assert_eq!(uvm(other, ""), Presence::Optional);
    let refused = "/dev/nvidia-uvm does not exist, although its driver nvidia-uvm is loaded; make it \
                   with `nvidia-modprobe -u -c 0`, at each boot";
    assert_eq!(uvm(loaded, ""), Presence::Unfit(refused.to_owned()));
}
