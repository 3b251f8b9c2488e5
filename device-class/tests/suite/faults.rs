//! Faults of GPUs and of their driver that people report: what the shipped classes make of
//! them. The hosts are recorded ones with the fault; lines of the kernel's log have the form
//! of published ones.

use std::path::Path;
use std::time::Instant;

use device_class::DeviceClass;
use device_class::class::PropertyProgram;
use device_class::discover::{self, Device, HealthHistory, KernelLogRecord};
use device_class::driver_properties::DriverProperties;
use device_class::host::RecordedHost;
use device_class::template::Attributes;

use crate::rows;
use crate::shipped::{self, class, read};

fn parse(host: &str) -> RecordedHost {
    RecordedHost::parse(host).unwrap()
}

fn reason(device: &Device) -> String {
    device.health.to_string()
}

/// As /proc has it of a K80 and other GPUs whose driver reports RmInitAdapter.
#[test]
fn gpus_that_the_driver_has_not_started_are_unhealthy_and_have_ids_of_their_own() {
    let host = read("nvidia-gpu/h200/host.txt");
    let unknown = "GPU UUID: \t GPU-????????-????-????-????-????????????";
    let lines = host.lines().map(|line| match line.find("GPU UUID:") {
        Some(at) => format!("{}{unknown}\n", &line[..at]),
        None => format!("{line}\n"),
    });
    let found = discover::find_devices(&class("nvidia-gpu"), &parse(&lines.collect::<String>()));
    let whole = discover::find_devices(&class("nvidia-gpu"), &parse(&host));
    assert_eq!(found.devices.len(), whole.devices.len(), "{found:?}");
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    for device in &found.devices {
        let reason = reason(device);
        assert!(reason.contains("the driver has not started"), "{reason}");
        let id = device.id.as_str();
        assert!(id.starts_with("GPU-0000:"), "{id}");
        assert!(device.aliases.iter().all(|name| !name.contains('?')));
    }
}

/// Classes that offer the GPUs in another way have the same faults.
#[test]
fn shares_of_a_gpu_that_cannot_be_used_are_unhealthy() {
    let host = read("gpu-share/host.txt");
    let class = class("gpu-share");
    let facts = |line: &str| {
        format!(
            "{host}file /proc/uptime\n| 5000.25 1.0\nfile /run/boathook/facts/gpu-share\n\
             | boathook uptime\t4900\n| {line}\n"
        )
    };
    let unknown = host.replace(
        "GPU UUID: \t GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10",
        "GPU UUID: \t GPU-????????-????-????-????-????????????",
    );
    assert_ne!(unknown, host);
    let bdf = "0000:17:00.0";
    for (host, expected) in [
        (unknown, "the driver has not started"),
        (
            facts(&format!("{bdf} MIG mode\tEnabled")),
            "`nvidia-smi -i 0000:17:00.0 -mig 0`",
        ),
        (
            facts(&format!("{bdf} fabric state\tIn Progress")),
            "fabric is not ready",
        ),
    ] {
        let found = discover::find_devices(&class, &parse(&host));
        let ill = found.devices.iter().filter(|one| !one.health.is_healthy());
        let reasons: Vec<String> = ill.map(reason).collect();
        assert!(
            matches!(&reasons[..], [one] if one.contains(expected)),
            "{reasons:?}"
        );
        let in_parts = found
            .devices
            .iter()
            .filter(|one| one.whole_device_fault.is_some());
        assert_eq!(
            in_parts.count(),
            usize::from(expected.contains("mig")),
            "{expected}"
        );
    }
}

/// Without facts: the directory of the instance shows the mode.
#[test]
fn a_gpu_with_an_instance_without_a_compute_instance_is_not_a_whole_gpu() {
    let host = read("nvidia-gpu/h200/host.txt");
    let class = class("nvidia-gpu");
    let count = |host: &str| {
        let found = discover::find_devices(&class, &parse(host));
        let healthy = found.devices.iter().filter(|one| one.health.is_healthy());
        (found.devices.len(), healthy.count())
    };
    let (all, healthy) = count(&host);
    assert_eq!(all, healthy);
    let with = format!(
        "{host}file /proc/driver/nvidia/capabilities/gpu0/mig/gi1/access\n| DeviceFileMinor: 12\n"
    );
    assert_eq!(count(&with), (all, healthy - 1));
}

