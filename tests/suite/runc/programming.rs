//! FPGAs that are programmed before a container starts, by a program that plays
//! `fpgaconf` on a tree that plays sysfs. It does its work, or it fails, hangs
//! or is: then no container starts, and nothing stays behind.

use std::fs;

use harness::binaries;
use harness::bundle::Bundle;
use harness::cgroup_parent::CgroupParent;
use harness::probe::{Access, Questions};
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, asking, on_each_cgroup_version, requesting};
use crate::live::refused::{claim, given_by_claim};
use crate::said::assert_says;

on_each_cgroup_version!(
    every_region_gets_its_function,
    a_region_of_a_claim_gets_its_function,
    a_programmer_that_does_not_do_it_stops_the_container
);

const CLASS: &str = "intel-fpga-region";

/// Two regions, each of two ports: the ports' numbers, their buses, the
/// interface ids of their regions, and their functions.
const PORTS: [(u32, &str, &str, &str); 4] = [
    (0, "5e", ARRIA, NLB0),
    (1, "5f", ARRIA, NONE),
    (2, "ae", OTHER, NONE),
    (10, "af", OTHER, NLB3),
];

const ARRIA: &str = "ce48969398f05f33946d560708be108a";
const OTHER: &str = "9926ab6d6c925a68aabca7d84c545738";
const NLB0: &str = "d8424dc4a4a3c413f89e433683f9040b";
const NLB3: &str = "f7df405cbd7acf7222f144b0b93acd18";
const NONE: &str = "ffffffffffffffffffffffffffffffff";

/// Notes each call, finds the port by the bus in `-B 0xBB`, and writes the name
/// of the bitstream into it.
const HONEST: &str = "echo \"$7\" >> $HOST/calls\n\
    for file in $HOST/sys/devices/pci0000:00/0000:${2#0x}:*/fpga/*/*/afu_id; do\n\
    basename \"$7\" .gbs > \"$file\"; done";

struct Machine {
    host: RecordedHost,
}

impl Machine {
    /// The programmer gets a second instead of a minute.
    fn new(script: &str) -> Self {
        let recording: String = PORTS
            .iter()
            .map(|(port, bus, interface, function)| {
                let device = format!("0000:00/0000:{bus}:00.0/fpga/intel-fpga-dev.{port}");
                format!(
                    "link /sys/class/fpga/intel-fpga-dev.{port} ../../devices/pci{device}\n\
                     file /sys/devices/pci{device}/intel-fpga-port.{port}/afu_id\n| {function}\n\
                     file /sys/devices/pci{device}/intel-fpga-fme.{port}/pr/interface_id\n\
                     | {interface}\n\
                     char /dev/intel-fpga-port.{port} 240:{port}\n"
                )
            })
            .collect();
        let host = RecordedHost::bare(&recording).unwrap();
        let class = binaries::source_tree().join(format!("device-class/classes/{CLASS}.toml"));
        let class = fs::read_to_string(class).unwrap();
        let quick = class.replace("timeout = 60", "timeout = 1");
        assert_ne!(quick, class);
        host.add_class(CLASS, &quick).unwrap();
        let script = format!("#!/bin/sh\nHOST={}\n{script}\n", host.root().display());
        host.add_program("/usr/bin/fpgaconf", &script).unwrap();
        Machine { host }
    }

    /// A container with these ports, and its requests for them: pairs of a
    /// region and a function.
    fn container(&self, ports: &str, wanted: &[(&str, &str)], command: Vec<String>) -> Bundle {
        let variable = "INTEL_FPGA_REGION_VISIBLE_DEVICES";
        let builder = requesting(&self.host, Rootfs::Busybox, variable, ports);
        let mut builder = builder.args(command);
        for (number, (region, function)) in wanted.iter().enumerate() {
            builder = builder
                .env(&format!("FPGA_REGION_{number}"), region)
                .env(&format!("FPGA_AFU_{number}"), function);
        }
        builder.build().unwrap()
    }

    /// The present functions of the ports.
    fn functions(&self) -> Vec<String> {
        let read = |(port, bus, ..): &(u32, &str, &str, &str)| {
            let device = format!("0000:{bus}:00.0/fpga/intel-fpga-dev.{port}");
            let file = format!("sys/devices/pci0000:00/{device}/intel-fpga-port.{port}/afu_id");
            let text = fs::read_to_string(self.host.root().join(file)).unwrap();
            text.trim().to_owned()
        };
        PORTS.iter().map(read).collect()
    }

