//! Hardware whose maker chose texts that name it, such as the name or serial number of a USB
//! device, which a class takes as its id.

use std::fs;
use std::process::Command;

use harness::binaries;
use harness::bundle::Bundle;
use harness::captured::Captured;
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;
use serde_json::Value;

use super::outcome::Outcome;
use crate::lab::{Lab, STAGE, granting, on_each_cgroup_version};

on_each_cgroup_version!(a_device_with_the_name_of_several_is_one);

const CLASS: &str = "version = 1\nresource = 'example.com/card'\n\
    request = { env = 'CARDS' }\n\
    discover = [{ path = '/dev/dummy-npu{index:number}', \
    attributes = [{ name = 'name', file = '/sys/class/card/{index}' }] }]\n\
    [device]\nid = '{name}'\nindex = '{index}'\nnodes = ['/dev/dummy-npu{index}']\n";

/// The names of the devices, in the order of their indices.
const NAMES: [&str; DemoHost::NODES] = ["all", "0-7", "none", "VOID", "1", "7-", "a,b", "g"];

/// A device that the plugin allocates is named by its id, in the arguments of the hook.
fn a_device_with_the_name_of_several_is_one(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    host.add_class("cards", CLASS).unwrap();
    let directory = host.root().join("sys/class/card");
    fs::create_dir_all(&directory).unwrap();
    for (index, name) in NAMES.iter().enumerate() {
        fs::write(directory.join(index.to_string()), name).unwrap();
    }
    let mut list = Command::new(binaries::program("boathook").unwrap());
    list.args(["list", "--all", "--json", "--config"])
        .arg(host.config_file());
    let listed = Captured::run(&mut list).unwrap().success().unwrap().stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let devices = listed["devices"].as_array().unwrap().iter();
    let cards: Vec<&Value> = devices.filter(|it| it["class"] == "cards").collect();
    assert_eq!(cards.len(), NAMES.len());
    for (index, card) in cards.into_iter().enumerate() {
        let id = card["id"].as_str().unwrap();
        let hook = granting(&host, &format!("cards={id}"));
        let builder = Bundle::builder(Rootfs::Busybox).hook(STAGE, hook);
        let devices = Outcome::run(lab, builder).devices();
        assert_eq!(devices, Some(vec![index]), "{id}");
    }
}
