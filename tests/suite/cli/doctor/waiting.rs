//! `boathook doctor` examines containers that wait for a device: `NAME?` in their request.

use harness::demo_host::HostDirectory;
use serde_json::{Value, json};

use super::stopped_containers::write_docker_files;
use crate::cli::{boathook, bundle};
use crate::said::assert_says;

/// The ids of `sticks` are numbers of nodes, which a device does not keep.
const CLASSES: [(&str, &str, &str, &str); 3] = [
    ("ports", "follow = true\n", "port-{serial}", ""),
    ("plugs", "", "plug-{serial}", ""),
    (
        "sticks",
        "",
        "stick-{number}",
        ", nodes = ['/dev/sticks{number}']",
    ),
];

fn host() -> HostDirectory {
    let host = HostDirectory::new().unwrap();
    for (class, follow, id, nodes) in CLASSES {
        let variable = class.to_uppercase();
        let directory = format!("/sys/class/{class}/{class}");
        let text = format!(
            "version = 1\n{follow}resource = 'example.com/{class}'\n\
             request = {{ env = '{variable}' }}\n\
             device = {{ id = '{id}'{nodes} }}\n\
             [[discover]]\npath = '{directory}{{number:number}}'\n\
             attributes = [{{ name = 'serial', file = '{directory}{{number}}/serial' }}]\n"
        );
        host.add_class(class, &text).unwrap();
        host.add_file(&format!("{directory}0/serial"), "F074")
            .unwrap();
    }
    host
}

#[test]
fn the_last_line_says_what_the_container_waits_for() {
    let host = host();
    for (value, verdict, last_line) in [
        (
            "port-F074",
            "ok devices port-F074 of ports",
            "no fault found",
        ),
        // The service does not run on this host, of which a warning tells.
        (
            "zigbee?",
            "note devices waiting for \"zigbee\" of ports",
            "no device now: waiting for \"zigbee\" of ports, but see the warning",
        ),
        (
            "port-F047?",
            "warning devices waiting for \"port-F047\" of ports",
            "no device now: waiting for \"port-F047\" of ports, but see the 2 warnings",
        ),
        (
            "port-F074,zigbee?",
            "ok devices port-F074 of ports",
            "waiting for \"zigbee\" of ports, but see the warning",
        ),
    ] {
        let ran = boathook(&host, &["doctor", "--env", &format!("PORTS={value}")], b"");
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&text, &[verdict]);
        assert_eq!(ran.stdout.lines().last(), Some(last_line), "{}", ran.stdout);
    }
}

/// The advice must be possible: with `follow = true` a class is refused if its devices cannot be
/// recognized when they come back.
#[test]
fn only_a_class_that_can_be_followed_is_to_be_followed() {
    let host = host();
    let follow = "set `follow = true` in [class.";
    let start = "cannot be followed, so start the container again when the device is there";
    for (class, has, lacks) in [("plugs", follow, start), ("sticks", start, follow)] {
        let bundle = bundle(&[(&class.to_uppercase(), "other?")]);
        let explain = ["explain", "--bundle", bundle.path().to_str().unwrap()];
        let ran = boathook(&host, &explain, b"");
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        let text = format!("{}{}", ran.stdout, ran.stderr);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&text, &[has]);
        assert!(!text.contains(lacks), "{text}");
        host.write_config(&format!("[class.{class}]\nfollow = true\n"))
            .unwrap();
        let code = boathook(&host, &explain, b"").status.code();
        assert_eq!(code == Some(0), has == follow, "{class}: {code:?}");
        host.write_config("").unwrap();
    }
}

/// A program that ends without its device is restarted by Docker. Between two starts, the container
/// has no process and no record.
#[test]
fn a_container_that_docker_restarts_is_waiting() {
    let host = host();
    let id = format!("0e77c01d{:04x}", std::process::id() & 0xffff);
    let restarting = json!({ "Running": true, "Restarting": true, "Pid": 0, "ExitCode": 3 });
    let ended = json!({ "ExitCode": 3 });
    for (value, state, runtime, is_waiting) in [
        ("zigbee?", &restarting, "boathook", true),
        ("port-F074,zigbee?", &restarting, "boathook", true),
        ("zigbee?", &ended, "boathook", false),
        ("zigbee?", &restarting, "runc", false),
        ("port-F074?", &restarting, "boathook", false),
        // The hook refuses it.
        ("zigbee", &restarting, "boathook", false),
    ] {
        write_docker_files(
            &host,
            &id,
            &json!({ "Name": "/zha", "State": state,
                "Config": { "Env": [format!("PORTS={value}")] } }),
            &json!({ "Runtime": runtime }),
        );
        let case = format!("{value} {state} {runtime}");
        let used = boathook(&host, &["list", "--used"], b"");
        let text = used.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = "zha, which docker starts again and again, is waiting for \"zigbee\" of ports";
        assert_eq!(text.contains(words), is_waiting, "{case}: {used:?}");
        let used = boathook(&host, &["list", "--used", "--json"], b"");
        let used: Value = serde_json::from_str(&used.stdout).unwrap();
        let expected = if is_waiting {
            json!([{ "class": "ports", "device": "\"zigbee\"", "container": id, "name": "zha",
                "restarting": true }])
        } else {
            json!([])
        };
        assert_eq!(used["waiting"], expected, "{case}");
        // The hook gives the device at the next start, also if no `boathook follow` runs.
        let check = boathook(&host, &["check"], b"");
        assert!(!check.stdout.contains("waiting, but"), "{case}: {check:?}");
        if is_waiting {
            let doctor = boathook(&host, &["doctor", "zha"], b"");
            let text = doctor
                .stdout
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            assert_says(
                &text,
                &[
                    "docker starts it again and again; its program ended with code 3",
                    "waiting for \"zigbee\" of ports",
                ],
            );
        }
    }
}
