//! What containers get from the shipped classes on recorded hosts, where the vendors'
//! stacks have rules of their own. Each test names the source of the rule.

mod nvidia;

use device_class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;
use injection_plan::request::Request;

use crate::golden::{pair, plan_text};
use crate::planning::{self, asker, directory, shipped_class as class};

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(directory(path)).unwrap()
}

pub(crate) fn host(case: &str) -> RecordedHost {
    RecordedHost::parse(&read(&format!("testdata/{case}/host.txt"))).unwrap()
}

/// Returns the lines of the plan for a container with these variables, or the line with the
/// error.
pub(crate) fn plan(class: &DeviceClass, host: &RecordedHost, env: &[&str]) -> Vec<String> {
    let env: Vec<String> = env.iter().map(|entry| (*entry).to_owned()).collect();
    let request = Request::find(class, &env.into(), |_| None)
        .unwrap()
        .unwrap();
    let plan = planning::plan(class, &request, host, &asker());
    let text = plan.map_or_else(|error| format!("refused: {error}"), |plan| plan.to_string());
    // The notes of the plan name the parts that are missing on the host.
    let lines = text
        .lines()
        .filter(|line| !line.trim().starts_with("note "));
    lines.map(str::to_owned).collect()
}

pub(crate) fn contains_text(plan: &[String], text: &str) -> bool {
    plan.iter().any(|line| line.contains(text))
}

/// Returns the devices of a plan, named by their device nodes.
pub(crate) fn nodes<'p>(plan: &'p [String], prefix: &str) -> Vec<&'p str> {
    let nodes = plan.iter().filter(|line| line.trim().starts_with("node "));
    let words = nodes.flat_map(|line| line.split_whitespace());
    words.filter(|word| word.starts_with(prefix)).collect()
}

/// A recorded host, a request, and a program of the driver that some packages leave out.
const PROGRAMS: [(&str, &str, &str); 6] = [
    (
        "nvidia-gpu/h200",
        "NVIDIA_VISIBLE_DEVICES=all",
        "/usr/bin/nvidia-smi",
    ),
    (
        "gpu-share",
        "GPU_SHARE_VISIBLE_DEVICES=0",
        "/usr/bin/nvidia-smi",
    ),
    (
        "ascend-npu/910b",
        "ASCEND_VISIBLE_DEVICES=0",
        "/usr/local/bin/npu-smi",
    ),
    (
        "cambricon-mlu",
        "CAMBRICON_VISIBLE_DEVICES=0",
        "/usr/bin/cnmon",
    ),
    (
        "kunlunxin-xpu/p800",
        "CXPU_VISIBLE_DEVICES=all",
        "/usr/local/bin/xpu-smi",
    ),
    (
        "mthreads-gpu",
        "MTHREADS_VISIBLE_DEVICES=all",
        "/usr/bin/mthreads-gmi",
    ),
];

/// Debian has nvidia-smi in a package of its own, for example: the container starts, and a note says
/// what it lacks.
#[test]
fn a_program_that_the_host_lacks_is_a_note() {
    for (case, variable, program) in PROGRAMS {
        let class = class(case.split('/').next().unwrap());
        let text = read(&format!("testdata/{case}/host.txt"));
        let is_other = |line: &&str| !line.starts_with(&format!("file {program}"));
        let without: Vec<&str> = text.lines().filter(is_other).collect();
        let note = |text: &str| {
            let host = RecordedHost::parse(text).unwrap();
            let plan = plan_text(&class, &host, &[pair(variable)]);
            assert!(!plan.contains("refused"), "{case}: {plan}");
            let is_note = |line: &&str| line.contains("optional and not on this host: ");
            let notes = plan.lines().filter(is_note).collect::<Vec<_>>().join("\n");
            notes.contains(program)
        };
        assert!(!note(&text), "{case}");
        assert!(note(&without.join("\n")), "{case}");
    }
}

/// Xilinx's device plugin, `fpga.go`: cards are also sold under the PCI ids of Advantech,
/// Amazon and Arista. Sony's readers in the public list of USB ids: RC-S300 (0dc8, 0dc9,
/// 0d8f), RC-S320 (01bb), RC-S330, RC-S360 and RC-S370 (02e1, 0193), RC-S380 (06c1, 06c3).
#[test]
fn hardware_is_known_by_each_of_its_ids() {
    let xilinx = "0x10ee 0x13fe 0x1d0f 0x3475";
    let sony = "0dc8 0dc9 0d8f 01bb 02e1 0193 06c1 06c3";
    for (name, recorded, ids, devices) in [
        ("xilinx-fpga", "0x10ee", xilinx, 3),
        ("xilinx-card", "0x10ee", xilinx, 2),
        ("usb-reader", "0dc9", sony, 2),
    ] {
        let (class, text) = (class(name), read(&format!("testdata/{name}/host.txt")));
        let found = |id: &str| {
            let text = text.replace(&format!("| {recorded}\n"), &format!("| {id}\n"));
            discover::find_devices(&class, &RecordedHost::parse(&text).unwrap()).devices
        };
        for id in ids.split(' ') {
            assert_eq!(found(id).len(), devices, "{name} {id}");
        }
        assert!(found("ffff").len() < devices, "{name}");
    }
}
