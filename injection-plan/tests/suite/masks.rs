//! Tests of the files that stay visible in masked directories.

use std::path::Path;

use device_class::host::RecordedHost;
use injection_plan::plan::Action;
use injection_plan::request::Request;

use crate::planning::{asker, parse, plan, shipped_class};
use crate::vendors_behaviour::host;

const CHIPS: &str = r#"
version = 1
resource = "example.com/chip"
request = { env = "CHIPS", capabilities_env = "CAPS", default_capabilities = ["tell"] }
discover = [{ path = "/proc/chips/{index:number}" }]
device = { id = "chip-{index}", index = "{index}", unmask = ["/proc/chips/{index}/info"] }
[[edits]]
capability = "tell"
masks = [{ path = "/proc/chips", copies = ["/proc/chips/params"], set = { Make = "0" } }]
[[edits]]
capability = "profile"
masks = [{ path = "/etc/chips", texts = [{ path = "/etc/chips/visible", text = "{0xBITS}", bit = "{index}" }] }]
"#;

const HOST: &str = "file /proc/chips/params\n| Make: 1\n\
    file /proc/chips/0/info\nfile /proc/chips/1/info\n";

/// What the plan masks: the directory, the texts, and what is shown; or why
/// there is no plan.
fn masked(host: &RecordedHost, env: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let class = parse("chips", CHIPS).unwrap();
    let env: Vec<_> = env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let request = Request::find(&class, &env.into(), |_| None)
        .unwrap()
        .unwrap();
    let plan = plan(&class, &request, host, &asker())?;
    let mut seen = Vec::new();
    for step in &plan.steps {
        if let Action::Mask {
            path,
            files,
            visible_mounts,
            ..
        } = &step.action
        {
            seen.push(path.display().to_string());
            let files = files.iter();
            seen.extend(files.map(|(path, text)| format!("{}={text:?}", path.display())));
            let shown = visible_mounts.iter();
            seen.extend(shown.map(|mount| mount.path.display().to_string()));
        }
    }
    Ok(seen)
}

#[test]
fn a_container_sees_its_own_devices_and_the_copies() {
    let host = RecordedHost::parse(HOST).unwrap();
    let params = "/proc/chips/params=\"Make: 0\\n\"";
    for (env, wanted) in [
        (
            [("CHIPS", "1")].as_slice(),
            ["/proc/chips", params, "/proc/chips/1/info"].as_slice(),
        ),
        (
            &[("CHIPS", "0-1")],
            &[
                "/proc/chips",
                params,
                "/proc/chips/0/info",
                "/proc/chips/1/info",
            ],
        ),
        // The driver's files, and no device.
        (&[("CHIPS", "none")], &["/proc/chips", params]),
        // A container that is not to have the mask sees everything anyway.
        (
            &[("CHIPS", "1"), ("CAPS", "profile")],
            &["/etc/chips", "/etc/chips/visible=\"{0x2}\""],
        ),
    ] {
        assert_eq!(masked(&host, env).unwrap(), wanted, "{env:?}");
    }
}

#[test]
fn what_is_promised_and_is_not_there_is_named() {
    let mut binary = RecordedHost::parse(HOST).unwrap();
    binary.add_file("/proc/chips/params", b"\xff\xfe".as_slice());
    let without = |path: &str| {
        let mut host = RecordedHost::parse(HOST).unwrap();
        host.remove(Path::new(path));
        host
    };
    for (host, wanted) in [
        (binary, "chips: /proc/chips/params is not plain text"),
        (
            without("/proc/chips/1/info"),
            "chip-1: /proc/chips/1/info does not exist",
        ),
    ] {
        assert_eq!(masked(&host, &[("CHIPS", "1")]), Err(wanted.to_owned()));
    }
}

#[test]
fn a_copy_that_the_host_lacks_is_not_there() {
    let mut host = RecordedHost::parse(HOST).unwrap();
    host.remove(Path::new("/proc/chips/params"));
    let seen = masked(&host, &[("CHIPS", "1")]).unwrap();
    assert_eq!(seen, ["/proc/chips", "/proc/chips/1/info"]);
}

