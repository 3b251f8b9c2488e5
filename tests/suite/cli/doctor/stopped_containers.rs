//! `boathook doctor` examines containers that do not run: those that were refused, and those whose
//! engine could not start them.

use std::fs::File;
use std::time::{Duration, Instant};

use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::{Value, json};

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
                "not running: docker could not start it",
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
            let short_id = &id[..12];
            let logged = format!("boathook: container zigbee ({short_id}): env DUMMY_");
            assert_says(&text, &["note log 2", &logged, "has no device `npu-64`"]);
        }
    }
}

/// Nothing is left of a container that was removed at its end, but the log has its id. Refusals of
/// containers that docker keeps under other names are no help.
#[test]
fn only_refusals_of_containers_that_are_gone_are_shown_for_an_unknown_name() {
    let host = HostDirectory::new().unwrap();
    let process = std::process::id();
    let [gone, other, kept] = ["0a1b", "0a2c", "0d"].map(|start| {
        let id = format!("{start}{process}");
        format!("{id:0<64}")
    });
    for (id, value) in [(&gone, "npu-64"), (&other, "npu-65"), (&kept, "npu-66")] {
        let refused = bundle(&[(DemoHost::VARIABLE, value)]);
        let mut state = state(refused.path());
        state["id"] = id.as_str().into();
        hook(&host, &["prestart"], state.to_string().as_bytes());
    }
    write_docker_files(&host, &kept, &json!({ "Name": "/kept" }), &json!({}));
    let heading = "perhaps one of the last containers that were refused";
    for (name, has, lacks) in [
        ("removed", &["`npu-64`", "`npu-65`"][..], &["`npu-66`"][..]),
        (&gone[..8], &["`npu-64`"], &["`npu-65`", "`npu-66`"]),
    ] {
        let ran = boathook(&host, &["doctor", name], b"");
        assert_eq!(ran.status.code(), Some(10), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&text, has);
        let short_id = &gone[..12];
        assert_says(
            &text,
            &[heading, &format!(" ago, container {short_id}: env DUMMY_")],
        );
        for word in lacks {
            assert!(!text.contains(word), "{name}: {word} in {text}");
        }
    }
    let known = boathook(&host, &["doctor", "kept"], b"");
    assert_says(&known.stdout, &["kept (0d", "`npu-66`"]);
}

/// Writes docker's files about a container that does not run. `config` and `host_config` are parts
/// of the two files.
pub(super) fn write_docker_files(
    host: &HostDirectory,
    id: &str,
    config: &Value,
    host_config: &Value,
) {
    let directory = format!("/var/lib/docker/containers/{id}");
    let mut all_config = json!({
        "ID": id, "State": { "ExitCode": 128 }, "Config": { "Env": ["PATH=/bin"] },
    });
    for (key, value) in config.as_object().unwrap() {
        all_config[key] = value.clone();
    }
    for (file, content) in [
        ("config.v2.json", &all_config),
        ("hostconfig.json", host_config),
    ] {
        host.add_file(&format!("{directory}/{file}"), &content.to_string())
            .unwrap();
    }
}

/// Docker sets the variables of `--gpus` when it starts a container. Its files about the container
/// have only the request.
#[test]
fn the_device_requests_of_docker_are_requests() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'cards.com/card'\n\
        request = { env = 'CARDS', capabilities_env = 'CARD_PARTS' }\n\
        discover = [{ path = '/dev/card{index:number}' }]\n\
        device = { id = 'card-{index}' }\n\
        edits = [{ capability = 'compute' }, { capability = 'video' }]\n\
        compatibility = { name = 'cards', hook_programs = ['cards-hook'] }\n";
    host.add_class("card", class).unwrap();
    for number in 0..2 {
        host.add_file(&format!("/dev/card{number}"), "").unwrap();
    }
    let id = format!("0f3cc6559eea{}", std::process::id());
    let absent = "docker: Error response from daemon: could not select device driver";
    let refusal = format!("runc: stderr: boathook: container {id}: parts are too old\n: unknown");
    let request = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    for (device_request, error, code, words) in [
        // `--gpus device=2`
        (
            r#"{"Driver": "", "Count": 0, "DeviceIDs": ["2"], "Capabilities": [["gpu"]]}"#,
            absent,
            5,
            &[
                "`--gpus` of docker sets CARDS=2",
                "class card has no device `2`",
            ][..],
        ),
        // `--gpus 'all,capabilities=video'`
        (
            r#"{"Driver": "", "Count": -1, "Capabilities": [["video", "gpu"]]}"#,
            &refusal,
            5,
            &[
                "sets CARDS=all CARD_PARTS=video",
                "error container it was refused: parts are too old",
            ],
        ),
        // `--gpus 2`, and docker has no driver.
        (
            r#"{"Driver": "cards", "Count": 2, "DeviceIDs": null, "Capabilities": [["gpu"]]}"#,
            absent,
            10,
            &[
                "sets CARDS=0,1",
                "`boathook-init install --engine docker --as cards`, then `systemctl restart docker`",
            ],
        ),
        // A driver of another vendor.
        (
            r#"{"Driver": "others", "Count": 1, "Capabilities": [["gpu"]]}"#,
            &refusal,
            5,
            &["error container it was refused: parts are too old"],
        ),
    ] {
        write_docker_files(
            &host,
            &id,
            &json!({ "Name": "/web", "State": { "ExitCode": 128, "Error": error },
                "Config": { "Env": null } }),
            &json!({ "Runtime": "runc", "DeviceRequests": [request(device_request)] }),
        );
        let ran = boathook(&host, &["doctor", "web"], b"");
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&text, words);
        assert!(!text.contains("sets no variable"), "{text}");
    }
    // Docker has restarted the container, and its program has ended again.
    write_docker_files(
        &host,
        &id,
        &json!({ "Name": "/web", "Config": { "Env": ["CARDS=0"] }, "State":
            { "Running": true, "Restarting": true, "Pid": 0, "ExitCode": 3 } }),
        &json!({ "Runtime": "boathook" }),
    );
    for name in ["web", &id] {
        let ran = boathook(&host, &["doctor", name], b"");
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = [
            "web (0f3cc6559eea), not running: docker starts it again and again; its program ended with code 3",
            "CARDS=0 of class card",
        ];
        assert_says(&text, &words);
    }
}

