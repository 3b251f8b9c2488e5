use device_class::device::{DeviceKind, DeviceNumber, DeviceRule};
use device_class::discover::{CreatedNode, NodePermissions};

use super::*;
use crate::plan::InjectionStep;

fn plan() -> InjectionPlan {
    let number = DeviceNumber {
        kind: DeviceKind::Character,
        major: 195,
        minor: 0,
    };
    let access = Access::READ.union(Access::WRITE);
    let rule = DeviceRule { number, access };
    let own = NodePermissions {
        mode: 0o660,
        gid: 44,
    };
    let lib = Path::new("/usr/lib/boathook/lib");
    let actions = [
        Action::Allow {
            rule,
            is_in_spec: false,
            owners_by_access: [].into(),
            host_node_path: None,
        },
        Action::Mask {
            path: "/proc/driver/chip".into(),
            should_create: false,
            files: [].into(),
            visible_mounts: Vec::new(),
            links: [].into(),
        },
        Action::Node {
            mount: BindMount::device("/dev/chip0".into(), "/dev/chip".into()),
            number,
            created_node_permissions: Some(own),
        },
        Action::Directory(BindMount::directory(
            "/opt/chip".into(),
            "/opt/chip".into(),
            false,
        )),
        Action::Library {
            mount: BindMount::library("/usr/lib/libchip.so.1.2".into(), lib.join("libchip.so.1.2")),
            links: ["libchip.so.1".to_owned()].into(),
            names: ["libchip.so.1".to_owned()].into(),
            image_links: ["libchip.so.1".to_owned()].into(),
        },
        Action::Loader {
            directories: vec![lib.into()],
            libraries: Vec::new(),
            image_libraries: Vec::new(),
            library_path_dirs: Vec::new(),
            directory_32bit: None,
            libraries_32bit: Vec::new(),
        },
    ];
    InjectionPlan {
        env: [("CHIP".to_owned(), "0".to_owned())].into(),
        ..plan_of(actions)
    }
}

fn plan_of<const N: usize>(actions: [Action; N]) -> InjectionPlan {
    let step = |action| InjectionStep {
        action,
        owner_labels: "chip".into(),
        owners: Vec::new(),
    };
    InjectionPlan {
        steps: actions.map(step).to_vec(),
        ..InjectionPlan::default()
    }
}

fn json(edits: &ContainerEdits) -> serde_json::Value {
    serde_json::to_value(edits).unwrap()
}

fn thin(plan: &InjectionPlan) -> serde_json::Value {
    let hook = CdiHookOptions {
        program_path: Path::new("/opt/bin/boathook-hook"),
        timeout_seconds: 30,
        config_path: None,
    };
    json(&ContainerEdits::from_plan_with_hook(
        plan,
        Path::new("/"),
        hook,
        "chip=0",
    ))
}

#[test]
fn the_hook_is_given_the_configuration_that_is_elsewhere() {
    let hook = CdiHookOptions {
        program_path: Path::new("/var/lib/boathook/bin/boathook-hook"),
        timeout_seconds: 30,
        config_path: Some(Path::new("/var/lib/etc/boathook/config.toml")),
    };
    let edits = json(&ContainerEdits::from_plan_with_hook(
        &plan(),
        Path::new("/"),
        hook,
        "chip=0",
    ));
    let config = "/var/lib/etc/boathook/config.toml";
    let args = [
        "boathook-hook",
        "create-runtime",
        "--config",
        config,
        "--cdi",
        "chip=0",
    ];
    assert_eq!(edits["hooks"][0]["args"], serde_json::json!(args));
}

/// In a user namespace a runtime would mount the host's `/dev/chip` instead of `/dev/chip0`.
#[test]
fn the_thin_form_has_the_nodes_with_the_hosts_path_and_the_hook_that_names_the_device() {
    let mut plan = plan();
    assert_eq!(thin(&plan).get("deviceNodes"), None);
    for step in &mut plan.steps {
        if let Action::Node { mount, .. } = &mut step.action {
            mount.path.clone_from(&mount.source);
        }
    }
    let wanted = serde_json::json!({
        "env": ["CHIP=0"],
        "deviceNodes": [{
            "path": "/dev/chip0",
            "permissions": "rw",
            "fileMode": 0o660,
            "gid": 44,
        }],
        "hooks": [{
            "hookName": "createRuntime",
            "path": "/opt/bin/boathook-hook",
            "args": ["boathook-hook", "create-runtime", "--cdi", "chip=0"],
            "timeout": 30,
        }],
    });
    assert_eq!(thin(&plan), wanted);
}

