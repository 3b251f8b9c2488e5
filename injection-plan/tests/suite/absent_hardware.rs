//! Tests of containers that request a class on a host without its hardware or driver. Many
//! images request all devices by default.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::read_to_string;

use device_class::host::RecordedHost;
use device_class::{DeviceClass, discover};
use injection_plan::plan::{Authority, CheckpointDevices, InjectionPlan};
use injection_plan::request::Request;

use crate::planning::{self, asker, directory, parse, recordings, shipped, shipped_class};

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
    Authority::Kubelet(CheckpointDevices {
        holder: "container c of pod default/p".into(),
        devices: devices.collect::<BTreeMap<_, _>>(),
        ..CheckpointDevices::default()
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
                // A line of its own says that a container waits for devices that may come.
                let waiting = plan.grants[0].describe_awaited_devices().count();
                assert!(is_silent || plan.warnings.len() + waiting == 1, "{context}");
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

/// A container is restarted after the number of replicas of its class has changed. The kubelet still
/// has the id of that time.
#[test]
fn a_container_keeps_its_device_if_the_replicas_change() {
    let class = |sharing: &str| {
        let text = format!(
            "version = 1\nresource = 'example.com/npu'\nrequest = {{ env = 'NPUS' }}\n\
             discover = [{{ count = 2 }}]\ndevice = {{ id = 'npu-{{index}}' }}\n{sharing}"
        );
        parse("npu", &text).unwrap()
    };
    let shared = "sharing = { replicas = 2 }\n";
    for (sharing, id, is_known) in [
        ("", "npu-1", true),
        ("", "npu-1::3", true),
        (shared, "npu-1", true),
        (shared, "npu-1::1", true),
        (shared, "npu-1::7", true),
        (shared, "npu-2::0", false),
        ("", "npu-1::x", false),
    ] {
        let authority = kubelet(&[("example.com/npu", id)]);
        let plan = plan(&class(sharing), "all", &authority);
        assert_eq!(plan.is_ok(), is_known, "{id}, {sharing:?}: {plan:?}");
        if let Ok(plan) = plan {
            let devices = &plan.grants[0].devices;
            assert_eq!(devices.len(), 1, "{plan}");
            assert_eq!(devices[0].as_str(), "npu-1", "{plan}");
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
        let found = discover::find_devices(&shipped_class("kvm"), &host).devices;
        assert_eq!(found.len(), devices, "{driver}");
    }
}

/// Clusters and images set the variables of `switches` for every container, also on hosts without the
/// hardware that they are about.
#[test]
fn a_switch_does_not_refuse_a_container_on_any_recorded_host() {
    let mut tried = 0;
    for class in shipped() {
        for recording in recordings(directory("testdata").join(class.name.as_str())) {
            let host = RecordedHost::parse(&read_to_string(recording.join("host.txt")).unwrap());
            let host = host.unwrap();
            let planned = |switch: &str| {
                let all = format!("{}=all", class.spec.request.env);
                let env = vec![all, switch.to_owned()];
                let request = Request::find(&class, &env.into(), |_| None).unwrap();
                planning::plan(&class, &request.unwrap(), &host, &asker())
            };
            if planned("OTHER=1").is_err() {
                continue;
            }
            for (variable, values) in &class.spec.request.switches {
                for value in values.keys() {
                    let switch = format!("{variable}={value}");
                    let plan = planned(&switch).unwrap_or_else(|error| {
                        panic!("{} {switch}: {error}", recording.display())
                    });
                    assert!(!plan.grants[0].devices.is_empty(), "{plan}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 20, "{tried}");
}

#[test]
fn what_a_host_lacks_is_a_note_for_a_switch_and_else_a_warning() {
    let class = parse(
        "class",
        "version = 1\n\
         description = 'Class'\n\
         resource = 'example.com/class'\n\
         [request]\n\
         env = 'CLASS'\n\
         capabilities_env = 'CAPABILITIES'\n\
         default_capabilities = ['usual']\n\
         switches = { FURTHER = { on = 'further' } }\n\
         [[discover]]\n\
         path = '/dev/class{number:number}'\n\
         [device]\n\
         id = 'class{number}'\n\
         nodes = ['/dev/class{number}']\n\
         [[edits]]\n\
         capability = 'usual'\n\
         optional = true\n\
         nodes = [{ path = '/dev/usual', needed_for = 'computing', advice = 'load it' }]\n\
         [[edits]]\n\
         capability = 'further'\n\
         optional = true\n\
         nodes = [{ path = '/dev/further', needed_for = 'copying' }]\n",
    )
    .unwrap();
    let devices = "char /dev/class0 240:0\n";
    let lacks = |nodes: &str| {
        let host = RecordedHost::parse(&format!("{devices}{nodes}")).unwrap();
        let env = vec!["CLASS=all".to_owned(), "FURTHER=on".to_owned()];
        let request = Request::find(&class, &env.into(), |_| None).unwrap();
        let plan = planning::plan(&class, &request.unwrap(), &host, &asker()).unwrap();
        let notes = plan.notes.iter().map(ToString::to_string);
        (plan.warnings, notes.collect::<Vec<_>>())
    };
    let usual = "class: /dev/usual does not exist, and computing fails without it; load it";
    let further = "class: /dev/further does not exist, and copying fails without it";
    assert_eq!(
        lacks(""),
        (vec![usual.to_owned()], vec![further.to_owned()])
    );
    let all = "char /dev/usual 240:1\nchar /dev/further 240:2\n";
    assert_eq!(lacks(all), (Vec::new(), Vec::new()));
}

#[test]
fn a_class_may_ignore_names_where_the_host_has_none_of_it() {
    let class = shipped_class("nvidia-imex");
    let planned_by = |host: &str, value: &str, authority: &Authority| {
        let host = RecordedHost::parse(host).unwrap();
        let env = vec![format!("NVIDIA_IMEX_CHANNELS={value}")];
        let request = Request::find(&class, &env.into(), |_| None).unwrap();
        planning::plan(&class, &request.unwrap(), &host, authority)
    };
    let planned = |host: &str, value: &str| planned_by(host, value, &asker());
    for value in ["0", "channel3,0", "0-7", "all"] {
        let plan = planned("", value).unwrap();
        assert!(plan.steps.is_empty(), "{plan}");
        let said = "not injecting anything of nvidia-imex: this host has no device of it";
        let said = format!("env NVIDIA_IMEX_CHANNELS={value}: {said}");
        assert_eq!(plan.warnings, [said]);
        let in_a_pod = planned_by("", value, &kubelet(&[])).unwrap();
        assert!(in_a_pod.steps.is_empty(), "{in_a_pod}");
    }
    let channel = "char /dev/nvidia-caps-imex-channels/channel0 235:0\n";
    assert!(planned(channel, "0").is_ok());
    let error = planned(channel, "7").unwrap_err();
    assert!(error.contains("has no device `7`"), "{error}");
}
