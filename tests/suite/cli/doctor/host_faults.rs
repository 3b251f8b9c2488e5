//! `boathook doctor` reports faults of the host: drivers that are not loaded, and missing nodes.

use std::os::unix::fs::symlink;

use harness::demo_host::HostDirectory;

use crate::cli::boathook;
use crate::said::assert_says;

/// A host whose driver is loaded, with a device that the driver has not taken, and without a
/// node that programs need.
#[test]
fn what_the_host_lacks_is_reported_although_no_device_is_unhealthy() {
    let class = "version = 1\nresource = 'x.com/chip'\nrequest = { env = 'CHIPS' }\n\
                 discover = [{ count = 1 }]\ndevice = { id = 'chip-{index}' }\n\
                 edits = [{ nodes = [{ path = '/dev/chip-memory', optional = true, \
                 needed_for = 'rendering', advice = 'load chip-memory' }] }]\n\
                 [[unclaimed]]\npath = '/sys/bus/chips/{bus:number}'\n\
                 report = 'the driver has not taken chip {bus}'\n";
    let host = HostDirectory::new().unwrap();
    host.add_class("chip", class).unwrap();
    let lacks = [
        "the driver has not taken chip 7",
        "/dev/chip-memory does not exist, and rendering fails without it; load chip-memory",
    ];
    let arguments: [&[&str]; 3] = [
        &["list", "chip"],
        &["check", "chip"],
        &["doctor", "--env", "CHIPS=all"],
    ];
    std::fs::create_dir_all(host.root().join("sys/bus/chips/7")).unwrap();
    for arguments in arguments {
        let ran = boathook(&host, arguments, b"");
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&printed, &lacks);
        let end = "no fault found, but see the 2 warnings";
        assert_eq!(
            printed.ends_with(end),
            arguments[0] == "doctor",
            "{printed}"
        );
    }
    let intended = class.replace("report =", "intended = true\nreport =");
    host.add_class("chip", &intended).unwrap();
    for arguments in arguments {
        let printed = boathook(&host, arguments, b"");
        let printed = format!("{}{}", printed.stdout, printed.stderr);
        let lines: Vec<&str> = printed.lines().collect();
        let line = lines.iter().find(|line| line.contains(lacks[0])).unwrap();
        let expected = ["the", "note "][usize::from(arguments[0] != "list")];
        assert!(line.starts_with(expected), "{printed}");
        let end = "no fault found, but see the warning";
        assert_eq!(
            printed.trim_end().ends_with(end),
            arguments[0] == "doctor",
            "{printed}"
        );
    }
    std::fs::remove_dir(host.root().join("sys/bus/chips/7")).unwrap();
    let printed = boathook(&host, arguments[0], b"").stderr;
    assert!(!printed.contains("has not taken"), "{printed}");
}

/// A GPU that another driver has, or none, where the driver is not loaded: the line is printed once,
/// by the class that is enabled. A GPU of a virtual machine is explained as well. A host with another
/// vendor's GPU has no such line.
#[test]
fn a_gpu_is_reported_although_its_driver_is_not_loaded() {
    let taken_by = |driver: Option<&str>, vendor: &str| {
        let host = HostDirectory::new().unwrap();
        host.install_all_shipped_classes().unwrap();
        let gpu = "/sys/bus/pci/devices/0000:41:00.0";
        for (file, text) in [("vendor", vendor), ("class", "0x030200")] {
            host.add_file(&format!("{gpu}/{file}"), text).unwrap();
        }
        if let Some(driver) = driver {
            let target = format!("../../../../bus/pci/drivers/{driver}");
            let link = host.root().join(&gpu[1..]).join("driver");
            symlink(target, link).unwrap();
        }
        host
    };
    for (driver, vendor, line) in [
        (
            Some("nouveau"),
            "0x10de",
            Some("0000:41:00.0 (nouveau): install NVIDIA's driver, which blacklists nouveau"),
        ),
        (
            None,
            "0x10de",
            Some("0000:41:00.0 (no driver): run `modprobe nvidia`"),
        ),
        (
            Some("vfio-pci"),
            "0x10de",
            Some("the GPU 0000:41:00.0 is given to virtual machines (vfio-pci): install Boathook"),
        ),
        (None, "0x1a03", None),
    ] {
        let host = taken_by(driver, vendor);
        for arguments in [&["list"][..], &["list", "gpu-share"], &["check"]] {
            let ran = boathook(&host, arguments, b"");
            let printed = format!("{}{}", ran.stdout, ran.stderr);
            let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
            let lines = printed.matches("the GPU 0000:41:00.0 ").count();
            assert_eq!(
                lines,
                usize::from(line.is_some()),
                "{arguments:?}: {printed}"
            );
            assert!(printed.contains(line.unwrap_or_default()), "{printed}");
        }
        let printed = boathook(
            &host,
            &["doctor", "--env", "NVIDIA_VISIBLE_DEVICES=all"],
            b"",
        );
        let printed = printed
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        let advice = "fix: see the note about the hardware that is given to virtual machines";
        let is_given_away = driver == Some("vfio-pci");
        assert_eq!(printed.contains(advice), is_given_away, "{printed}");
        assert_eq!(
            printed.contains("its driver is loaded"),
            !is_given_away,
            "{printed}"
        );
    }
}