#[test]
fn the_plain_form_has_all_but_what_needs_a_hook_and_names_that() {
    let (edits, part_names) = ContainerEdits::from_plan_without_hook(&plan(), Path::new("/host"));
    let file = ["bind", "ro", "nosuid", "nodev"];
    let wanted = serde_json::json!({
        "env": ["CHIP=0", "LD_LIBRARY_PATH=/usr/lib/boathook/lib"],
        "deviceNodes": [{
            "path": "/dev/chip",
            "hostPath": "/host/dev/chip0",
            "permissions": "rw",
            "fileMode": 0o660,
            "gid": 44,
        }],
        "mounts": [
            {
                "hostPath": "/host/opt/chip",
                "containerPath": "/opt/chip",
                "options": ["rbind", "ro", "nosuid", "nodev"],
            },
            {
                "hostPath": "/host/usr/lib/libchip.so.1.2",
                "containerPath": "/usr/lib/boathook/lib/libchip.so.1.2",
                "options": file,
            },
            {
                "hostPath": "/host/usr/lib/libchip.so.1.2",
                "containerPath": "/usr/lib/boathook/lib/libchip.so.1",
                "options": file,
            },
        ],
    });
    assert_eq!(json(&edits), wanted);
    let part_names: Vec<_> = part_names.iter().map(String::as_str).collect();
    assert_eq!(
        part_names,
        [
            "the loader's cache (LD_LIBRARY_PATH is set instead)",
            "the mask of /proc/driver/chip",
        ]
    );
}

#[test]
fn a_node_that_the_host_lacks_has_its_number_in_the_plain_form_alone() {
    let kind = DeviceKind::Character;
    let (major, minor) = (511, 0);
    let action = Action::MakeNode {
        path: "/dev/late".into(),
        number: DeviceNumber { kind, major, minor },
        created_node: CreatedNode {
            driver: "late".into(),
            permissions: NodePermissions {
                mode: 0o666,
                gid: 0,
            },
            advice: None,
            is_optional: false,
        },
    };
    let plan = plan_of([action]);
    let (plain, part_names) = ContainerEdits::from_plan_without_hook(&plan, Path::new("/"));
    let node = serde_json::json!({
        "path": "/dev/late", "type": "c", "major": 511, "minor": 0,
        "permissions": "rwm", "fileMode": 0o666, "gid": 0,
    });
    assert_eq!(json(&plain)["deviceNodes"], serde_json::json!([node]));
    assert!(part_names.is_empty());
    assert_eq!(thin(&plan).get("deviceNodes"), None);
}

#[test]
fn a_file_states_the_lowest_version_that_has_its_fields() {
    let edits = |host: &str| ContainerEdits {
        device_nodes: vec![CdiNode {
            path: "/dev/chip".into(),
            host_path: (!host.is_empty()).then(|| host.into()),
            number: None,
            permissions: "rw".into(),
            file_mode: None,
            gid: None,
        }],
        ..ContainerEdits::default()
    };
    for (kind, name, host, version) in [
        ("a.com/chip", "chip-0", "", "0.3.0"),
        ("a.com/chip", "0", "", "0.5.0"),
        ("a.com/chip", "chip-0", "/dev/chip0", "0.5.0"),
        ("a.com/chip.x", "chip-0", "", "0.6.0"),
        ("a.com/chip.x", "0", "/dev/chip0", "0.6.0"),
    ] {
        let device = SpecifiedDevice {
            name: name.into(),
            container_edits: edits(host),
        };
        let specification = Specification::new(kind.into(), vec![device]);
        assert_eq!(specification.cdi_version, version, "{kind}={name} {host}");
    }
}
