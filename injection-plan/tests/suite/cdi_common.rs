//! A plain specification with common mounts gives a container the same as one in which each device
//! has all of its edits. Every shipped class is compared on every recorded host.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;

use device_class::DeviceClass;
use device_class::discover;
use device_class::host::RecordedHost;
use device_class::name::CapabilityName;
use injection_plan::cdi::{
    CdiDevices, GeneratedSpecifications, Generator, SpecificationForm, SpecificationOwner,
};
use serde_json::{Value, json};

use crate::planning::{directory, recordings, shipped, shipped_class};

/// The plain form.
fn plain() -> SpecificationForm<'static> {
    SpecificationForm {
        hook: None,
        host_root: Path::new("/"),
    }
}

fn mounts(edits: &Value) -> BTreeSet<String> {
    let mounts = edits["mounts"].as_array().into_iter().flatten();
    mounts.map(Value::to_string).collect()
}

/// Describes the devices of a class on a recorded host, as `boathook cdi generate` does.
fn describe(class: &DeviceClass, case: &Path) -> CdiDevices {
    let text = std::fs::read_to_string(case.join("host.txt")).unwrap();
    let host = RecordedHost::parse(&text).unwrap();
    let capabilities = class.spec.request.default_capabilities.iter().cloned();
    let capabilities: BTreeSet<CapabilityName> = capabilities.collect();
    let found = discover::look_up_class(class, (&capabilities).into(), &host).unwrap();
    plain().build_cdi_devices(class, &found)
}

/// Returns edits without their mounts.
fn without_mounts(edits: &Value) -> Value {
    let mut edits = edits.clone();
    edits.as_object_mut().unwrap().remove("mounts");
    edits
}

fn path(mount: &str) -> String {
    let mount: Value = serde_json::from_str(mount).unwrap();
    mount["containerPath"].as_str().unwrap().to_owned()
}

/// Compares a specification with the descriptions of its devices. Returns the number of its common
/// mounts.
fn compare(specification: &Value, described: &CdiDevices) -> usize {
    let common = mounts(&specification["containerEdits"]);
    for device in specification["devices"].as_array().unwrap() {
        let name = device["name"].as_str().unwrap();
        let mut devices = described.devices.iter();
        let (_, whole) = devices
            .find(|(kind, one)| specification["kind"] == kind.as_str() && one.name == name)
            .unwrap();
        let whole = serde_json::to_value(&whole.container_edits).unwrap();
        let edits = &device["containerEdits"];
        assert_ne!(*edits, json!({}), "{name} has no edits");
        assert_eq!(without_mounts(edits), without_mounts(&whole), "{name}");
        let own = mounts(edits);
        let all: BTreeSet<String> = common.union(&own).cloned().collect();
        assert_eq!(all, mounts(&whole), "{name}");
        assert!(common.is_disjoint(&own), "{name}");
        for (one, other) in common
            .iter()
            .flat_map(|one| own.iter().map(move |other| (one, other)))
        {
            let (one, other) = (path(one), path(other));
            let (one, other) = (Path::new(&one), Path::new(&other));
            assert!(
                !one.starts_with(other) && !other.starts_with(one),
                "{one:?} {other:?}"
            );
        }
    }
    common.len()
}

#[test]
fn common_mounts_change_nothing_for_a_container() {
    let mut with_common = 0;
    for class in shipped() {
        for case in recordings(directory("testdata").join(class.name.as_str())) {
            let described = describe(&class, &case);
            let again = describe(&class, &case);
            let generated =
                GeneratedSpecifications::from_cdi_devices(again, SpecificationOwner::User);
            for specification in &generated.specifications {
                let specification = serde_json::to_value(specification).unwrap();
                with_common += usize::from(compare(&specification, &described) > 0);
            }
        }
    }
    assert!(with_common > 10, "{with_common}");
}

