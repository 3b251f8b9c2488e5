use std::path::Path;
use std::time::{Duration, Instant};

use device_class::discover::{self, Device, Inventory};
use device_class::host::RecordedHost;
use device_class::name::ClassName;

use super::*;

/// Returns a class with a resource by template, three kinds of names, and capabilities.
const CLASS: &str = r#"version = 1
resource = "vendor.com/{sort}"
[request]
env = "VISIBLE"
capabilities_env = "CAPS"
default_capabilities = ["base"]
[[discover]]
count = 4
attributes = [
  { name = "sort", value = "npu" },
  { name = "bdf", value = "0000:0{index}:00.0" },
  { name = "serial", value = "AbC{index}" },
]
[device]
id = "NPU-{serial}"
index = "{index}"
aliases = ["{bdf}", "0x5c4a{index}", "part/{index}", "every"]
[[edits]]
capability = "base"
[[edits]]
capability = "Video"
[[edits]]
unless_capability = "NOFILES"
"#;

fn class(text: &str) -> DeviceClass {
    let name = ClassName::try_from("npu".to_owned()).unwrap();
    DeviceClass::parse(name, Path::new("npu.toml"), text).unwrap_or_else(|e| panic!("{e}"))
}

fn devices(class: &DeviceClass) -> Vec<Device> {
    let host = RecordedHost::parse("").unwrap();
    discover::find_devices(class, &host).devices
}

fn request(class: &DeviceClass, env: &[(&str, &str)]) -> Result<Option<Request>, RefusedRequest> {
    let env: Vec<String> = env.iter().map(|(n, v)| format!("{n}={v}")).collect();
    Request::find(class, &env.into(), |_| None)
}

/// The result of a request: a word, the indices of devices, or the error.
fn asked(class: &DeviceClass, devices: &[Device], value: &str) -> String {
    let selection = match request(class, &[("VISIBLE", value)]) {
        Ok(None) => return "nothing".into(),
        Ok(Some(request)) => request.selection,
        Err(refused) => return refused.error.to_string(),
    };
    let inventory = Inventory {
        devices: devices.to_vec(),
        ..Inventory::default()
    };
    let chosen = selection.choose_devices(class, &inventory);
    match chosen {
        _ if selection == Selection::FilesOnly => "files".into(),
        _ if selection == Selection::All => "all".into(),
        Ok(chosen) => {
            let indices = chosen.iter().map(|device| device.index.clone().unwrap());
            indices.collect::<Vec<_>>().join(" ")
        }
        Err(error) => error.to_string(),
    }
}

