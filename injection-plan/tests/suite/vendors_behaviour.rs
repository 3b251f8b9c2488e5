//! What containers get from the shipped classes on recorded hosts, where the vendors'
//! stacks have rules of their own. Each test names the source of the rule.

mod nvidia;

use device_class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;
use injection_plan::request::Request;

use crate::planning::{self, asker, directory, shipped_class as class};

pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(directory(path)).unwrap()
}

pub(crate) fn host(case: &str) -> RecordedHost {
    RecordedHost::parse(&read(&format!("testdata/{case}/host.txt"))).unwrap()
}

/// The lines of the plan for a container with these variables, or the one with the error.
pub(crate) fn plan(class: &DeviceClass, host: &RecordedHost, env: &[&str]) -> Vec<String> {
    let env: Vec<String> = env.iter().map(|entry| (*entry).to_owned()).collect();
    let request = Request::of(class, &env.into(), |_| None).unwrap().unwrap();
    let plan = planning::plan(class, &request, host, &asker());
    let text = plan.map_or_else(|error| format!("refused: {error}"), |plan| plan.to_string());
    // What is missing on the host is named in notes.
    let lines = text
        .lines()
        .filter(|line| !line.trim().starts_with("note "));
    lines.map(str::to_owned).collect()
}

pub(crate) fn has(plan: &[String], text: &str) -> bool {
    plan.iter().any(|line| line.contains(text))
}

/// The devices of a plan by the nodes that they bring.
pub(crate) fn nodes<'p>(plan: &'p [String], prefix: &str) -> Vec<&'p str> {
    let nodes = plan.iter().filter(|line| line.trim().starts_with("node "));
    let words = nodes.flat_map(|line| line.split_whitespace());
    words.filter(|word| word.starts_with(prefix)).collect()
}

/// Ascend's device plugin, `constants.go`: parts are resources by their template
/// (`Ascend910-2c`), and an NPU with parts is none.
#[test]
fn a_part_of_an_npu_is_no_npu() {
    let (class, host) = (class("ascend-npu"), host("ascend-npu/910b"));
    let found = discover::devices(&class, &host).devices;
    let resources: Vec<(&str, &str)> = found
        .iter()
        .map(|npu| (npu.id.as_str(), npu.resource.as_str()))
        .collect();
    assert_eq!(
        resources,
        [
            ("Ascend910-0", "huawei.com/Ascend910"),
            ("Ascend910-116", "huawei.com/Ascend910-2c"),
            ("Ascend910-117", "huawei.com/Ascend910-vnpu"),
            ("Ascend910-10", "huawei.com/Ascend910"),
        ]
    );
    let divided = plan(&class, &host, &["ASCEND_VISIBLE_DEVICES=1"]);
    assert!(has(&divided, "has no device `1`"), "{divided:#?}");
}

