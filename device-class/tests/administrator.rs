//! What an administrator changes of a class in config.toml, without a copy of it.
//! The plugin and the hook read classes in this one way.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use device_class::DeviceClass;
use device_class::config::Config;
use device_class::discover::{self, Inventory};
use device_class::host::RecordedHost;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn shipped(name: &str) -> DeviceClass {
    let file = root().join(format!("classes/{name}.toml"));
    let text = std::fs::read_to_string(&file).unwrap();
    DeviceClass::parse(name.to_owned().try_into().unwrap(), &file, &text).unwrap()
}

fn adapted(class: &str, config: &str) -> Result<DeviceClass, String> {
    let config: Config = toml::from_str(config).map_err(|error| error.to_string())?;
    let class = shipped(class);
    let adapted = config.adapted(&class, "class.toml".as_ref());
    adapted
        .map(|class| class.into_owned())
        .map_err(|error| error.to_string())
}

fn inventory(class: &str, case: &str, config: &str) -> Inventory {
    let file = root().join(format!("testdata/{case}/host.txt"));
    let host = RecordedHost::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
    discover::devices(&adapted(class, config).unwrap(), &host)
}

/// Each device as `id=resource`.
fn named(inventory: &Inventory) -> Vec<String> {
    let devices = inventory.devices.iter();
    devices
        .map(|device| format!("{}={}", device.id, device.resource))
        .collect()
}

/// The vendor's plugin: `migStrategy: single` names instances as whole GPUs,
/// `mixed` by their profile; AMD's names the partitions of a uniform host
/// amd.com/gpu (`single`, its default).
#[test]
fn resources_have_the_configured_names() {
    let instance = "MIG-GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10";
    let whole = "GPU-b0f66a81-7f0c-4a6e-a7d9-5a3c9a1d2f77";
    let single = "[class.nvidia-gpu]\nresource = 'nvidia.com/gpu'";
    assert_eq!(
        named(&inventory("nvidia-gpu", "nvidia-gpu/mig", single)),
        [
            format!("{instance}-1-0=nvidia.com/gpu"),
            format!("{instance}-11-0=nvidia.com/gpu"),
            format!("{whole}=nvidia.com/gpu"),
        ]
    );
    let by_model = "[class.nvidia-gpu]\nresource = 'nvidia.com/{model:label}'";
    let found = inventory("nvidia-gpu", "nvidia-gpu/h200", by_model);
    let mut resources = found.devices.iter().map(|d| d.resource.as_str());
    assert!(resources.all(|resource| resource == "nvidia.com/nvidia-h200"));
    let single = "[class.amd-gpu]\nresource = 'amd.com/gpu'";
    let found = inventory("amd-gpu", "amd-gpu/mi300x-cpx", single);
    assert!(found.devices.len() > 1);
    let mut resources = found.devices.iter().map(|d| d.resource.as_str());
    assert!(resources.all(|resource| resource == "amd.com/gpu"));
}

/// Hidden devices do not change the numbers of the others.
#[test]
fn devices_are_hidden_by_name_or_attribute() {
    let first = "GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10";
    let second = "GPU-b0f66a81-7f0c-4a6e-a7d9-5a3c9a1d2f77";
    for (table, wanted) in [
        ("except = ['0']", vec![(second, "1")]),
        ("except = ['00000000:CA:00.0']", vec![(first, "0")]),
        ("except = [{ model = 'NVIDIA H200' }]", vec![]),
        (
            "except = [{ model = 'NVIDIA H200', minor = '0' }]",
            vec![(first, "0")],
        ),
        ("only = [{ minor = '0' }]", vec![(second, "1")]),
        ("only = []", vec![]),
        ("except = ['9']", vec![(first, "0"), (second, "1")]),
    ] {
        let config = format!("[class.nvidia-gpu]\n{table}");
        let found = inventory("nvidia-gpu", "nvidia-gpu/h200", &config);
        let devices = found.devices.iter();
        let devices: Vec<_> = devices
            .map(|device| (device.id.as_str(), device.index.as_deref().unwrap()))
            .collect();
        assert_eq!(devices, wanted, "{table}");
        assert_eq!(found.hidden.len(), 2 - wanted.len(), "{table}");
    }
}