/// A GPU has three names: its UUID, its index and `all`. Each of them had all mounts.
#[test]
fn the_libraries_of_a_driver_are_written_once() {
    let case = directory("testdata").join("nvidia-gpu/debian-550");
    let class = shipped_class("nvidia-gpu");
    let described = describe(&class, &case);
    let separate: usize = described
        .devices
        .iter()
        .map(|(_, device)| serde_json::to_string_pretty(device).unwrap().len())
        .sum();
    let names = described.devices.len();
    let generated = GeneratedSpecifications::from_cdi_devices(described, SpecificationOwner::User);
    let [specification] = &generated.specifications[..] else {
        panic!("{:?}", generated.specifications.len());
    };
    let size = serde_json::to_string_pretty(specification).unwrap().len();
    println!("{names} names: {separate} bytes, with common mounts {size}");
    assert!(
        size * names < separate * 3 / 2,
        "{size} of {separate} for {names} names"
    );
}

/// Returns the recorded host with 8 GPUs, each like its only one.
fn with_8_gpus(host: &str) -> String {
    let mut entries: Vec<String> = Vec::new();
    for line in host.lines() {
        match entries.last_mut() {
            Some(entry) if line.starts_with('|') => *entry += &format!("{line}\n"),
            _ => entries.push(format!("{line}\n")),
        }
    }
    let is_gpu = |entry: &str| entry.contains("0000:17:00.0") || entry.contains("/dev/nvidia0 ");
    let copies = (1..8).flat_map(|number| {
        let entries = entries.iter().filter(|entry| is_gpu(entry));
        entries.map(move |entry| {
            entry
                .replace("0000:17:00.0", &format!("0000:{}:00.0", 17 + number))
                .replace("nvidia0 195:0", &format!("nvidia{number} 195:{number}"))
                .replace("1b6f4e10", &format!("1b6f4e1{number}"))
                .replace("Device Minor: \t 0", &format!("Device Minor: \t {number}"))
        })
    });
    entries.iter().cloned().chain(copies).collect()
}

/// The vendor's toolkit writes 44 KB for 8 GPUs. With all mounts at each name it would be 498 KB.
#[test]
fn the_plain_specification_of_8_gpus_is_not_longer_than_the_vendors() {
    let case = directory("testdata").join("nvidia-gpu/debian-550/host.txt");
    let text = std::fs::read_to_string(case).unwrap();
    let host = RecordedHost::parse(&with_8_gpus(&text)).unwrap();
    let generator = Generator {
        selected_classes: &[],
        form: plain(),
    };
    let generated = generator.generate([Ok(shipped_class("nvidia-gpu"))], &host);
    let [specification] = &generated.specifications[..] else {
        panic!("{:?}", generated.specifications.len());
    };
    let value = serde_json::to_value(specification).unwrap();
    // By UUID and by index, and all of them.
    assert_eq!(value["devices"].as_array().unwrap().len(), 8 * 2 + 1);
    let size = serde_json::to_string_pretty(specification).unwrap().len();
    println!("{size} bytes");
    assert!(size <= 44_000, "{size} bytes");
}

/// Without its node the specification is written and a container starts, in which CUDA fails.
#[test]
fn a_node_that_programs_need_and_the_host_lacks_is_named() {
    let case = directory("testdata").join("nvidia-gpu/debian-550/host.txt");
    let text = std::fs::read_to_string(case).unwrap();
    let omissions = |host: &str| {
        let host = RecordedHost::parse(host).unwrap();
        let generator = Generator {
            selected_classes: &[],
            form: plain(),
        };
        let generated = generator.generate([Ok(shipped_class("nvidia-gpu"))], &host);
        assert!(!generated.specifications.is_empty());
        let omissions = generated.omissions.iter();
        omissions.map(ToString::to_string).collect::<Vec<_>>()
    };
    let names_the_node = |line: &String| line.contains("/dev/nvidia-uvm does not exist");
    assert!(!omissions(&text).iter().any(names_the_node));
    let node = text.replace("char /dev/nvidia-uvm 511:0\n", "");
    let without = node.replace("| 511 nvidia-uvm\n", "");
    let found = omissions(&without);
    assert!(found.iter().any(names_the_node), "{found:?}");
}

/// A CAN bus has no node: without the hook a container would get nothing of it.
#[test]
fn a_device_that_only_the_hook_can_give_is_left_out_with_the_reason() {
    let described = describe(&shipped_class("can"), &directory("testdata").join("can"));
    assert!(described.devices.is_empty());
    assert!(!described.omissions.is_empty());
    for omission in &described.omissions {
        let reason = omission.source().unwrap().to_string();
        let expected = "without the hook cannot give a container network interfaces";
        assert!(reason.contains(expected), "{omission}: {reason}");
    }
}