/// A class that extends another one has its driver, but Docker sets the variables of the other one.
/// If two drivers fit a request, nobody knows which of them Docker chooses.
#[test]
fn the_class_of_a_device_request_does_not_depend_on_the_names_of_files() {
    let host = HostDirectory::new().unwrap();
    let class = |variable: &str, driver: &str| {
        format!(
            "version = 1\nresource = 'cards.com/card'\nrequest = {{ env = '{variable}' }}\n\
             discover = [{{ path = '/dev/card{{index:number}}' }}]\n\
             device = {{ id = 'card-{{index}}' }}\n\
             compatibility = {{ name = '{driver}', hook_programs = ['{driver}-hook'] }}\n"
        )
    };
    host.add_class("card", &class("CARDS", "cards")).unwrap();
    host.add_file("/dev/card0", "").unwrap();
    let shares = "version = 1\nextends = 'card'\nresource = 'cards.com/share'\n\
                  request = { env = 'A_SHARE' }\n";
    host.add_class("a-share", shares).unwrap();
    let absent = class("ABSENT", "absent").replace("/dev/card", "/dev/absent");
    host.add_class("absent", &absent).unwrap();
    let id = format!("0f3cc6559eed{}", std::process::id());
    let doctor = || {
        write_docker_files(
            &host,
            &id,
            &json!({ "Name": "/web", "State": { "ExitCode": 0 } }),
            &json!({ "DeviceRequests": [{ "Count": -1, "Capabilities": [["gpu"]] }] }),
        );
        let ran = boathook(&host, &["doctor", "web"], b"");
        ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = doctor();
    assert_says(&text, &["`--gpus` of docker sets CARDS=all"]);
    assert!(!text.contains("may choose"), "{text}");
    host.add_class("board", &class("BOARDS", "boards")).unwrap();
    let words = [
        "`--gpus` of docker sets BOARDS=all",
        "docker may choose the driver boards or cards for `--gpus`, and boards is examined here: name one, such as `--gpus driver=boards,count=1`",
    ];
    assert_says(&doctor(), &words);
}

/// Docker could not start a container that was refused earlier. If a start between the two has
/// succeeded, the refusal is not the reason. Docker may write its file again at any time.
#[test]
fn a_refusal_before_a_start_that_succeeded_is_not_the_reason_of_dockers_error() {
    let host = HostDirectory::new().unwrap();
    let id = format!("0f3cc6559eef{}", std::process::id());
    let refused = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let mut state = state(refused.path());
    state["id"] = id.as_str().into();
    hook(&host, &["prestart"], state.to_string().as_bytes());
    for (started_at, is_reason) in [
        ("0001-01-01T00:00:00Z", true),
        ("2001-02-03T04:05:06.123456789Z", true),
        ("9001-02-03T04:05:06.123456789Z", false),
    ] {
        let docker_state = json!({
            "ExitCode": 128, "Error": "port 80 is in use", "StartedAt": started_at,
        });
        write_docker_files(
            &host,
            &id,
            &json!({ "Name": "/web", "State": docker_state }),
            &json!({ "Runtime": "boathook" }),
        );
        let config = host
            .root()
            .join(format!("var/lib/docker/containers/{id}/config.v2.json"));
        let file = File::options().write(true).open(config).unwrap();
        let written_at = file.metadata().unwrap().modified().unwrap();
        file.set_modified(written_at + Duration::from_secs(3600))
            .unwrap();
        let ran = boathook(&host, &["doctor", "web"], b"");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let was_refused = "it was refused: env DUMMY_";
        assert_eq!(text.contains(was_refused), is_reason, "{text}");
        assert_says(&text, &["port 80 is in use", "note log 2"]);
    }
}

/// The processes and containers of the host are not read again for each line of the log.
#[test]
fn a_log_of_many_refusals_is_read_in_one_pass() {
    let host = HostDirectory::new().unwrap();
    let lines: String = (0..4000)
        .map(|number| {
            let id = format!("{:064x}", number % 40);
            format!("2026-11-22T09:30:00Z boathook: container {id}: no device `7`\n")
        })
        .collect();
    for number in 0..40 {
        let id = format!("{number:064x}");
        write_docker_files(
            &host,
            &id,
            &json!({ "Name": format!("/of-{number}") }),
            &json!({}),
        );
    }
    host.add_file("/run/boathook/log", &lines).unwrap();
    let start = Instant::now();
    let ran = boathook(&host, &["doctor", "mistyped"], b"");
    assert_eq!(ran.status.code(), Some(10), "{ran:?}");
    assert!(!ran.stdout.contains("no device"), "{}", ran.stdout);
    let duration = start.elapsed();
    assert!(duration < Duration::from_secs(5), "{duration:?}");
}

/// A file of compose may have `devices:` from the time before Boathook.
#[test]
fn a_node_of_the_option_device_that_is_gone_is_the_cause() {
    let host = HostDirectory::new().unwrap();
    let id = format!("0f3cc6559eec{}", std::process::id());
    let error = "error gathering device information while adding custom device";
    let variable = format!("{}=npu-1", DemoHost::VARIABLE);
    host.add_file("/dev/there", "").unwrap();
    for (variable, words, lacks) in [
        (
            &*variable,
            "fix: remove `--device`, or `devices:` of the service, if a variable of the container requests the device",
            "sets no variable",
        ),
        ("A=B", "request the device by a class", "sets no variable"),
    ] {
        write_docker_files(
            &host,
            &id,
            &json!({ "Name": "/web", "State": { "ExitCode": 128, "Error": error },
                "Config": { "Env": [variable] } }),
            &json!({ "Runtime": "boathook", "Devices": [
                { "PathOnHost": "/dev/there" }, { "PathOnHost": "/dev/ttyUSB0" },
            ] }),
        );
        let ran = boathook(&host, &["doctor", "web"], b"");
        assert_eq!(ran.status.code(), Some(15), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let node = "names /dev/ttyUSB0, which this host does not have";
        assert_says(&text, &[node, words, &format!("docker has said: {error}")]);
        assert!(!text.contains(lacks), "{text}");
        assert!(!text.contains("/dev/there"), "{text}");
    }
}

/// A container that could not be started because of its CDI names starts if the names can be
/// resolved. One that the hook of the names has refused is refused again.
#[test]
fn a_container_with_cdi_names_that_the_hook_refused_is_not_to_be_started_again() {
    let host = HostDirectory::new().unwrap();
    let id = format!("0f3cc6559eeb{}", std::process::id());
    let specification = json!({ "cdiVersion": "0.5.0", "kind": "cards.com/card", "devices": [
        { "name": "0", "containerEdits": { "deviceNodes": [{ "path": "/dev/card0" }] } },
    ] });
    host.add_file("/etc/cdi/cards.json", &specification.to_string())
        .unwrap();
    host.add_file("/dev/card0", "").unwrap();
    let start = "start the container again";
    for (error, code, words, lacks) in [
        (
            "unresolvable CDI devices cards.com/card=0".to_owned(),
            10,
            start,
            "it was refused",
        ),
        (
            format!("exit status 5, stderr: boathook: container {id}: it needs cards>=99: unknown"),
            5,
            "it was refused: it needs cards>=99",
            start,
        ),
    ] {
        write_docker_files(
            &host,
            &id,
            &json!({ "Name": "/web", "State": { "ExitCode": 128, "Error": error } }),
            &json!({ "DeviceRequests": [{ "Driver": "cdi", "DeviceIDs": ["cards.com/card=0"] }] }),
        );
        let ran = boathook(&host, &["doctor", "web"], b"");
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&text, &[words]);
        assert!(!text.contains(lacks), "{text}");
    }
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
    examine(
        "zigbee",
        15,
        &["zigbee (0f3cc6559efb), not running: ", generate, said],
    );
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
