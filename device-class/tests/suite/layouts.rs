//! Where hosts keep a driver: each distribution in a tree of its own, written after the
//! document that its first lines name.

use std::collections::BTreeSet;
use std::path::Path;

use device_class::config::Config;
use device_class::discover::{self, FoundClass, Presence};
use device_class::host::RecordedHost;
use device_class::name::CapabilityName;

use crate::{rows, shipped};

/// What the kernel's part of the driver has on each of them.
const DRIVER: &str = "\
file /proc/driver/nvidia/version
| NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Wed May  6 2026
file /proc/driver/nvidia/gpus/0000:17:00.0/information
| Model: \t NVIDIA H200
| GPU UUID: \t GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10
| Device Minor: \t 0
file /sys/bus/pci/devices/0000:17:00.0/config
| (the configuration space)
";

const NODES: &str = "\
char /dev/nvidia0 195:0
char /dev/nvidiactl 195:255
char /dev/nvidia-uvm 511:0
char /dev/nvidia-uvm-tools 511:1
";

const IN_CONTAINER: &str =
    "[class.nvidia-gpu]\ndriver_root = '/run/nvidia/driver'\ndev_root = '/run/nvidia/driver'\n";

fn found(layout: &str, nodes: &str, config: &str) -> FoundClass {
    let tree = shipped::root().join(format!("testdata/nvidia-gpu/layouts/{layout}.txt"));
    found_in(&std::fs::read_to_string(tree).unwrap(), nodes, config)
}

fn found_in(tree: &str, nodes: &str, config: &str) -> FoundClass {
    let config: Config = toml::from_str(config).unwrap();
    let class = config.adapted(shipped::class("nvidia-gpu"), Path::new("nvidia-gpu.toml"));
    let class = class.unwrap();
    let host = RecordedHost::parse(&format!("{tree}{DRIVER}{nodes}")).unwrap();
    let capabilities = ["utility", "compute", "compat32"];
    let capabilities = capabilities.map(|name| CapabilityName::try_from(name.to_owned()).unwrap());
    let capabilities = BTreeSet::from(capabilities);
    discover::look_up(&class, (&capabilities).into(), &host).unwrap()
}

/// Where the files of these names are found.
fn sources(found: &FoundClass, named: &str) -> Vec<String> {
    let libraries = found.edits.libraries.iter();
    let libraries = libraries.filter_map(|library| match &library.file {
        Presence::Found(path) => Some(path),
        _ => None,
    });
    let files = found.edits.files.iter();
    let files = files.filter_map(|file| match &file.file {
        Presence::Found(source) => Some(&source.path),
        _ => None,
    });
    let paths = libraries
        .chain(files)
        .map(|path| path.display().to_string());
    let is_named = |path: &String| path.rsplit('/').next().unwrap().starts_with(named);
    paths.filter(is_named).collect()
}

/// A layout, and the directories of its libraries and programs.
const LAYOUTS: &str = "
nixos | /nix/store/a-nvidia-x11-580.159.03/lib | /nix/store/a-nvidia-x11-580.159.03-bin/bin
talos | /usr/local/glibc/usr/lib | /usr/local/bin
cos | /home/kubernetes/bin/nvidia/lib64 | /home/kubernetes/bin/nvidia/bin
flatcar | /opt/nvidia/580.159.03/4230.2.1/lib64 | /opt/nvidia/580.159.03/4230.2.1/bin
fedora | /usr/lib64 | /usr/bin
driver-directory | /usr/local/nvidia/lib64 | /usr/local/nvidia/bin
driver-container | /run/nvidia/driver/usr/lib/x86_64-linux-gnu | /run/nvidia/driver/usr/bin
";

#[test]
fn each_hosts_driver_is_found() {
    for [layout, libraries, programs] in rows(LAYOUTS) {
        let layout = layout.as_str();
        let (nodes, config, dev) = match layout {
            "driver-container" => ("", IN_CONTAINER, "/run/nvidia/driver/dev"),
            _ => (NODES, "", "/dev"),
        };
        let found = found(layout, nodes, config);
        let mut expected = vec![format!("{libraries}/libcuda.so.580.159.03")];
        expected.extend((layout == "fedora").then(|| "/usr/lib/libcuda.so.580.159.03".into()));
        expected.push(format!("{libraries}/libnvidia-ml.so.580.159.03"));
        expected.push(format!("{programs}/nvidia-smi"));
        let names = ["libcuda.so", "libnvidia-ml.so", "nvidia-smi"];
        let found_files = names.map(|name| sources(&found, name)).concat();
        assert_eq!(found_files, expected, "{layout}");
        if ["talos", "cos"].contains(&layout) {
            let other = format!("{programs}/nvidia-cuda-mps-control");
            assert_eq!(sources(&found, "nvidia-cuda"), [other]);
        }
        let smi = found.edits.files.iter().find(|file| file.binary).unwrap();
        assert_eq!(smi.container, Path::new("/usr/bin/nvidia-smi"), "{layout}");

        let device = &found.inventory.devices[0];
        assert!(device.health.is_healthy(), "{layout}: {}", device.health);
        for node in device.nodes.iter().chain(&found.edits.nodes) {
            assert!(
                node.host.starts_with(dev),
                "{layout}: {}",
                node.host.display()
            );
            assert!(node.container.starts_with("/dev"), "{layout}");
            assert!(matches!(node.number, Presence::Found(_)), "{layout}");
        }
    }
}

/// Without its settings a driver in a container is not mistaken for the host's.
#[test]
fn an_older_driver_of_the_host_is_not_taken() {
    let found = found("driver-container", NODES, "");
    assert_eq!(sources(&found, "libcuda.so"), [""; 0]);
}

/// Any other place is named in config.toml, and goes before the class's.
#[test]
fn libraries_are_found_in_the_configured_directories() {
    let tree = "file /opt/driver/lib/libcuda.so.1\n\
         file /opt/driver/lib/libcuda.so.580.159.03\n\
         link /opt/driver/lib/libcuda.so.1 libcuda.so.580.159.03\n\
         file /home/kubernetes/bin/nvidia/lib64/libcuda.so.1\n";
    let cuda = |config: &str| sources(&found_in(tree, NODES, config), "libcuda.so");
    let config = "[class.nvidia-gpu]\nlibrary_directories = ['/opt/driver/lib']";
    assert_eq!(cuda(config), ["/opt/driver/lib/libcuda.so.580.159.03"]);
    // What is there is of no version, or not of the driver's.
    assert_eq!(cuda(""), [""; 0]);
}