#[test]
fn devices_have_the_configured_number_of_shares() {
    let config = "[class.nvidia-gpu]\nreplicas = 4";
    let found = inventory("nvidia-gpu", "nvidia-gpu/h200", config);
    assert!(found.devices.iter().all(|d| d.replicas == Some(4)));
    // The class's own number gives way.
    let config = "[class.gpu-share]\nreplicas = 2";
    let found = inventory("gpu-share", "gpu-share", config);
    assert!(found.devices.iter().all(|d| d.replicas == Some(2)));
    assert!(!found.devices.is_empty());
}

/// The nodes of a driver that runs in a container are under its own root.
#[test]
fn nodes_are_under_the_root_that_the_administrator_names() {
    let text = std::fs::read_to_string(root().join("testdata/nvidia-gpu/h200/host.txt")).unwrap();
    let moved = text.replace("char /dev/", "char /run/nvidia/driver/dev/");
    // A driver that makes its nodes nowhere else.
    let host = moved.replace("195 nvidia", "195 other");
    let host = RecordedHost::parse(&host).unwrap();
    let class = adapted("nvidia-gpu", "").unwrap();
    let found = discover::devices(&class, &host);
    assert!(!found.devices[0].health.is_healthy(), "there is no /dev");
    let config = "[class.nvidia-gpu]\ndev_root = '/run/nvidia/driver'";
    let class = adapted("nvidia-gpu", config).unwrap();
    let found = discover::devices(&class, &host);
    let device = &found.devices[0];
    assert!(device.health.is_healthy(), "{}", device.health);
    let node = &device.nodes[0];
    assert_eq!(node.host, Path::new("/run/nvidia/driver/dev/nvidia1"));
    assert_eq!(node.container, Path::new("/dev/nvidia1"));
    // A class whose devices are found in /dev itself.
    let host = "char /chips/dev/apex_0 120:0\nlink /sys/class/apex/apex_0/device ../../../pci0\n\
                file /sys/pci0/vendor\n| 0x1ac1\nfile /sys/pci0/device\n| 0x089a\n";
    let host = RecordedHost::parse(host).unwrap();
    let class = adapted(
        "coral-edgetpu",
        "[class.coral-edgetpu]\ndev_root = '/chips'",
    )
    .unwrap();
    let found = discover::devices(&class, &host);
    let nodes = found.devices.iter().flat_map(|device| &device.nodes);
    let nodes: Vec<_> = nodes
        .map(|node| (node.host.as_path(), node.container.as_path()))
        .collect();
    assert_eq!(
        nodes,
        [(Path::new("/chips/dev/apex_0"), Path::new("/dev/apex_0"))],
        "{:?}",
        found.warnings
    );
}

#[test]
fn a_mistake_is_an_error_that_names_the_table() {
    for (class, config, wanted) in [
        (
            "nvidia-gpu",
            "[class.nvidia-gpu]\nresource = 'nvidia.com/{modell}'",
            "with [class.nvidia-gpu] of config.toml: `nvidia.com/{modell}` uses the attribute `modell`",
        ),
        (
            "nvidia-gpu",
            "[class.nvidia-gpu]\nexcept = [{ modell = 'x' }]",
            "with [class.nvidia-gpu] of config.toml: `only or except` uses the attribute",
        ),
        (
            "nvidia-gpu",
            "[class.nvidia-gpu]\nexcept = [3]",
            "a device's id, or a table of attributes",
        ),
        (
            "nvidia-gpu",
            "[class.nvidia-gpu]\nreplicas = 0",
            "0 replicas is not between 1 and 65535",
        ),
    ] {
        let error = adapted(class, config).unwrap_err();
        assert!(error.contains(wanted), "{config}: {error}");
    }
}