#[test]
fn a_text_has_a_bit_for_each_device() {
    let text = format!("{HOST}file /proc/chips/63/info\nfile /proc/chips/64/info\n");
    let host = RecordedHost::parse(&text).unwrap();
    for (devices, wanted) in [
        ("1", Some("{0x2}")),
        ("0,1", Some("{0x3}")),
        ("0,63", Some("{0x8000000000000001}")),
        // Beyond what a text can say.
        ("0,64", Some("{0x1}")),
        ("none", None),
    ] {
        let seen = masked(&host, &[("CHIPS", devices), ("CAPS", "profile")]).unwrap();
        let wanted = wanted.map(|text| {
            let text = format!("/etc/chips/visible={text:?}");
            ["/etc/chips".to_owned(), text]
        });
        assert_eq!(
            seen,
            wanted.into_iter().flatten().collect::<Vec<_>>(),
            "{devices}"
        );
    }
}

/// libnvidia-container, nvc_mount.c (`update_app_profile`): the minor numbers of the
/// container's GPUs, here 1, and 1 and 0.
#[test]
fn a_container_draws_on_its_own_gpus() {
    let (class, host) = (shipped_class("nvidia-gpu"), host("nvidia-gpu/h200"));
    for (devices, bits) in [("0", "0x2"), ("all", "0x3")] {
        let env = vec![format!("NVIDIA_VISIBLE_DEVICES={devices}")];
        let request = Request::find(&class, &env.into(), |_| None)
            .unwrap()
            .unwrap();
        let plan = plan(&class, &request, &host, &asker()).unwrap();
        let texts = plan.steps.iter().filter_map(|step| match &step.action {
            Action::Mask { files, .. } => Some(files.values()),
            _ => None,
        });
        let profile = format!(
            r#"{{"profiles":[{{"name":"_container_","settings":["EGLVisibleDGPUDevices",{bits}]}}],"rules":[{{"pattern":[],"profile":"_container_"}}]}}"#
        );
        assert!(texts.flatten().any(|text| *text == profile), "{plan}");
    }
}

const LISTED: &str = r#"
version = 1
resource = "example.com/stick"
request = { env = "STICKS" }
discover = [{ path = "/sys/bus/usb/devices/{port}", require = [{ exists = "/sys/bus/usb/devices/{port}/idVendor" }] }]
[device]
id = "usb-{port}"
nodes = ["/dev/usb-{port}"]
unmask = [
  "/sys/bus/usb/devices/{port}",
  { for_each = "/sys/bus/usb/devices/{port}:{interface}", path = "/sys/bus/usb/devices/{port}:{interface}" },
  { path = "/sys/class/drm/{port}", optional = true },
]
[[edits]]
masks = [{ path = "/sys/bus/usb/devices" }, { path = "/sys/class/drm" }]
"#;

/// A directory in place of the link would break the links in it, such as `driver`.
#[test]
fn links_of_the_kernel_stay_links() {
    let mut host = String::new();
    for name in ["1-2", "1-2:1.0", "1-2:1.1", "1-3", "1-3:1.0"] {
        host += &format!("link /sys/bus/usb/devices/{name} ../../../devices/usb1/{name}\n");
        host += &format!("file /sys/devices/usb1/{name}/uevent\n");
    }
    for port in ["1-2", "1-3"] {
        host += &format!("file /sys/devices/usb1/{port}/idVendor\nchar /dev/usb-{port} 189:1\n");
    }
    let host = RecordedHost::parse(&host).unwrap();
    let class = parse("sticks", LISTED).unwrap();
    let env = vec!["STICKS=usb-1-2".to_owned()];
    let request = Request::find(&class, &env.into(), |_| None)
        .unwrap()
        .unwrap();
    let plan = plan(&class, &request, &host, &asker()).unwrap();
    let masks = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Mask {
            path,
            links,
            visible_mounts,
            ..
        } => Some((path, links, visible_mounts.len())),
        _ => None,
    });
    // A list that has none of the container's devices stays as it is: no mask of /sys/class/drm.
    let masks: Vec<_> = masks.collect();
    let [(path, links, 0)] = masks.as_slice() else {
        panic!("{masks:?}");
    };
    assert_eq!(*path, Path::new("/sys/bus/usb/devices"));
    let wanted = ["1-2", "1-2:1.0", "1-2:1.1"].map(|name| {
        let link = Path::new("/sys/bus/usb/devices").join(name);
        (link, Path::new("../../../devices/usb1").join(name))
    });
    assert_eq!(**links, wanted.into());
}
