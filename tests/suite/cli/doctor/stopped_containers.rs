//! `boathook doctor` examines containers that do not run: those that were refused, and those whose
//! engine could not start them.

use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::json;

use crate::cli::{boathook, bundle, hook, state, succeeds};
use crate::said::assert_says;

/// A container that was refused does not exist any more; the hook's report does.
#[test]
fn the_log_is_read_for_a_container_that_is_gone() {
    let host = HostDirectory::new().unwrap();
    let refused = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let mut state = state(refused.path());
    let id = format!("gone-{}", std::process::id());
    state["id"] = id.as_str().into();
    hook(&host, &["prestart"], state.to_string().as_bytes());
    let ran = boathook(&host, &["doctor", "--container", &id], b"");
    assert_eq!(ran.status.code(), Some(10), "{}", ran.stdout);
    assert!(ran.stdout.contains("no device `npu-64`"), "{}", ran.stdout);
}

/// Docker removes the bundle of a container that does not run, and keeps its own files.
#[test]
fn a_container_that_docker_could_not_start_is_examined_by_its_name() {
    let host = HostDirectory::new().unwrap();
    let id = format!("0f3cc6559ef{}", std::process::id());
    let with = |value: &str, runtime: &str| {
        let directory = format!("/var/lib/docker/containers/{id}");
        let config = json!({
            "ID": id, "Name": "/zigbee", "State": { "ExitCode": 128, "Error": "runc failed" },
            "Config": { "Env": [format!("{}={value}", DemoHost::VARIABLE)] },
        });
        for (file, text) in [
            ("config.v2.json", config.to_string()),
            ("hostconfig.json", json!({ "Runtime": runtime }).to_string()),
        ] {
            host.add_file(&format!("{directory}/{file}"), &text)
                .unwrap();
        }
    };
    let refused = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let mut state = state(refused.path());
    state["id"] = id.as_str().into();
    hook(&host, &["prestart"], state.to_string().as_bytes());
    for (value, runtime, code, words) in [
        (
            "npu-64",
            "boathook",
            5,
            [
                "docker's zigbee, which it could not start",
                "has no device `npu-64`",
            ],
        ),
        (
            "npu-1",
            "runc",
            13,
            [
                "docker was told to use the runtime runc",
                "compose `runtime: boathook` in",
            ],
        ),
        (
            "npu-1",
            "boathook",
            10,
            ["npu-1 of dummy-npu", "error container runc failed"],
        ),
    ] {
        with(value, runtime);
        for arguments in [
            ["doctor", "zigbee"].as_slice(),
            &["doctor", "--container", &id[..12]],
        ] {
            let ran = boathook(&host, arguments, b"");
            assert_eq!(ran.status.code(), Some(code), "{ran:?}");
            let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_says(&text, &words);
            // The reason at the time of the refusal.
            assert_says(&text, &["note log 2", "has no device `npu-64`"]);
        }
    }
    // Nothing is left of another, which was removed at its end.
    let ran = boathook(&host, &["doctor", "removed"], b"");
    assert_eq!(ran.status.code(), Some(10), "{ran:?}");
    assert_says(
        &ran.stdout,
        &["the last containers that were refused", "`npu-64`"],
    );
}

/// Docker and podman resolve CDI names when they start a container, which stays as it was created if
/// they cannot.
#[test]
fn a_container_that_was_refused_for_a_cdi_name_is_explained() {
    let host = HostDirectory::new().unwrap();
    let id = format!("0f3cc6559efb{}", std::process::id());
    let docker = format!("/var/lib/docker/containers/{id}");
    let names = ["dummy.com/npu=npu-1", "example.com/card=0"];
    let config = json!({
        "ID": id, "Name": "/zigbee", "Config": { "Env": ["PATH=/bin"] },
        "State": { "ExitCode": 128, "Error": format!("unresolvable CDI devices {}", names[0]) },
    });
    let host_config = |names: &[&str]| {
        let requests = json!([{ "Driver": "cdi", "Count": 0, "DeviceIDs": names }]);
        let text = json!({ "Runtime": "runc", "DeviceRequests": requests }).to_string();
        host.add_file(&format!("{docker}/hostconfig.json"), &text)
            .unwrap();
    };
    host.add_file(&format!("{docker}/config.v2.json"), &config.to_string())
        .unwrap();
    let examine = |name: &str, code: i32, words: &[&str]| {
        let ran = boathook(&host, &["doctor", name], b"");
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&text, words);
        assert!(!text.contains("sets no variable"), "{text}");
    };
    host_config(&names[..1]);
    let generate = "fix: write the names of class dummy-npu: `boathook cdi generate dummy-npu`";
    let said = "docker has said: unresolvable CDI devices dummy.com/npu=npu-1";
    examine("zigbee", 15, &["docker's zigbee", generate, said]);
    // A specification of a vendor in YAML.
    host_config(&names[1..]);
    let vendor = "cdiVersion: 0.5.0\nkind: example.com/card\ndevices:\n- name: \"0\"\n  \
                  containerEdits:\n    deviceNodes:\n    - path: /dev/card0\n";
    host.add_file("/etc/cdi/vendor.yaml", vendor).unwrap();
    examine(
        "zigbee",
        15,
        &[
            "vendor.yaml has example.com/card=0",
            "/dev/card0 is not on this host",
        ],
    );
    host.add_file("/dev/card0", "").unwrap();
    examine(
        "zigbee",
        10,
        &["every node, file and hook", "start the container again"],
    );

    let list = json!([{ "id": "0a1b2c", "names": ["frigate"] }]).to_string();
    let storage = "/var/lib/containers/storage/overlay-containers";
    host.add_file(&format!("{storage}/containers.json"), &list)
        .unwrap();
    let podman = [
        "podman's frigate was created and never started",
        "`podman start frigate` says why",
        "`boathook doctor --device KIND=NAME`",
    ];
    examine("frigate", 10, &podman);
}

/// nerdctl keeps the name and the id of such a container.
#[test]
fn a_container_that_nerdctl_keeps_is_known_by_its_name() {
    let host = HostDirectory::new().unwrap();
    let id = format!("0f3cc6559efa{}", std::process::id());
    host.add_file("/var/lib/nerdctl/1935db59/names/default/zigbee", &id)
        .unwrap();
    let refused = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let mut state = state(refused.path());
    state["id"] = id.as_str().into();
    hook(&host, &["prestart"], state.to_string().as_bytes());
    for name in ["zigbee", &id[..12]] {
        let ran = boathook(&host, &["doctor", name], b"");
        assert_eq!(ran.status.code(), Some(10), "{ran:?}");
        let refusal = "has no device `npu-64`";
        let words = ["nerdctl's zigbee (", "`nerdctl inspect zigbee`", refusal];
        assert_says(&ran.stdout, &words);
        let log = succeeds(&host, &["log", "--container", name]).stdout;
        assert_says(&log, &[refusal]);
    }
}
