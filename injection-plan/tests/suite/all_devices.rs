//! Tests of requests of all devices, of which some or all are unhealthy.

use device_class::host::RecordedHost;
use injection_plan::plan::{Authority, CheckpointDevices};
use injection_plan::request::{DeviceList, Request, RequestSource};

use crate::names::{chosen, request};
use crate::planning::{asker, parse, plan};

/// A class of lamps that are unhealthy if their state file says so.
const LAMPS: &str = "version = 1\nresource = 'example.com/{kind}'\nrequest = { env = 'LAMPS' }\n\
    [[discover]]\npath = '/sys/lamps/{name}'\nattributes = [{ name = 'kind', file = 'kind' }]\n\
    [device]\nid = '{name}'\nhealth = [{ file = 'state', equals = 'ok' }]\n";

fn lamps(states: &[(&str, &str, &str)]) -> RecordedHost {
    let files = states.iter().map(|(name, kind, state)| {
        format!("file /sys/lamps/{name}/kind\n| {kind}\nfile /sys/lamps/{name}/state\n| {state}\n")
    });
    RecordedHost::parse(&files.collect::<String>()).unwrap()
}

#[test]
fn all_of_devices_of_which_none_is_healthy_is_refused_with_the_reasons() {
    let class = parse("lamp", LAMPS).unwrap();
    let ill = lamps(&[("left", "red", "hot"), ("right", "blue", "broken")]);
    let half = lamps(&[("left", "red", "hot"), ("right", "blue", "ok")]);
    let none = lamps(&[]);
    for (host, value, expected) in [
        (
            &ill,
            "all",
            Err(["left is unhealthy", "hot", "right is unhealthy", "broken"].as_slice()),
        ),
        (&ill, "left,ALL", Err(&["right is unhealthy"])),
        (&ill, "example.com/red=all", Err(&["left is unhealthy"])),
        (&half, "example.com/red=all", Err(&["left is unhealthy"])),
        (
            &half,
            "example.com/green=all",
            Err(&["no device `example.com/green=all`"]),
        ),
        (&ill, "left", Ok("left")),
        (&ill, "none", Ok("")),
        (&half, "all", Ok("right")),
        // Hardware that is absent: images set this by default.
        (&none, "all", Ok("")),
    ] {
        let found = chosen(&class, host, value);
        match (found, expected) {
            (Ok(devices), Ok(expected)) => assert_eq!(devices, expected, "{value}"),
            (Err(refused), Err(words)) => {
                assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
            }
            (found, _) => panic!("{value}: {found:?}"),
        }
    }
    // In a pod the kubelet's record decides, whatever the image requests.
    let recorded = Authority::Kubelet(CheckpointDevices::default());
    let request = request(&class, "all").unwrap().unwrap();
    assert!(plan(&class, &request, &ill, &recorded).is_ok());
}

/// The firmware of a stick may be loaded after the container has started.
#[test]
fn all_of_a_followed_class_waits_for_devices_that_become_healthy() {
    let class = parse("lamp", &format!("follow = true\n{LAMPS}")).unwrap();
    let ill = lamps(&[("left", "red", "hot")]);
    let request = request(&class, "all").unwrap().unwrap();
    let plan = plan(&class, &request, &ill, &asker()).unwrap();
    let [grant] = &plan.grants[..] else {
        panic!("one grant");
    };
    assert!(grant.devices.is_empty());
    let awaited: Vec<String> = grant.describe_awaited_devices().collect();
    assert!(
        awaited[0].contains("waiting for all of lamp"),
        "{awaited:?}"
    );
    assert!(
        plan.warnings[0].contains("left is left out") && plan.warnings[0].contains("hot"),
        "{:?}",
        plan.warnings
    );
    // The devices of a CDI specification or of a command cannot come later.
    let devices = || DeviceList::parse("all").unwrap();
    for source in [
        RequestSource::Cdi { devices: devices() },
        RequestSource::Attach { devices: devices() },
    ] {
        let request = Request {
            source,
            ..request.clone()
        };
        let refused = crate::planning::plan(&class, &request, &ill, &asker()).unwrap_err();
        assert!(refused.contains("left is unhealthy"), "{refused}");
    }
}

#[test]
fn the_reasons_of_many_devices_are_cut() {
    let class = parse("lamp", LAMPS).unwrap();
    let names: Vec<String> = (0..100).map(|number| format!("lamp{number:02}")).collect();
    let states: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), "red", "hot"))
        .collect();
    let refused = chosen(&class, &lamps(&states), "all").unwrap_err();
    assert!(
        refused.contains("lamp07") && !refused.contains("lamp08"),
        "{refused}"
    );
    assert!(refused.contains("; and 92 more"), "{refused}");
}