#[test]
fn a_gpu_whose_fabric_is_not_ready_is_unhealthy() {
    let class = class("nvidia-gpu");
    let program = |one: &&PropertyProgram| one.command[1].to_string() == "-q";
    let program = class.spec.property_programs.iter().find(program).unwrap();
    for (state, healthy) in [
        ("Completed", true),
        ("N/A", true),
        ("In Progress", false),
        ("Not Started", false),
    ] {
        let printed = format!(
            "\t<gpu id=\"00000000:CA:00.0\">\n\t\t<mig_mode>\n\t\t\t<current_mig>Disabled</current_mig>\n\
             \t\t</mig_mode>\n\t\t<fabric>\n\t\t\t<state>{state}</state>\n\
             \t\t\t<status>N/A</status>\n\t\t</fabric>\n\t</gpu>\n"
        );
        let facts =
            DriverProperties::from_pairs(program.parse_properties(&printed, &Attributes::new()));
        let text = facts.to_file_text(&parse("file /proc/uptime\n| 4900.25 1.0\n"), &[]);
        let text: String = text.lines().map(|line| format!("| {line}\n")).collect();
        let host = format!(
            "{}file /proc/uptime\n| 5000.25 1.0\nfile /run/boathook/facts/nvidia-gpu\n{text}",
            read("nvidia-gpu/mig/host.txt")
        );
        let found = discover::find_devices(&class, &parse(&host));
        let gpu = found.devices.iter();
        let mut gpu = gpu.filter(|one| one.aliases.contains(&"0000:ca:00.0".to_owned()));
        let gpu = gpu.next().unwrap();
        assert_eq!(gpu.health.is_healthy(), healthy, "{state}: {}", gpu.health);
    }
}

#[test]
fn xids_are_judged_by_their_words_where_the_number_is_not_enough() {
    let host = read("nvidia-gpu/h200/host.txt");
    let class = class("nvidia-gpu");
    let first = discover::find_devices(&class, &parse(&host))
        .devices
        .remove(0);
    let slot = first.aliases.iter().find(|name| name.starts_with("0000:"));
    let slot = slot.unwrap().strip_suffix(".0").unwrap().to_owned();
    let recovery = "154, GPU recovery action changed from";
    let steps = [
        (
            format!("{recovery} 0x0 (None) to 0x1 (GPU Reset Required)"),
            false,
        ),
        (
            format!("{recovery} 0x1 (GPU Reset Required) to 0x0 (None)"),
            true,
        ),
        (format!("{recovery} 0x0 (None) to 0x2 (OS Reboot)"), false),
        (
            format!("{recovery} 0x2 (OS Reboot) to 0x4 (Drain and Reset)"),
            false,
        ),
        (
            format!("{recovery} 0x4 (Drain and Reset) to 0x0 (None)"),
            true,
        ),
        (
            "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x0)".to_owned(),
            false,
        ),
        (
            format!("{recovery} 0x1 (GPU Reset Required) to 0x0 (None)"),
            true,
        ),
        (
            "145, RLW_REMAP Nonfatal XC0 i0 Link 01 (0x00000004 0x0)".to_owned(),
            true,
        ),
        ("79, GPU has fallen off the bus.".to_owned(), false),
        // The name of a process is not the driver's word.
        (
            "13, pid=7, name=to 0x0 (None), Graphics Exception".to_owned(),
            false,
        ),
        (
            format!("{recovery} 0x2 (Node Reboot Required) to 0x0 (None)"),
            true,
        ),
        (
            "43, pid=7, name=x 154, Fatal , Ch 00000008".to_owned(),
            true,
        ),
    ];
    let mut memory = HealthHistory::default();
    for (text, healthy) in steps {
        let line = format!("4,1,5,-;NVRM: Xid (PCI:{slot}): {text}");
        let line = KernelLogRecord::parse(line.as_bytes()).unwrap();
        let mut found = discover::scan_devices(&class, &parse(&host)).devices;
        memory.update_health_with_log(&mut found, Instant::now(), &[line]);
        assert_eq!(found[0].health.is_healthy(), healthy, "{text}");
        assert!(found[1..].iter().all(|other| other.health.is_healthy()));
    }
}

