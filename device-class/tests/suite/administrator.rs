//! What an administrator changes of a class in config.toml, without a copy of it.
//! The plugin and the hook read classes in this one way.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use device_class::DeviceClass;
use device_class::class::{PlacementPolicy, ReplicaCount};
use device_class::config::Config;
use device_class::discover::{self, Inventory, NodeInjectionMethod, PathLookup};
use device_class::host::{RealHost, RecordedHost};

use crate::{rows, shipped};

fn adapted(class: &str, config: &str) -> Result<DeviceClass, String> {
    let config: Config = toml::from_str(config).map_err(|error| error.to_string())?;
    let adapted = config.with_settings(shipped::class(class), "class.toml".as_ref());
    adapted.map_err(|error| error.to_string())
}

fn inventory(class: &str, case: &str, config: &str) -> Inventory {
    discover::find_devices(&adapted(class, config).unwrap(), &shipped::host(case))
}

/// As with the vendors' plugins, which fail on a node whose devices differ and have one name
/// (NVIDIA's `internal/rm/device_map.go`, AMD's `internal/pkg/amdgpu`).
#[test]
fn devices_that_differ_do_not_share_a_name() {
    let divided = "file /sys/devices/pci0000:80/0000:83:00.0/current_compute_partition\n| CPX\n\
                   file /sys/devices/pci0000:80/0000:83:00.0/current_memory_partition\n| NPS4\n";
    let single = "[class.nvidia-gpu]\nresource = 'nvidia.com/gpu'";
    let mixed = "[class.amd-gpu]\nresource = 'amd.com/{sort}'";
    let gpus = Some("nvidia.com/gpu differ (gpu, mig, mig-1g.18gb)");
    let modes = Some("amd.com/gpu differ (cpx_nps4, spx_nps1)");
    for (class, case, additional, config, differ) in [
        ("nvidia-gpu", "mig", "", "", None),
        ("nvidia-gpu", "mig", "", single, gpus),
        ("nvidia-gpu", "h200", "", single, None),
        ("amd-gpu", "mi300x-cpx", "", "", None),
        // GPUs without modes, beside one that has some.
        ("amd-gpu", "mixed", "", "", None),
        ("amd-gpu", "mixed", divided, "", modes),
        ("amd-gpu", "mixed", divided, mixed, None),
    ] {
        let recording = shipped::recorded(&format!("{class}/{case}")) + additional;
        let host = RecordedHost::parse(&recording).unwrap();
        let adapted = adapted(class, config).unwrap();
        let mut found = discover::find_devices(&adapted, &host);
        found.mark_mixed_devices_unhealthy(&adapted);
        for device in &found.devices {
            let health = device.health.to_string();
            match differ {
                None => assert_eq!(health, "healthy", "{class} {case}: {}", device.id),
                Some(reason) => assert!(health.contains(reason), "{case}: {health}"),
            }
        }
    }
}

/// Nothing is plugged in at the ports 1-1 and 0-1, and only the second is no port.
#[test]
fn an_empty_usb_port_hides_and_allows_no_other_device() {
    for (table, count) in [
        ("only = ['1-1']", 0),
        ("only = ['\"1-1\"']", 0),
        ("only = ['\"1-2\"']", 1),
        ("except = ['1-1']", 7),
        ("except = ['1-2']", 6),
        ("only = ['0-1']", 2),
    ] {
        let config = format!("[class.serial-port]\n{table}");
        let found = inventory("serial-port", "serial-port", &config);
        assert_eq!(found.devices.len(), count, "{table}: {found}");
        let has_warning = found.warnings.iter().any(|warning| warning.contains("1-1"));
        assert_eq!(has_warning, table.contains("1-1"), "{:?}", found.warnings);
    }
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
        assert_eq!(found.hidden_ids.len(), 2 - wanted.len(), "{table}");
        // Nobody is called 9.
        let warned = found.warnings.iter().any(|w| w.contains("`except`"));
        assert_eq!(warned, table.contains('9'), "{table}: {:?}", found.warnings);
        let warned = found
            .warnings
            .iter()
            .any(|w| w.contains("fits none of the 2 devices"));
        assert_eq!(
            warned,
            table == "only = []",
            "{table}: {:?}",
            found.warnings
        );
    }
}