/// Forms that users of vendors' stacks write, and what those stacks make of
/// them: libnvidia-container `select_devices` (case, extra commas, `all` in a
/// list, PCI addresses with any number of zeros), nvidia-container-toolkit
/// `DevicesFromEnvvars` and `NewVisibleDevices` (blanks, `void` before `none`
/// before `all`), ROCm container-toolkit `parseGPUsList` (case of `0x…`).
#[test]
fn a_request_means_what_it_means_in_the_vendors_stack() {
    let class = class(CLASS);
    let devices = devices(&class);
    let left_out = |item: &str| {
        format!(
            "`{item}` leaves out no device; name those that the container is to have, or hide one from \
             all containers (`except` in config.toml)"
        )
    };
    let no_fourth = "class npu has no device `4` on this host; there are 4: 0 (NPU-AbC0), \
                     1 (NPU-AbC1), 2 (NPU-AbC2), 3 (NPU-AbC3)";
    for (value, wanted) in [
        ("", "nothing"),
        (" , ,", "nothing"),
        ("void", "nothing"),
        ("VOID", "nothing"),
        ("0,void", "nothing"),
        ("all,none,void", "nothing"),
        ("none", "files"),
        ("None", "files"),
        ("all,none", "all"),
        ("0,none,all", "files"),
        ("all", "all"),
        (" ALL ", "all"),
        ("All", "all"),
        ("0,all", "all"),
        ("vendor.com/npu=all", "0 1 2 3"),
        ("0", "0"),
        ("0,", "0"),
        ("0,,1", "0 1"),
        (" 3 , 1-2,1", "1 2 3"),
        ("0-2,1-3,2-2", "0 1 2 3"),
        ("NPU-AbC1", "1"),
        ("npu-abc1", "1"),
        ("0x5C4A2", "2"),
        ("0X5c4a2", "2"),
        ("0000:02:00.0", "2"),
        ("00000000:02:00.0", "2"),
        ("0:02:00.0", "2"),
        ("PART/3", "3"),
        ("EVERY,0", "0 1 2 3"),
        ("vendor.com/npu=0", "0"),
        ("vendor.com/npu=NPU-abc1,vendor.com/npu=3", "1 3"),
        (
            "vendor.org/npu=0",
            "`vendor.org/npu=0` is of the kind vendor.org/npu, which is not a resource of the class; \
             write 0",
        ),
        (
            "3=/dev/x",
            "`3=/dev/x` is of the kind 3, which is not a resource of the class; write 3:/dev/x",
        ),
        (
            &format!("b.org/npu={}", "a".repeat(65)),
            &format!(
                "`b.org/npu={}…` is of the kind b.org/npu, which is not a resource of the class; write \
                 only what follows the last `=`",
                "a".repeat(54)
            ),
        ),
        ("all,-3", &left_out("-3")),
        ("!3,all", &left_out("!3")),
        ("all,3", "all"),
        ("none,-3", "files"),
        ("!3,none,all", "files"),
        ("4", no_fourth),
        ("2-4294967295", no_fourth),
        (
            "3-0",
            "`3-0` ends before it begins; write 0-3, or \"3-0\" for the device with this name",
        ),
        (
            &"npu-1,".repeat(20_000),
            "120000 bytes is too long; a request may have at most 65536",
        ),
    ] {
        assert_eq!(asked(&class, &devices, value), wanted, "{value:.40}");
        let requests_nothing = Selection::requests_nothing(value);
        assert_eq!(requests_nothing, wanted == "nothing", "{value:.40}");
    }
    for (value, named) in [
        ("vendor.com/npu=", ""),
        ("0-", "0-"),
        ("0-1-2", "0-1-2"),
        ("0-99999999999", "0-99999999999"),
        ("a b", "a b"),
        ("a\0b", "a\\0b"),
        ("a\nb\x1b[2J", "a\\nb\\u{1b}[2J"),
    ] {
        let wanted = "is neither a device nor a range such as 0-3; separate several with commas";
        let wanted = format!("`{named}` {wanted}");
        assert_eq!(asked(&class, &devices, value), wanted, "{value:?}");
    }
}

#[test]
fn ids_that_differ_in_case_alone_stay_apart() {
    let class = class(
        "version = 1\nresource = 'vendor.com/npu'\nrequest = { env = 'VISIBLE' }\n\
         [[discover]]\ncount = 2\nattributes = [{ name = 'name', value = '{index}', \
         map = { 0 = 'Npu', 1 = 'nPU' } }]\n[device]\nid = '{name}'\nindex = '{index}'\n",
    );
    let devices = devices(&class);
    for (value, wanted) in [("Npu", "0"), ("nPU", "1"), ("nPU,Npu", "0 1")] {
        assert_eq!(asked(&class, &devices, value), wanted, "{value}");
    }
    let error = asked(&class, &devices, "npu");
    assert!(error.contains("no device `npu`"), "{error}");
}

#[test]
fn a_shared_device_is_meant_by_its_name_and_by_its_replicas() {
    let text = format!("{CLASS}[sharing]\nreplicas = 3\n");
    let class = class(&text);
    let devices = devices(&class);
    for (value, wanted) in [
        ("NPU-AbC1", "1"),
        ("NPU-AbC1::0,npu-abc2::2", "1 2"),
        ("NPU-AbC1::0,NPU-AbC1::1", "1"),
    ] {
        assert_eq!(asked(&class, &devices, value), wanted, "{value}");
    }
    for value in ["NPU-AbC1::3", "NPU-AbC1::x", "other::0", "::"] {
        let error = asked(&class, &devices, value);
        assert!(error.contains("no device"), "{value}: {error}");
    }
}

/// `utility,all` means all capabilities: libnvidia-container and the toolkit accept `all`
/// among others. Exceptions, which remove something, are not part of `all`.
#[test]
fn capabilities_are_named_in_any_case_and_all_may_stand_among_them() {
    let class = class(CLASS);
    let many: Vec<String> = (0..20).map(|n| format!("x{n:02}")).collect();
    for (value, wanted, unknown) in [
        (None, "base", 0),
        (Some(""), "base", 0),
        (Some(" , "), "base", 0),
        (Some("video"), "Video", 0),
        (Some("all"), "Video base", 0),
        (Some("base,ALL"), "Video base", 0),
        (Some("nofiles,all,odd"), "NOFILES Video base", 1),
        (Some(&many.join(",")), "", 9),
    ] {
        let mut env = vec![("VISIBLE", "0")];
        env.extend(value.map(|value| ("CAPS", value)));
        let request = request(&class, &env).unwrap().unwrap();
        let names: Vec<&str> = request
            .capabilities
            .iter()
            .map(|name| name.as_str())
            .collect();
        assert_eq!(names.join(" "), wanted, "{value:?}");
        assert_eq!(request.unknown_capabilities.len(), unknown, "{value:?}");
    }
    let long = "base,".repeat(20_000);
    let error = request(&class, &[("VISIBLE", "0"), ("CAPS", &long)]).unwrap_err();
    assert!(error.error.to_string().contains("100000 bytes"), "{error}");
}