/// Returns the texts of the reports about hardware of a recorded host that its driver does not have:
/// those for the administrator to act on, and those of what was probably intended.
fn unclaimed(class: &DeviceClass, host: &str) -> [Vec<String>; 2] {
    let reports = discover::describe_unclaimed_hardware(class, &parse(host));
    let (intended, faults): (Vec<_>, Vec<_>) =
        reports.into_iter().partition(|report| report.is_intended);
    [faults, intended].map(|reports| reports.into_iter().map(|report| report.text).collect())
}

/// Nouveau has one, nothing another one, and a virtual machine the third, which is no fault.
#[test]
fn hardware_that_the_driver_has_not_taken_is_named() {
    for (name, host, vendor, code) in [
        (
            "nvidia-gpu",
            "nvidia-gpu/h200/host.txt",
            "0x10de",
            "0x030200",
        ),
        ("amd-gpu", "amd-gpu/xgmi/host.txt", "0x1002", "0x038000"),
        ("intel-gpu", "intel-gpu/host.txt", "0x8086", "0x038000"),
        ("gaudi", "gaudi/host.txt", "0x1da3", "0x120000"),
    ] {
        let host = read(host);
        let class = class(name);
        assert_eq!(
            unclaimed(&class, &host),
            [const { Vec::<String>::new() }; 2]
        );
        let device = |bdf: &str, vendor: &str, code: &str| {
            let path = format!("/sys/bus/pci/devices/{bdf}");
            format!("file {path}/vendor\n| {vendor}\nfile {path}/class\n| {code}\n")
        };
        let driver = |bdf: &str, driver: &str| {
            format!("link /sys/bus/pci/devices/{bdf}/driver ../../../bus/pci/drivers/{driver}\n")
        };
        let more = [
            host,
            device("00aa:01:00.0", vendor, code),
            driver("00aa:01:00.0", "nouveau"),
            device("00aa:02:00.0", vendor, code),
            device("00aa:03:00.0", vendor, code),
            driver("00aa:03:00.0", "vfio-pci"),
            // A function for a virtual machine.
            device("00aa:05:00.1", vendor, code),
            "link /sys/bus/pci/devices/00aa:05:00.1/physfn ../00aa:05:00.0\n".to_owned(),
            // The sound of a GPU, and a GPU of another vendor.
            device("00aa:01:00.1", vendor, "0x040300"),
            device("00aa:04:00.0", "0xabcd", code),
        ];
        let [told, intended] = unclaimed(&class, &more.concat());
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("00aa:01:00.0 (nouveau)"), "{told:?}");
        assert!(told[1].contains("00aa:02:00.0 (no driver)"), "{told:?}");
        assert_eq!(intended.len(), 1, "{intended:?}");
        let given = "00aa:03:00.0 is given to virtual machines (vfio-pci): ";
        assert!(intended[0].contains(given), "{intended:?}");
    }
}

/// The classes of accelerators, each with the file by which hardware of its vendor is told apart, a
/// value of that hardware, and one of other hardware of the vendor, or of a vendor like it.
const ACCELERATORS: &str = "
hygon-dcu | 0x1d94 | class | 0x038000 | 0x060400
metax-gpu | 0x9999 | class | 0x030200 | 0x010802
mthreads-gpu | 0x1ed5 | class | 0x030000 | 0x040300
iluvatar-gpu | 0x1e3e | class | 0x120000 | 0x060400
ascend-npu | 0x19e5 | device | 0xd802 | 0xa120
amd-ma35 | 0x10ee | device | 0x5070 | 0x5071
intel-qat | 0x8086 | device | 0x4940 | 0x56a0
intel-dlb | 0x8086 | device | 0x2710 | 0x56a0
intel-dsa | 0x8086 | device | 0x0b25 | 0x56a0
intel-iaa | 0x8086 | device | 0x0cfe | 0x56a0
kunlunxin-xpu | 0x1d22 | device | 0x3684 | 0x1380
tenstorrent | 0x1e52 | device | 0xb140 | 0x0001
rebellions-npu | 0x1eff | device | 0x1220 | 0x0001
qualcomm-ai100 | 0x17cb | device | 0xa100 | 0x1107
furiosa-rngd | 0x1ed2 | device | 0x0001 | 0x0000
enflame-gcu | 0x1e36 | device | 0xc035 | 0xffff
cambricon-mlu | 0xcabc | device | 0x0370 | 0xffff
hailo | 0x1e60 | device | 0x2864 | 0xffff
coral-edgetpu | 0x1ac1 | device | 0x089a | 0xffff
deepx-npu | 0x1ff4 | device | 0x0100 | 0x2001
amd-npu | 0x1022 | device | 0x17f0 | 0x790b
intel-npu | 0x8086 | device | 0x643e | 0x56a0
aws-neuron | 0x1d0f | device | 0x7264 | 0x8061
xilinx-fpga | 0x10ee | device | 0x5005 | 0x5004
xilinx-card | 0x10ee | device | 0x5021 | 0x5020
";

