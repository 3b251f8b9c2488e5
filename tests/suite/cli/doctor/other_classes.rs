//! `boathook doctor` names another class that has the requested device.

use std::path::Path;

use harness::demo_host::HostDirectory;

use super::doctor;
use crate::cli::{assert_refused, boathook, bundle, code, prestart};
use crate::said::assert_says;

/// As on WSL and Jetson, where another class of the vendor has the device: also by the refusal, and
/// by `explain`.
#[test]
fn the_class_that_has_devices_is_named() {
    let card = "version = 1\ndescription = 'Cards'\nresource = 'dummy.com/card'\n\
         [request]\nenv = 'CARD_VISIBLE_DEVICES'\n\
         [[discover]]\npath = '/dev/card-{number:number}'\n\
         [device]\nid = 'card-{number}'\n";
    let csv = "/etc/nvidia-container-runtime/host-files-for-container.d/drivers.csv";
    let nvidia = "NVIDIA_VISIBLE_DEVICES";
    let library = "/opt/rocm/lib/librocdxg.so.1";
    for (variable, class, files, named) in [
        (
            "AMD_VISIBLE_DEVICES",
            Some("amd-wsl"),
            &["/dev/dxg", "/usr/lib/wsl/lib/libdxcore.so", library][..],
            "class amd-wsl has 1 (variable AMD_WSL_VISIBLE_DEVICES)",
        ),
        (
            "CARD_VISIBLE_DEVICES",
            None,
            &[][..],
            "class dummy-npu has 64 (variable DUMMY_VISIBLE_DEVICES)",
        ),
        (
            nvidia,
            Some("nvidia-wsl"),
            &["/dev/dxg", "/usr/lib/wsl/lib/libcuda.so.1"],
            "class nvidia-wsl has 1 (variable NVIDIA_WSL_VISIBLE_DEVICES)",
        ),
        (
            nvidia,
            Some("nvidia-tegra"),
            &["/etc/nv_tegra_release", csv],
            "class nvidia-tegra has 1 (variable NVIDIA_TEGRA_VISIBLE_DEVICES)",
        ),
    ] {
        let host = HostDirectory::new().unwrap();
        match class {
            None => host.add_class("dummy-card", card).unwrap(),
            Some(class) => {
                let vendor = class.split('-').next().unwrap();
                host.add_shipped_class(&format!("{vendor}-gpu")).unwrap();
                host.add_shipped_class(class).unwrap();
            }
        }
        for file in files {
            host.add_file(file, "").unwrap();
        }
        let all = bundle(&[(variable, "all")]);
        let (code, text) = doctor(&host, all.path());
        assert_eq!(code, Some(15), "{text}");
        assert_says(&text, &["no device on this host", named]);
        let explain = |bundle: &Path| {
            boathook(
                &host,
                &["explain", "--bundle", bundle.to_str().unwrap()],
                b"",
            )
        };
        let explained = explain(all.path()).success().unwrap();
        assert_says(&explained.stdout, &["0 of 0 devices", named]);
        if variable == "AMD_VISIBLE_DEVICES" {
            // As the vendor's runtime, the class ignores devices that it does not know.
            continue;
        }
        let first = bundle(&[(variable, "0")]);
        assert_refused(&explain(first.path()), code::REQUEST, &[named]);
        assert_refused(&prestart(&host, &first), code::REQUEST, &[named]);
    }
}

/// A Jetson whose driver lists its GPU in /proc too: the class finds the device, and not its
/// libraries.
#[test]
fn the_class_with_the_same_resource_is_named_if_libraries_cannot_be_used() {
    let host = HostDirectory::new().unwrap();
    for class in ["nvidia-gpu", "nvidia-tegra"] {
        host.add_shipped_class(class).unwrap();
    }
    // Classes of one's own that extend it have the same devices and files.
    for (name, base) in [("lab", "nvidia-gpu"), ("lab-night", "lab")] {
        let env = name.to_uppercase().replace('-', "_");
        let text = format!("extends = '{base}'\nversion = 1\nrequest = {{ env = '{env}' }}\n");
        host.add_class(name, &text).unwrap();
    }
    let csv = "/etc/nvidia-container-runtime/host-files-for-container.d/drivers.csv";
    let version = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  595.78  Release\n";
    let gpu = "Model: NVIDIA Thor\nGPU UUID: GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10\n\
               Device Minor: 0\n";
    for (file, text) in [
        ("/etc/nv_tegra_release", ""),
        (csv, ""),
        ("/proc/driver/nvidia/version", version),
        ("/proc/driver/nvidia/gpus/0000:01:00.0/information", gpu),
        (
            "/proc/devices",
            "Character devices:\n195 nvidia\n195 nvidiactl\n",
        ),
        ("/sys/bus/pci/devices/0000:01:00.0/config", "(the space)"),
    ] {
        host.add_file(file, text).unwrap();
    }
    let named = "class nvidia-tegra (variable NVIDIA_TEGRA_VISIBLE_DEVICES)";
    let all = bundle(&[("NVIDIA_VISIBLE_DEVICES", "all")]);
    let (code, text) = doctor(&host, all.path());
    assert_eq!(code, Some(15), "{text}");
    assert_says(&text, &["libcuda.so.1 is not in", named]);
    assert!(!text.contains("class lab"), "{text}");
    let arguments = ["explain", "--bundle", all.path().to_str().unwrap()];
    let explained = boathook(&host, &arguments, b"");
    assert_refused(&explained, code::REQUEST, &["libnvidia-ml.so.1", named]);
}

/// A tunnel is nothing for a container that wants a virtual machine, though both are KubeVirt's.
#[test]
fn a_class_with_the_same_domain_may_have_something_else() {
    let host = HostDirectory::new().unwrap();
    for class in ["kvm", "tun", "vhost-net"] {
        host.add_shipped_class(class).unwrap();
    }
    for file in ["/dev/net/tun", "/dev/vhost-net"] {
        host.add_file(file, "").unwrap();
    }
    let (code, text) = doctor(&host, bundle(&[("KVM_VISIBLE_DEVICES", "all")]).path());
    assert_eq!(code, Some(15), "{text}");
    assert_says(&text, &["no device on this host"]);
    assert!(!text.contains("request those"), "{text}");
}

#[test]
fn a_device_that_is_plugged_in_later_is_not_sought_in_other_classes() {
    let host = HostDirectory::new().unwrap();
    let class = |name: &str, follow: bool, discover: &str| {
        let text = format!(
            "version = 1\nfollow = {follow}\ndescription = 'Cards'\n\
             resource = 'devices.boathook.dev/{name}'\n[request]\n\
             env = '{}_VISIBLE_DEVICES'\n[[discover]]\n{discover}\n\
             [device]\nid = '{name}-{{index}}'\n",
            name.to_uppercase()
        );
        host.add_class(name, &text).unwrap();
    };
    class("stick", true, "path = '/dev/stick-{index:number}'");
    class("other", false, "count = 1");
    let bundle = bundle(&[("STICK_VISIBLE_DEVICES", "stick-0")]);
    let (code, text) = doctor(&host, bundle.path());
    assert_eq!(code, Some(15), "{text}");
    let advice = "plug it in and start the container again; with `?` after the name";
    assert_says(
        &text,
        &[
            "no device on this host",
            advice,
            "STICK_VISIBLE_DEVICES=NAME?",
        ],
    );
    assert!(!text.contains("OTHER_VISIBLE_DEVICES"), "{text}");
}