/// The vendor's stack reads the variable with Go's `strconv.ParseBool`.
#[test]
fn requirements_are_switched_off_by_true_alone() {
    let text = CLASS.replace(
        "[[discover]]",
        "[request.requirements]\nenv_prefix = 'REQUIRE_'\ndisable_env = 'DISABLE'\n\
         values = {}\n[[discover]]",
    );
    let class = class(&text);
    let off = ["1", "t", "T", "true", "TRUE", "True"];
    let on = ["0", "f", "F", "false", "FALSE", "False"];
    let neither = ["", "no", "yes", "tRUE", " true", "2"];
    for switch in [off, on, neither].concat() {
        let is_off = off.contains(&switch);
        let env = [("VISIBLE", "0"), ("REQUIRE_X", "x>=1"), ("DISABLE", switch)];
        let request = request(&class, &env).unwrap().unwrap();
        assert_eq!(request.requirements.is_empty(), is_off, "{switch:?}");
    }
    let long = "x>=1 ".repeat(20_000);
    let error = request(&class, &[("VISIBLE", "0"), ("REQUIRE_X", &long)]).unwrap_err();
    assert!(error.error.to_string().contains("100000 bytes"), "{error}");
}

/// A user names a card by the serial number on its label, and the card is divided.
#[test]
fn a_device_that_is_divided_is_named_with_its_parts() {
    let class = class(CLASS);
    let mut devices = devices(&class);
    let divided_device = devices.remove(1);
    for part in &mut devices[1..] {
        part.part_of = Some(divided_device.id.clone());
    }
    let inventory = Inventory {
        devices,
        parts_only_devices: vec![divided_device],
        ..Inventory::default()
    };
    let hint = "is divided, and a container can get its parts: NPU-AbC2, NPU-AbC3";
    for (name, has_hint) in [
        ("NPU-AbC1", true),
        ("0000:01:00.0", true),
        ("1", true),
        ("NPU-AbC7", false),
    ] {
        let request = request(&class, &[("VISIBLE", name)]).unwrap().unwrap();
        let error = request.selection.choose_devices(&class, &inventory);
        let text = error.unwrap_err().to_string();
        let expected = format!("{name} {hint}");
        assert_eq!(text.contains(&expected), has_hint, "{text}");
    }
}

/// The largest requests that are read, on a host with more devices than any: each
/// would take minutes if every item were looked up among all devices.
#[test]
fn a_hostile_request_takes_no_time() {
    let class = class(CLASS);
    let first = devices(&class).swap_remove(0);
    let devices: Vec<Device> = (0..10_000)
        .map(|number| Device {
            id: format!("npu-{number}").try_into().unwrap(),
            part_of: None,
            can_request_whole_device: false,
            index: Some(number.to_string()),
            aliases: vec!["every".into(), format!("a-{number}")],
            ..first.clone()
        })
        .collect();
    let fill = |item: &str| item.repeat(MAX_REQUEST_BYTES / item.len());
    let chain: String = (0..5_000).map(|n| format!("{n}-{},", n + 4_999)).collect();
    for (value, wanted) in [
        (fill("0-1999,"), 2_000),
        (fill("0-9999,"), 10_000),
        (chain, 9_999),
        (fill("every,"), 10_000),
        (fill("a-7,"), 1),
        (fill("0,"), 1),
    ] {
        let inventory = Inventory {
            devices: devices.clone(),
            ..Inventory::default()
        };
        let start = Instant::now();
        let selection = Selection::parse(&value, &class.spec).unwrap();
        let chosen = selection
            .choose_devices(&class, &inventory)
            .map_or(0, |chosen| chosen.len());
        let took = start.elapsed();
        assert_eq!(chosen, wanted, "{value:.20}");
        // The limit is generous for a debug build on a busy machine.
        assert!(took < Duration::from_secs(20), "{value:.20}: {took:?}");
    }
}
