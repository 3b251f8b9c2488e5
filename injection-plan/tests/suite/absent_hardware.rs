//! Tests of containers that request a class on a host without its hardware or driver. Many
//! images request all devices by default.

use std::collections::{BTreeMap, BTreeSet};

use device_class::host::RecordedHost;
use device_class::{DeviceClass, discover};
use injection_plan::plan::{Authority, InjectionPlan, RecordedDevices};
use injection_plan::request::Request;

use crate::planning::{self, asker, shipped, shipped_class};

/// Plans a container that requests `value` on a host without any devices or drivers.
fn plan(class: &DeviceClass, value: &str, authority: &Authority) -> Result<InjectionPlan, String> {
    let host = RecordedHost::parse("").unwrap();
    let env = vec![format!("{}={value}", class.spec.request.env)];
    let request = Request::find(class, &env.into(), |_| None)
        .unwrap()
        .unwrap();
    planning::plan(class, &request, &host, authority)
}

fn kubelet(devices: &[(&str, &str)]) -> Authority {
    let devices = devices.iter().map(|(resource, id)| {
        let ids = BTreeSet::from([(*id).to_owned().try_into().unwrap()]);
        ((*resource).to_owned().try_into().unwrap(), ids)
    });
    Authority::Kubelet(RecordedDevices {
        holder: "container c of pod default/p".into(),
        devices: devices.collect::<BTreeMap<_, _>>(),
        ..RecordedDevices::default()
    })
}

#[test]
fn a_request_that_names_no_device_gives_nothing_and_warns() {
    // These classes have devices on every host.
    let everywhere = ["dummy-npu"];
    for class in shipped() {
        if everywhere.contains(&class.name.as_str()) {
            continue;
        }
        for authority in [asker(), kubelet(&[]), kubelet(&[("other.com/x", "x-0")])] {
            for value in ["all", "none"] {
                let plan = plan(&class, value, &authority)
                    .unwrap_or_else(|error| panic!("{}={value}: {error}", class.name));
                let context = format!("{}={value}, {authority}: {plan}", class.name);
                assert!(plan.grants[0].devices.is_empty(), "{context}");
                // Files that a class does without may be left out silently.
                let is_silent = value == "none" && plan.steps.is_empty();
                assert!(is_silent || plan.warnings.len() == 1, "{context}");
                assert!(value == "none" || plan.steps.is_empty(), "{context}");
            }
        }
    }
}

#[test]
fn an_image_of_a_vendor_starts_without_the_vendors_driver() {
    let class = shipped_class("nvidia-gpu");
    for value in ["all", "none"] {
        let plan = plan(&class, value, &asker()).unwrap();
        assert!(plan.steps.is_empty(), "{plan}");
        assert_eq!(
            plan.warnings,
            [format!(
                "env NVIDIA_VISIBLE_DEVICES={value}: not injecting anything of nvidia-gpu: the host \
                 has no /proc/driver/nvidia/version"
            )]
        );
    }
}

#[test]
fn devices_that_are_named_are_a_promise() {
    let error = plan(&shipped_class("nvidia-gpu"), "0", &asker()).unwrap_err();
    assert!(
        error.contains("has no device `0` on this host; there are none"),
        "{error}"
    );
}

#[test]
fn devices_that_were_allocated_are_a_promise() {
    for (name, resource) in [
        ("nvidia-gpu", "nvidia.com/gpu"),
        ("nvidia-gpu", "nvidia.com/mig-1g.10gb"),
        ("kvm", "devices.boathook.dev/kvm"),
    ] {
        let class = shipped_class(name);
        let resource = match name {
            "kvm" => class.spec.resource.to_string(),
            _ => resource.to_owned(),
        };
        for value in ["all", "0"] {
            let error = plan(&class, value, &kubelet(&[(&resource, "x-0")])).unwrap_err();
            assert!(error.contains("device x-0 of class"), "{error}");
            assert!(error.contains("was allocated to the container"), "{error}");
        }
    }
}

/// systemd makes the node of KVM wherever there is a driver, also where no processor has
/// what it needs.
#[test]
fn a_node_without_its_driver_is_no_device() {
    let node = "char /dev/kvm 10:232\n";
    for (driver, devices) in [("", 0), ("file /sys/class/misc/kvm/dev\n| 10:232\n", 1)] {
        let host = RecordedHost::parse(&format!("{node}{driver}")).unwrap();
        let found = discover::devices(&shipped_class("kvm"), &host).devices;
        assert_eq!(found.len(), devices, "{driver}");
    }
}