/// The host has these PCI functions. The first one has no driver and is reported. The second one has
/// the vendor's driver. Three have a driver for virtual machines, which is reported as intended. The
/// others are two virtual functions, hardware of another kind, and hardware of another vendor, of
/// which a virtual machine has one each.
#[test]
fn accelerators_without_a_driver_are_named() {
    for [name, vendor, file, value, other] in rows(ACCELERATORS) {
        let class = class(&name);
        let function = |bdf: &str, vendor: &str, value: &str| {
            let path = format!("/sys/bus/pci/devices/{bdf}");
            format!("file {path}/vendor\n| {vendor}\nfile {path}/{file}\n| {value}\n")
        };
        let given = |bdf: &str, vendor: &str, value: &str, driver: &str| {
            let link = format!("link /sys/bus/pci/devices/{bdf}/driver ../../drivers/{driver}\n");
            function(bdf, vendor, value) + &link
        };
        let host = [
            function("00aa:01:00.0", &vendor, &value),
            function("00aa:02:00.0", &vendor, &value),
            "link /sys/bus/pci/devices/00aa:02:00.0/driver ../../drivers/any\n".to_owned(),
            function("00aa:03:00.1", &vendor, &value),
            "link /sys/bus/pci/devices/00aa:03:00.1/physfn ../00aa:03:00.0\n".to_owned(),
            given("00aa:03:00.2", &vendor, &value, "vfio-pci"),
            "link /sys/bus/pci/devices/00aa:03:00.2/physfn ../00aa:03:00.0\n".to_owned(),
            function("00aa:04:00.0", &vendor, &other),
            given("00aa:04:00.1", &vendor, &other, "vfio-pci"),
            function("00aa:05:00.0", "0xabcd", &value),
            given("00aa:05:00.1", "0xabcd", &value, "vfio-pci"),
            given("00aa:06:00.0", &vendor, &value, "vfio-pci"),
            given("00aa:07:00.0", &vendor, &value, "pci-stub"),
            given("00aa:08:00.0", &vendor, &value, "pciback"),
        ];
        let [reports, intended] = unclaimed(&class, &host.concat());
        assert_eq!(reports.len(), 1, "{name}: {reports:?}");
        let report = &reports[0];
        assert!(report.contains("00aa:01:00.0 (no driver): "), "{report}");
        let given = [
            "00aa:06:00.0 is given to virtual machines (vfio-pci): ",
            "00aa:07:00.0 is given to virtual machines (pci-stub): ",
            "00aa:08:00.0 is given to virtual machines (pciback): ",
        ];
        assert_eq!(intended.len(), given.len(), "{name}: {intended:?}");
        for (report, given) in intended.iter().zip(given) {
            assert!(report.contains(given), "{name}: {report}");
        }
    }
}

/// A device that virtual machines have is explained by each class that names devices without a driver.
#[test]
fn each_class_with_unclaimed_pci_devices_knows_those_of_virtual_machines() {
    for source in shipped::sources() {
        let class = source.parse().unwrap();
        let tables = class.spec.unclaimed_hardware.iter();
        let tables = tables.filter(|table| table.path.to_string().contains("/bus/pci/"));
        let (intended, faults): (Vec<_>, Vec<_>) = tables.partition(|table| table.is_intended);
        let has_faults = !faults.is_empty();
        assert_eq!(intended.len(), usize::from(has_faults), "{}", source.name);
    }
}