/// A GPU that is divided is still one of the host.
#[test]
fn settings_that_fit_no_device_are_reported() {
    for (recording, table, warnings) in [
        ("nvidia-gpu/h200", "only = ['0']", 0),
        ("nvidia-gpu/h200", "only = ['9']", 2),
        ("nvidia-gpu/h200", "only = ['0', '9']", 1),
        ("nvidia-gpu/h200", "only = [{ model = 'NVIDIA H100' }]", 2),
        ("nvidia-gpu/h200", "except = [{ model = 'NVIDIA H100' }]", 1),
        ("nvidia-gpu/mig", "except = ['0']", 0),
        ("nvidia-gpu/mig", "only = ['0']", 0),
    ] {
        let config = format!("[class.nvidia-gpu]\n{table}");
        let found = inventory("nvidia-gpu", recording, &config).warnings;
        let found = found.iter().filter(|w| w.contains("config.toml"));
        assert_eq!(
            found.clone().count(),
            warnings,
            "{table}: {:?}",
            found.collect::<Vec<_>>()
        );
    }
}

/// What a name means in a request it means in `only` and `except`.
#[test]
fn devices_are_hidden_by_what_a_request_would_name() {
    let text = "[request]\nenv = 'STICKS'\n[[discover]]\npath = '/sys/sticks/{port}'\n\
        attributes = [{ name = 'serial', file = 'serial' }, { name = 'tty', file = 'tty' }]\n\
        [device]\nid = 'usb-{port}'\norder = '{port}'\naliases = ['{port}', '{serial}']\n\
        nodes = ['/dev/{tty}']\n";
    let text = format!("version = 1\nresource = 'example.com/stick'\n{text}");
    let host = ["1-1", "1-2", "1-3", "2-1"]
        .iter()
        .enumerate()
        .map(|(index, port)| {
            // The serial number of the first is the index of the third.
            let serial = if index == 0 { "2" } else { "none" };
            let stick = format!("/sys/sticks/{port}");
            format!(
                "file {stick}/serial\n| {serial}\nfile {stick}/tty\n| tty{index}\n\
             char /dev/tty{index} 4:{index}\n"
            )
        });
    let host = host.collect::<String>() + "link /dev/by-id/usb-Second ../tty1\n";
    let host = RecordedHost::parse(&host).unwrap();
    let adapted = |table: &str| {
        let class = "stick".to_owned().try_into().unwrap();
        let class = DeviceClass::parse(class, Path::new("stick.toml"), &text).unwrap();
        let config: Config = toml::from_str(&format!("[class.stick]\n{table}")).unwrap();
        config.with_settings(class, "stick.toml".as_ref())
    };
    for (table, hidden, is_warned) in [
        ("except = ['1-2']", vec!["usb-1-2"], false),
        ("except = ['2']", vec!["usb-1-1"], false),
        ("except = ['1']", vec!["usb-1-2"], false),
        ("except = ['0-1']", vec!["usb-1-1", "usb-1-2"], false),
        ("except = ['/dev/by-id/usb-Second']", vec!["usb-1-2"], false),
        ("except = ['/dev/other/tty1']", vec![], true),
        ("only = ['2']", vec!["usb-1-2", "usb-1-3", "usb-2-1"], false),
        (
            "only = ['/dev/tty0', '2-1']",
            vec!["usb-1-2", "usb-1-3"],
            false,
        ),
        // A port at which nothing is plugged in.
        ("except = ['2-9']", vec![], true),
        ("except = ['3-0']", vec![], true),
    ] {
        let found = discover::find_devices(&adapted(table).unwrap(), &host);
        let ids: Vec<&str> = found.hidden_ids.iter().map(|id| id.as_str()).collect();
        assert_eq!(ids, hidden, "{table}");
        assert_eq!(
            !found.warnings.is_empty(),
            is_warned,
            "{table}: {:?}",
            found.warnings
        );
    }
    // No device may be called so, and `except` would hide nothing.
    for table in ["except = ['none']", "only = ['ALL']"] {
        let error = adapted(table).unwrap_err().to_string();
        assert!(
            error.contains("in only or except names no device"),
            "{error}"
        );
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
    // Whole GPUs are shared, and instances are not.
    let config = "[class.nvidia-gpu]\nreplicas = { 'nvidia.com/gpu' = 4 }";
    let found = inventory("nvidia-gpu", "nvidia-gpu/mig", config);
    let shares: Vec<_> = found.devices.iter().map(|d| d.replicas).collect();
    assert_eq!(shares, [None, None, Some(4)]);
}

#[test]
fn variables_and_the_choice_of_devices_are_as_configured() {
    let config = "[class.nvidia-gpu]\nplacement = 'spread'\nmax_per_container = 1\n\
                  default_capabilities = ['compute']\n\
                  env = { NVIDIA_VISIBLE_DEVICES = '{slot}' }";
    let class = adapted("nvidia-gpu", config).unwrap();
    assert_eq!(class.spec.allocate.placement, PlacementPolicy::Spread);
    let most = class.settings.max_per_container.map(ReplicaCount::get);
    assert_eq!(most, Some(1));
    let capabilities = class.spec.request.default_capabilities.iter();
    let capabilities: Vec<_> = capabilities.map(|name| name.as_str()).collect();
    assert_eq!(capabilities, ["compute"]);
    let found = inventory("nvidia-gpu", "nvidia-gpu/h200", config);
    let values = found.devices.iter().flat_map(|device| device.env.values());
    assert_eq!(values.collect::<Vec<_>>(), ["0000:17:00", "0000:ca:00"]);
}

/// The nodes of a driver that runs in a container are under its own root.
#[test]
fn nodes_are_under_the_root_that_the_administrator_names() {
    let text = shipped::recorded("nvidia-gpu/h200");
    let moved = text.replace("char /dev/", "char /run/nvidia/driver/dev/");
    // A driver that makes its nodes nowhere else.
    let host = moved.replace("195 nvidia", "195 other");
    let host = RecordedHost::parse(&host).unwrap();
    let class = adapted("nvidia-gpu", "").unwrap();
    let found = discover::find_devices(&class, &host);
    assert!(!found.devices[0].health.is_healthy(), "there is no /dev");
    let config = "[class.nvidia-gpu]\ndev_root = '/run/nvidia/driver'";
    let class = adapted("nvidia-gpu", config).unwrap();
    let found = discover::find_devices(&class, &host);
    let device = &found.devices[0];
    assert!(device.health.is_healthy(), "{}", device.health);
    let node = &device.nodes[0];
    assert_eq!(node.host_path, Path::new("/run/nvidia/driver/dev/nvidia1"));
    assert_eq!(node.container_path, Path::new("/dev/nvidia1"));
    // A class whose devices are found in /dev itself.
    let host = "char /chips/dev/apex_0 120:0\nlink /sys/class/apex/apex_0/device ../../../pci0\n\
                file /sys/pci0/vendor\n| 0x1ac1\nfile /sys/pci0/device\n| 0x089a\n";
    let host = RecordedHost::parse(host).unwrap();
    let class = adapted(
        "coral-edgetpu",
        "[class.coral-edgetpu]\ndev_root = '/chips'",
    )
    .unwrap();
    let found = discover::find_devices(&class, &host);
    let nodes = found.devices.iter().flat_map(|device| &device.nodes);
    let nodes: Vec<_> = nodes
        .map(|node| (node.host_path.as_path(), node.container_path.as_path()))
        .collect();
    assert_eq!(
        nodes,
        [(Path::new("/chips/dev/apex_0"), Path::new("/dev/apex_0"))],
        "{:?}",
        found.warnings
    );
}

/// For containers that are not root and do not know the host's group.
#[test]
fn nodes_have_the_mode_and_group_that_the_administrator_sets() {
    let own = |form: &NodeInjectionMethod| match form {
        NodeInjectionMethod::BindMount => None,
        NodeInjectionMethod::NodeCopy(own) => Some((own.mode, own.gid)),
        NodeInjectionMethod::CreatedNode(made) => {
            Some((made.permissions.mode, made.permissions.gid))
        }
    };
    for (case, config, wanted) in [
        ("amd-gpu/xgmi", "", None),
        ("amd-gpu/xgmi", "node_mode = '0666'", Some((0o666, 0))),
        ("amd-gpu/xgmi", "node_gid = 110", Some((0o660, 110))),
        (
            "coral-edgetpu/usb",
            "node_mode = '0640'\nnode_gid = 46",
            Some((0o640, 46)),
        ),
        // A node that the driver has not created yet.
        (
            "nvidia-gpu/headless",
            "node_mode = '0660'\nnode_gid = 44",
            Some((0o660, 44)),
        ),
    ] {
        let name = case.split('/').next().unwrap();
        let class = adapted(name, &format!("[class.{name}]\n{config}")).unwrap();
        let host = shipped::host(case);
        let capabilities = class.spec.request.find_default_capabilities();
        let found = discover::look_up_class(&class, (&capabilities).into(), &host).unwrap();
        let devices = found.inventory.devices.iter();
        let nodes = devices.flat_map(|device| &device.nodes);
        let nodes: Vec<_> = nodes.chain(&found.edits.nodes).collect();
        assert!(!nodes.is_empty(), "{case}");
        for node in nodes {
            assert_eq!(
                own(&node.form),
                wanted,
                "{case}: {}",
                node.host_path.display()
            );
        }
    }
}

/// A daemon's sockets, at the path that its clients use. Below a directory in which every
/// user can create files, another user may have been there first.
#[test]
fn further_directories_are_mounted_if_they_are_roots() {
    let tree = tempfile::tempdir().unwrap();
    for directory in ["run/daemon", "tmp/daemon"] {
        std::fs::create_dir_all(tree.path().join(directory)).unwrap();
    }
    let shared = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(tree.path().join("tmp"), shared).unwrap();
    let host = RealHost::open(tree.path()).unwrap();
    let found = |path: &str| {
        let table = format!("{{ path = '{path}', container_path = '/tmp/daemon' }}");
        let config = format!("[class.dummy-npu]\ndirectories = [{table}]");
        let class = adapted("dummy-npu", &config).unwrap();
        let found = discover::look_up_class(&class, (&BTreeSet::new()).into(), &host).unwrap();
        let [directory] = <[_; 1]>::try_from(found.edits.directories).unwrap();
        (directory.container_path, directory.directory)
    };
    let at = |path: &str| PathLookup::Found(path.into());
    assert_eq!(
        found("/run/daemon"),
        ("/tmp/daemon".into(), at("/run/daemon"))
    );
    match found("/tmp/daemon").1 {
        PathLookup::Unusable(reason) => assert!(
            reason.starts_with("/tmp/daemon cannot be trusted: every user of the host"),
            "{reason}"
        ),
        other => panic!("{other:?}"),
    }
}

/// A class, what config.toml says of it, and what is wrong with that.
const MISTAKES: &str = r"
nvidia-gpu | resource = 'nvidia.com/{modell}'
    | with [class.nvidia-gpu] of config.toml: `nvidia.com/{modell}` uses the attribute `modell`
nvidia-gpu | except = [{ modell = 'x' }]
    | with [class.nvidia-gpu] of config.toml: `only or except` uses the attribute
nvidia-gpu | except = [3] | a device's id, or a table of attributes
nvidia-gpu | replicas = 0 | 0 replicas is not between 1 and 65535
nvidia-gpu | replicas = { 'nvidia.com/gpu' = 0 } | 0 replicas is not between 1 and 65535
nvidia-gpu | env = { NVIDIA_VISIBLE_DEVICES = '{indx}' } | `{indx}` uses the attribute `indx`
nvidia-gpu | default_capabilities = ['compte'] | compte
xilinx-fpga | forbid = ['managment']
    | with [class.xilinx-fpga] of config.toml: `managment` in `forbid` is not a capability
    of the class; did you mean `management`?
";

#[test]
fn a_mistake_is_an_error_that_names_the_table() {
    for [class, config, wanted] in rows(MISTAKES) {
        let config = format!("[class.{class}]\n{config}");
        let error = adapted(&class, &config).unwrap_err();
        assert!(error.contains(&wanted), "{config}: {error}");
    }
}

#[test]
fn a_wrong_value_is_an_error_that_names_file_and_key() {
    for (line, wanted) in [
        (
            "node_mode = '0990'",
            "node_mode: mode `0990` is not an octal number from 0000 to 0777",
        ),
        (
            "node_mode = 660",
            "node_mode: must be a text in quotes, and is the number 660; write node_mode = \"660\"",
        ),
        ("node_gid = -1", "node_gid: "),
        (
            "node_gid = 'render'",
            "node_gid: must be the number of a group (for a name use `group`, and in config.toml",
        ),
    ] {
        let text = format!("[class.amd-gpu]\n{line}\n");
        let error = Config::parse("config.toml".as_ref(), &text).unwrap_err();
        let error = error.to_string();
        let wanted = format!("config.toml:2: {wanted}");
        assert!(error.starts_with(&wanted), "{line}: {error}");
    }
}