    /// Returns the number of calls of the programmer.
    fn calls(&self) -> usize {
        let calls = fs::read_to_string(self.host.root().join("calls"));
        calls.unwrap_or_default().lines().count()
    }

    /// The processes that were started from this host's programs.
    fn processes(&self) -> Vec<String> {
        let root = self.host.root().display().to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let commands = all.filter_map(|process| {
            let command = fs::read(process.path().join("cmdline")).ok()?;
            Some(String::from_utf8_lossy(&command).replace('\0', " "))
        });
        commands
            .filter(|command| command.contains(&root) && command.contains("fpgaconf"))
            .collect()
    }
}

/// Two regions that are alike, functions that are there already, and more than
/// one function for a region, all in one container; then the same once more.
fn every_region_gets_its_function(lab: &Lab) {
    let machine = Machine::new(HONEST);
    let wanted = [(ARRIA, NLB3), (ARRIA, NLB0), (OTHER, NLB0), (OTHER, NLB3)];
    for calls in [2, 2] {
        let nodes = PORTS.map(|(port, ..)| format!("/dev/intel-fpga-port.{port}"));
        let questions = nodes.iter().fold(Questions::new(), Questions::path);
        let bundle = machine.container("all", &wanted, asking(&questions));
        let report = lab.probe(&bundle);
        for node in &nodes {
            assert_eq!(report.path(node).unwrap().read, Access::Granted, "{node}");
        }
        assert_eq!(machine.functions(), [NLB0, NLB3, NLB0, NLB3]);
        assert_eq!(machine.calls(), calls);
    }
}

/// The pod has the port by a claim, and requests the function as others do.
fn a_region_of_a_claim_gets_its_function(lab: &Lab) {
    let machine = Machine::new(HONEST);
    let (claims, pod) = claim(&machine.host, "");
    let parent = CgroupParent::new();
    let port = "intel-fpga-port.1";
    let node = format!("/dev/{port}");
    let questions = Questions::new().path(node.clone());
    let container = || {
        let builder = Bundle::builder(Rootfs::Busybox)
            .args(asking(&questions))
            .env("FPGA_REGION_0", ARRIA)
            .env("FPGA_AFU_0", NLB3);
        let device = format!("{CLASS}={port}");
        let builder = given_by_claim(builder, &device, &machine.host, &pod, &parent);
        builder.build().unwrap()
    };
    let report = lab.probe(&container());
    assert_eq!(report.path(&node).unwrap().read, Access::Granted);
    assert_eq!(machine.functions(), [NLB0, NLB3, NONE, NLB3]);
    assert_eq!(machine.calls(), 1);
    // For another claim of the pod nothing is programmed.
    let other = fs::read_to_string(&claims).unwrap().replace("u-1", "u-2");
    fs::write(claims, other).unwrap();
    assert!(!lab.runc.run(&container()).unwrap().status.success());
    assert_eq!(machine.calls(), 1);
}

fn a_programmer_that_does_not_do_it_stops_the_container(lab: &Lab) {
    for (script, reason) in [
        (
            "echo bad bitstream >&2; exit 3",
            "failed (exit status: 3): bad bitstream",
        ),
        ("sleep 1000", "took longer than 1 seconds and was killed"),
        ("true", "exited 0, but"),
    ] {
        let machine = Machine::new(script);
        let before = machine.functions();
        let command = ["touch", "/ran"].map(str::to_owned).to_vec();
        let bundle = machine.container("intel-fpga-port.1", &[(ARRIA, NLB3)], command);
        let ran = lab.runc.run(&bundle).unwrap();
        assert!(!ran.status.success(), "{script}");
        let log = machine.host.log();
        for said in [&ran.stderr, &log] {
            let words = [
                bundle.id(),
                "intel-fpga-port.1",
                "/usr/bin/fpgaconf",
                reason,
            ];
            assert_says(said, &words);
        }
        assert!(!bundle.in_rootfs("/ran").exists(), "{script}");
        assert_eq!(machine.functions(), before);
        assert_eq!(machine.processes(), Vec::<String>::new());
        lab.assert_nothing_left(&bundle);
    }
}