/// Ascend Docker Runtime's manual, "dynamic virtualization": with the variable, the runtime
/// makes a virtual NPU of this template for the container, which does not get the NPU.
#[test]
fn a_container_that_wants_a_part_of_an_npu_does_not_get_all_of_it() {
    let class = class("ascend-npu");
    let request = |variables: &[&str]| {
        let env: Vec<String> = variables.iter().map(|entry| (*entry).to_owned()).collect();
        Request::of(&class, &env.into(), |_| None)
    };
    let refused = request(&["ASCEND_VISIBLE_DEVICES=0", "ASCEND_VNPU_SPECS=vir04"]);
    let refused = format!("{:#}", anyhow::Error::new(refused.unwrap_err()));
    for part in [
        "ASCEND_VNPU_SPECS is set, which is not supported",
        "create-vnpu",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(
        request(&["ASCEND_VISIBLE_DEVICES=0", "ASCEND_VNPU_SPECS="])
            .unwrap()
            .is_some()
    );
    // An image that sets it requests nothing.
    assert_eq!(request(&["ASCEND_VNPU_SPECS=vir04"]), Ok(None));
    let void = request(&["ASCEND_VISIBLE_DEVICES=void", "ASCEND_VNPU_SPECS=vir04"]);
    assert_eq!(void, Ok(None));
}

/// Forms that the vendors' programs print: `CanonizeID` of Intel's plugin drops dashes
/// and case; `amd-ctk gpu list` prints upper case (container-toolkit, `list.go`), and its
/// runtime folds it; Ascend's runtime names a chip by its generation; nvidia-smi prints
/// eight digits of the PCI domain.
#[test]
fn devices_are_named_as_the_vendors_programs_print_them() {
    for (name, case, env, node) in [
        (
            "intel-fpga-region",
            "intel-fpga-region/opae",
            &[
                "INTEL_FPGA_REGION_VISIBLE_DEVICES=intel-fpga-port.0",
                "FPGA_REGION_1=CE489693-98F0-5F33-946D-560708BE108A",
                "FPGA_AFU_1=D8424DC4-A4A3-C413-F89E-433683F9040B",
            ][..],
            "/dev/intel-fpga-port.0",
        ),
        (
            "amd-gpu",
            "amd-gpu/mixed",
            &["AMD_VISIBLE_DEVICES=0x5C4A1F00DEADBEEF"],
            "/dev/dri/renderD",
        ),
        (
            "ascend-npu",
            "ascend-npu/310b",
            &["ASCEND_VISIBLE_DEVICES=Ascend310B-0"],
            "/dev/davinci0",
        ),
        (
            "nvidia-gpu",
            "nvidia-gpu/h200",
            &["NVIDIA_VISIBLE_DEVICES=00000000:CA:00.0"],
            "/dev/nvidia0",
        ),
    ] {
        let plan = plan(&class(name), &host(case), env);
        assert_eq!(nodes(&plan, node).len(), 1, "{env:?}: {plan:#?}");
    }
}

/// A Coral accelerator on USB is another device once its firmware is loaded (google-coral/
/// edgetpu, issue 536): before that no container gets it.
#[test]
fn a_usb_accelerator_is_ready_when_its_firmware_is_loaded() {
    let found = discover::devices(&class("coral-edgetpu"), &host("coral-edgetpu/usb")).devices;
    let health: Vec<(&str, bool)> = found
        .iter()
        .map(|tpu| (tpu.id.as_str(), tpu.health.is_healthy()))
        .collect();
    assert_eq!(health, [("usb-2-1", true), ("usb-2-10", false)]);
}

/// Xilinx's device plugin, `fpga.go`: cards are also sold under the PCI ids of Advantech,
/// Amazon and Arista. Sony's readers in the public list of USB ids: RC-S300 (0dc8, 0dc9,
/// 0d8f), RC-S320 (01bb), RC-S330, RC-S360 and RC-S370 (02e1, 0193), RC-S380 (06c1, 06c3).
#[test]
fn hardware_is_known_by_each_of_its_ids() {
    for (name, recorded, ids, devices) in [
        (
            "xilinx-fpga",
            "0x10ee",
            &["0x10ee", "0x13fe", "0x1d0f", "0x3475"][..],
            3,
        ),
        (
            "xilinx-card",
            "0x10ee",
            &["0x10ee", "0x13fe", "0x1d0f", "0x3475"],
            2,
        ),
        (
            "usb-reader",
            "0dc9",
            &[
                "0dc8", "0dc9", "0d8f", "01bb", "02e1", "0193", "06c1", "06c3",
            ],
            2,
        ),
    ] {
        let (class, text) = (class(name), read(&format!("testdata/{name}/host.txt")));
        let found = |id: &str| {
            let text = text.replace(&format!("| {recorded}\n"), &format!("| {id}\n"));
            discover::devices(&class, &RecordedHost::parse(&text).unwrap()).devices
        };
        for id in ids {
            assert_eq!(found(id).len(), devices, "{name} {id}");
        }
        assert!(found("ffff").len() < devices, "{name}");
    }
}

/// ROCm's container toolkit, internal/oci: an index that does not exist is left out with a
/// warning; and amd-ctk prints a UUID without leading zeros.
#[test]
fn an_index_that_does_not_exist_is_ignored_where_the_vendor_does() {
    let class = class("amd-gpu");
    let text =
        read("testdata/amd-gpu/mixed/host.txt").replace("5c4a1f00deadbeef", "0c4a1f00deadbeef");
    let id = u64::from_str_radix("5c4a1f00deadbeef", 16)
        .unwrap()
        .to_string();
    let short = u64::from_str_radix("0c4a1f00deadbeef", 16)
        .unwrap()
        .to_string();
    let host = RecordedHost::parse(&text.replace(&id, &short)).unwrap();
    let of = |value: &str| plan(&class, &host, &[&format!("AMD_VISIBLE_DEVICES={value}")]);
    let ignored = of("0,7");
    assert_eq!(nodes(&ignored, "/dev/dri/renderD").len(), 1, "{ignored:#?}");
    assert!(
        has(&ignored, "has no device 7, which is ignored"),
        "{ignored:#?}"
    );
    assert_eq!(nodes(&of("0xC4A1F00DEADBEEF"), "/dev/dri/renderD").len(), 1);
    assert_eq!(nodes(&of("9-12"), "/dev/dri/renderD").len(), 0);
}

/// Ascend's runtime of 2026: unknown options are an error, lists have globs, and that of UB is
/// for every container.
#[test]
fn lists_and_options_of_an_npu_are_those_of_the_vendor() {
    let class = class("ascend-npu");
    let text = read("testdata/ascend-npu/910b/host.txt")
        + "file /etc/ascend-docker-runtime.d/ub_driver.list\n| /usr/lib64/liburma*.so\n\
           file /usr/lib64/liburma.so\nfile /usr/lib64/liburma_ubagg.so\n\
           char /dev/ummu/ummu0 254:0\nfile /etc/hccl_rootinfo.json\n";
    let host = RecordedHost::parse(&text).unwrap();
    let of = |options: &str| {
        let options = format!("ASCEND_RUNTIME_OPTIONS={options}");
        let env: Vec<String> = vec!["ASCEND_VISIBLE_DEVICES=0".into(), options];
        Request::of(&class, &env.into(), |_| None).map(|_| ())
    };
    assert!(of("NODRV,VIRTUAL").is_ok());
    let refused = planning::with_causes(of("NODRIVER").unwrap_err());
    assert!(refused.contains("`NODRIVER` is not an option"), "{refused}");
    let plan = plan(&class, &host, &["ASCEND_VISIBLE_DEVICES=0"]);
    for wanted in [
        "liburma.so",
        "liburma_ubagg.so",
        "/dev/ummu/ummu0 ",
        "hccl_rootinfo.json",
    ] {
        assert!(has(&plan, wanted), "{wanted}: {plan:#?}");
    }
}