/// Each of the usual reasons has an advice of its own.
#[test]
fn the_advice_for_a_gpu_that_the_driver_has_not_taken_fits_its_reason() {
    let gpu = "file /sys/bus/pci/devices/00aa:01:00.0/vendor\n| 0x10de\n\
               file /sys/bus/pci/devices/00aa:01:00.0/class\n| 0x030000\n";
    let nouveau = "link /sys/bus/pci/devices/00aa:01:00.0/driver ../../drivers/nouveau\n";
    let loaded = "file /proc/driver/nvidia/version\n| NVRM version: 580.1\n";
    for (more, advice) in [
        ("", "run `modprobe nvidia`"),
        (nouveau, "blacklists nouveau"),
        (loaded, "the kernel's log for NVRM"),
    ] {
        let [reports, _] = unclaimed(&class("nvidia-gpu"), &format!("{gpu}{more}"));
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert!(reports[0].contains(advice), "{reports:?}");
    }
}

/// Of simpledrm's card the kernel has no vendor. Since Linux 5.18 every desktop has one for a while.
#[test]
fn a_card_without_a_vendor_is_no_fault() {
    let card = "link /sys/class/drm/card0 ../../devices/platform/simple-framebuffer.0/drm/card0\n\
                link /sys/devices/platform/simple-framebuffer.0/drm/card0/device \
                ../../../simple-framebuffer.0\n\
                link /sys/class/accel/accel0 ../../devices/platform/npu/accel/accel0\n\
                link /sys/devices/platform/npu/accel/accel0/device ../../../npu\n\
                char /dev/dri/card0 226:0\n";
    for source in shipped::sources() {
        let found = discover::find_devices(&source.parse().unwrap(), &parse(card));
        assert_eq!(found.warnings, [""; 0], "{}", source.name);
    }
}

/// The nodes of nvidia-uvm are absent, and its driver is not loaded.
#[test]
fn a_driver_without_which_cuda_fails_is_missed() {
    let class = class("nvidia-gpu");
    let lacks = |host: &str| {
        let host = parse(host);
        let inventory = discover::find_devices(&class, &host);
        let capabilities = class.spec.request.find_default_capabilities();
        discover::describe_unusable_hardware(&class, false, &capabilities, &inventory, &host)
    };
    let host = read("nvidia-gpu/h200/host.txt");
    assert!(lacks(&host).is_empty());
    // The hook makes the nodes while the driver is loaded.
    assert!(lacks(&read("nvidia-gpu/headless/host.txt")).is_empty());
    let without = |line: &&str| !line.contains("nvidia-uvm");
    let host: String = host
        .lines()
        .filter(without)
        .map(|line| format!("{line}\n"))
        .collect();
    let told = lacks(&host);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0]
            .text
            .contains("/dev/nvidia-uvm does not exist, and CUDA fails"),
        "{told:?}"
    );
    assert!(told[0].text.contains("nvidia-modprobe -u"), "{told:?}");
    // A container without that capability needs no such node.
    let utility = ["utility".to_owned().try_into().unwrap()].into();
    let (host, inventory) = (parse(&host), discover::find_devices(&class, &parse(&host)));
    assert!(
        discover::describe_unusable_hardware(&class, false, &utility, &inventory, &host).is_empty()
    );
}

#[test]
fn unclaimed_hardware_and_words_of_the_log_are_checked() {
    let parse = |text: &str| {
        let text = format!(
            "version = 1\nresource = 'x.com/x'\nrequest = {{ env = 'X' }}\n\
             discover = [{{ path = '/dev/x{{n:number}}' }}]\n{text}"
        );
        let name = "x".to_owned().try_into().unwrap();
        let parsed = DeviceClass::parse(name, Path::new("x.toml"), &text);
        parsed.map(|_| ()).map_err(|error| error.to_string())
    };
    for (text, wanted) in [
        (
            "device = { id = '{n}' }\n[[unclaimed]]\npath = '/sys/{bdf}'\nreport = '{other}'\n",
            "other",
        ),
        (
            "device = { id = '{n}', health = [{ file = '/x', equals = '1', words = 'x' }] }\n",
            "health check",
        ),
        (
            "device = { id = '{n}', health = [{ kernel_log = 'x', codes = [1], words = '(' }] }\n",
            "bad regex",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
}
