//! The shipped classes on recorded hosts: what is found, and what is planned.
//! `UPDATE_EXPECT=1 cargo test -p device-class` writes the golden files anew;
//! the difference is then read like any other change.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use device_class::discover::{self, DriverRoot, Inventory};
use device_class::host::RecordedHost;
use device_class::load::ClassSource;
use device_class::plan::{self, Asked, Authority, Granted};
use device_class::request::Request;
use device_class::{DeviceClass, HostView};

fn class(name: &str) -> DeviceClass {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("classes/{name}.toml"));
    ClassSource::read(&path)
        .and_then(|source| source.parse())
        .unwrap_or_else(|e| panic!("{e}"))
}

fn testdata(class: &str, file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(class)
        .join(file)
}

fn host(class: &str) -> RecordedHost {
    let text = std::fs::read_to_string(testdata(class, "host.txt")).unwrap();
    RecordedHost::parse(&text).unwrap()
}

fn inventory_text(inventory: &Inventory) -> String {
    let mut text = String::new();
    for device in &inventory.devices {
        let numa = device
            .numa
            .map_or("none".to_owned(), |node| node.to_string());
        let (id, resource, health) = (&device.id, &device.resource, &device.health);
        writeln!(text, "{id}  {resource}  numa {numa}  {health}").unwrap();
    }
    for warning in &inventory.warnings {
        writeln!(text, "warning: {warning}").unwrap();
    }
    text
}

fn plan_text(class: &DeviceClass, host: &dyn HostView, env: &[(&str, &str)]) -> String {
    let inventory = discover::devices(class, host);
    let lookup = |name: &str| {
        env.iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| *value)
    };
    let request = match Request::of(class, lookup, |_| None) {
        Ok(Some(request)) => request,
        Ok(None) => return "no request\n".into(),
        Err(refused) => return format!("refused: {refused}\n"),
    };
    let driver = DriverRoot {
        view: host,
        path: Path::new("/"),
    };
    let attributes = &inventory.host_attributes;
    let edits = discover::edits(class, &request.capabilities, attributes, host, driver).unwrap();
    let asked = Asked {
        request: &request,
        inventory: &inventory,
        edits: &edits,
        authority: &Authority::Asker {
            why: "this is a test".into(),
        },
    };
    match plan::plan(&[asked], &Granted::default()) {
        Ok(plan) => plan.to_string(),
        Err(error) => format!("refused: {error}\n"),
    }
}

fn check(name: &str, requests: &[&[(&str, &str)]]) {
    let (class, host) = (class(name), host(name));
    let inventory = inventory_text(&discover::devices(&class, &host));
    expect_test::expect_file![testdata(name, "inventory.txt")].assert_eq(&inventory);
    let plans = requests.iter().map(|env| {
        let asked: Vec<String> = env
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        format!("$ {}\n{}", asked.join(" "), plan_text(&class, &host, env))
    });
    let plans = plans.collect::<Vec<_>>().join("\n");
    expect_test::expect_file![testdata(name, "plan.txt")].assert_eq(&plans);
}

#[test]
fn dummy_npu() {
    check(
        "dummy-npu",
        &[
            &[("DUMMY_VISIBLE_DEVICES", "npu-3,npu-10")],
            &[("DUMMY_VISIBLE_DEVICES", "2-3")],
            &[("DUMMY_VISIBLE_DEVICES", "none")],
            &[("DUMMY_VISIBLE_DEVICES", "void")],
            &[("DUMMY_VISIBLE_DEVICES", "npu-64")],
        ],
    );
}

#[test]
fn coral_edgetpu() {
    check(
        "coral-edgetpu",
        &[
            &[("CORAL_VISIBLE_DEVICES", "apex_10")],
            &[("CORAL_VISIBLE_DEVICES", "all")],
            &[("CORAL_VISIBLE_DEVICES", "1")],
        ],
    );
}

#[test]
fn nvidia_gpu() {
    check(
        "nvidia-gpu",
        &[
            &[("NVIDIA_VISIBLE_DEVICES", "all")],
            &[
                ("NVIDIA_VISIBLE_DEVICES", "0"),
                ("NVIDIA_DRIVER_CAPABILITIES", "utility,video"),
            ],
            &[
                ("NVIDIA_VISIBLE_DEVICES", "none"),
                ("NVIDIA_DRIVER_CAPABILITIES", "compute"),
            ],
            &[(
                "NVIDIA_VISIBLE_DEVICES",
                "GPU-00000000-0000-0000-0000-000000000000",
            )],
        ],
    );
}
