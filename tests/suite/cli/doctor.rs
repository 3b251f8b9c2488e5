//! `boathook doctor`: the fault decides the exit code, and the fix is printed.

use std::os::unix::fs::symlink;
use std::path::Path;

use harness::binaries;
use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::{Value, json};

use super::{assert_refused, boathook, bundle, bundle_of, code, config, prestart, succeeds};
use crate::said::assert_says;
use crate::tree::listing;

/// Asks about a bundle.
fn doctor(host: &HostDirectory, bundle: &Path) -> (Option<i32>, String) {
    let arguments = ["doctor", "--bundle", bundle.to_str().unwrap()];
    let ran = boathook(host, &arguments, b"");
    assert_eq!(ran.stderr, "", "{}", ran.stdout);
    (ran.status.code(), ran.stdout)
}

/// `mistakes` has the other faults.
#[test]
fn a_hook_that_is_gone_and_no_fault_have_codes_of_their_own() {
    let host = HostDirectory::new().unwrap();
    let program = binaries::program("boathook-hook").unwrap();
    let request = format!("{}=npu-1", DemoHost::VARIABLE);
    let gone = Path::new("/nowhere/boathook-hook");
    for (hook, code, words) in [
        (
            gone,
            14,
            ["/nowhere/boathook-hook", "boathook-init install"],
        ),
        (
            &program,
            0,
            ["is called at createRuntime", "no fault found"],
        ),
    ] {
        let mut config = config(&[&request]);
        config["hooks"] = json!({ "createRuntime": [{ "path": hook }] });
        let bundle = bundle_of(&config);
        let before = (listing(bundle.path()), listing(host.path()));
        let (found, text) = doctor(&host, bundle.path());
        assert_eq!(found, Some(code), "{text}");
        assert_says(&text, &words);
        let after = (listing(bundle.path()), listing(host.path()));
        assert_eq!(before, after, "doctor changed something");
    }
    let (code, text) = doctor(&host, Path::new("/nowhere"));
    assert_eq!(code, Some(4), "{text}");
}

/// `--device` gives the number that a device had when the container was created.
#[test]
fn a_stale_node_of_an_engine_is_named_with_what_to_write() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/port'\nrequest = { env = 'PORTS' }\n\
         discover = [{ path = '/sys/class/tty/{name}' }]\n\
         device = { id = 'port-{name}', nodes = ['/dev/{name}'] }\n";
    host.add_class("port", class).unwrap();
    let modem = class
        .replace("port", "modem")
        .replace("PORTS", "MODEMS")
        .replace("tty/{name}", "modem/{name}")
        .replace("version = 1", "version = 1\nfollow = true");
    host.add_class("modem", &modem).unwrap();
    let cable = class
        .replace("port", "cable")
        .replace("PORTS", "CABLES")
        .replace("tty/{name}", "cable/ttyCH{name}");
    host.add_class("cable", &cable).unwrap();
    for file in ["tty/ttyUSB1", "modem/ttyACM1"] {
        host.add_file(&format!("/sys/class/{file}/dev"), "")
            .unwrap();
    }
    host.add_file("/dev/ttyACM1", "").unwrap();
    symlink("ttyACM1", host.root().join("dev/zigbee")).unwrap();
    host.add_file("/sys/dev/char/188:7/dev", "188:7").unwrap();
    for (path, minor, code, words) in [
        (
            "/dev/ttyUSB0",
            0,
            15,
            [
                "/dev/ttyUSB0 is c 188:0 in config.json, a device that the host has no more, and it",
                "in place of `--device`, set PORTS=NAME with a name that stays",
                "`boathook list port`",
            ],
        ),
        // A class that is followed.
        (
            "/dev/ttyACM0",
            0,
            15,
            [
                "and it has no /dev/ttyACM0",
                "in place of `--device`, set MODEMS=NAME? with a name that stays",
                "`boathook follow` gives it again",
            ],
        ),
        // The only device that its class would find.
        (
            "/dev/ttyCH3",
            0,
            15,
            [
                "and it has no /dev/ttyCH3",
                "in place of `--device`, set CABLES=NAME with a name that stays",
                "`boathook list cable`",
            ],
        ),
        // A link of udev, whose name is similar to no node.
        (
            "/dev/zigbee",
            0,
            15,
            [
                "/dev/zigbee is c 188:0 in config.json",
                "set MODEMS=NAME? with a name that stays",
                "`boathook list modem`",
            ],
        ),
        (
            "/dev/other0",
            0,
            15,
            [
                "a device that the host has no more, and it has no /dev/other0",
                "no program can open it",
                "`boathook class new`",
            ],
        ),
        // There under another name: `--device A:B`.
        (
            "/dev/ttyUSB0",
            7,
            11,
            [
                "the container sets no variable of any class",
                "such as npu-0 of class dummy-npu: `DUMMY_VISIBLE_DEVICES=npu-0`",
                "boathook list",
            ],
        ),
    ] {
        let mut config = config(&["PATH=/bin"]);
        config["linux"]["devices"] =
            json!([{ "path": path, "type": "c", "major": 188, "minor": minor }]);
        let bundle = bundle_of(&config);
        let (found, text) = doctor(&host, bundle.path());
        assert_says(&text, &words);
        assert_eq!(found, Some(code), "{text}");
    }
}

/// Of several that a misspelled variable may mean, the nearest is named.
#[test]
fn variables_are_tried_without_a_container() {
    let host = HostDirectory::new().unwrap();
    host.add_shipped_class("amd-gpu").unwrap();
    let dummy = "DUMMY_VISIBLE_DEVICES";
    for (name, value, code, word) in [
        (dummy, "=0,1", 0, "npu-0,npu-1 of dummy-npu"),
        (dummy, "=0 1", 5, "neither a device nor a range"),
        ("DUMY_VISIBLE_DEVICES", "=0", 12, "did you mean DUMMY_"),
        ("DUMMY", "", 2, "write NAME=VALUE"),
    ] {
        let variable = format!("{name}{value}");
        let ran = boathook(&host, &["doctor", "--env", &variable], b"");
        assert_eq!(ran.status.code(), Some(code), "{variable}: {ran:?}");
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        assert!(printed.contains(word), "{variable}: {printed}");
        assert!(!printed.contains("AMD_VISIBLE_DEVICES"), "{printed}");
    }
}

/// As on WSL and Jetson, where another class of the vendor has the device: also by the refusal, and
/// by `explain`.
#[test]
fn the_class_that_has_devices_is_named() {
    let card = "version = 1\ndescription = 'Cards'\nresource = 'dummy.com/card'\n\
         [request]\nenv = 'CARD_VISIBLE_DEVICES'\n\
         [[discover]]\npath = '/dev/card-{number:number}'\n\
         [device]\nid = 'card-{number}'\n";
    let csv = "/etc/nvidia-container-runtime/host-files-for-container.d/drivers.csv";
    let nvidia = "NVIDIA_VISIBLE_DEVICES";
    for (variable, class, files, named) in [
        (
            "CARD_VISIBLE_DEVICES",
            None,
            &[][..],
            "class dummy-npu has 64 (variable DUMMY_VISIBLE_DEVICES)",
        ),
        (
            nvidia,
            Some("nvidia-wsl"),
            &["/dev/dxg", "/usr/lib/wsl/lib/libcuda.so.1"],
            "class nvidia-wsl has 1 (variable NVIDIA_WSL_VISIBLE_DEVICES)",
        ),
        (
            nvidia,
            Some("nvidia-tegra"),
            &["/etc/nv_tegra_release", csv],
            "class nvidia-tegra has 1 (variable NVIDIA_TEGRA_VISIBLE_DEVICES)",
        ),
    ] {
        let host = HostDirectory::new().unwrap();
        match class {
            None => host.add_class("dummy-card", card).unwrap(),
            Some(class) => {
                host.add_shipped_class("nvidia-gpu").unwrap();
                host.add_shipped_class(class).unwrap();
            }
        }
        for file in files {
            host.add_file(file, "").unwrap();
        }
        let all = bundle(&[(variable, "all")]);
        let (code, text) = doctor(&host, all.path());
        assert_eq!(code, Some(15), "{text}");
        assert_says(&text, &["no device on this host", named]);
        let explain = |bundle: &Path| {
            boathook(
                &host,
                &["explain", "--bundle", bundle.to_str().unwrap()],
                b"",
            )
        };
        let explained = explain(all.path()).success().unwrap();
        assert_says(&explained.stdout, &["0 of 0 devices", named]);
        let first = bundle(&[(variable, "0")]);
        assert_refused(&explain(first.path()), code::REQUEST, &[named]);
        assert_refused(&prestart(&host, &first), code::REQUEST, &[named]);
    }
}

/// A Jetson whose driver lists its GPU in /proc too: the class finds the device, and not its
/// libraries.
#[test]
fn the_class_with_the_same_resource_is_named_if_libraries_cannot_be_used() {
    let host = HostDirectory::new().unwrap();
    for class in ["nvidia-gpu", "nvidia-tegra"] {
        host.add_shipped_class(class).unwrap();
    }
    // Classes of one's own that extend it have the same devices and files.
    for (name, base) in [("lab", "nvidia-gpu"), ("lab-night", "lab")] {
        let env = name.to_uppercase().replace('-', "_");
        let text = format!("extends = '{base}'\nversion = 1\nrequest = {{ env = '{env}' }}\n");
        host.add_class(name, &text).unwrap();
    }
    let csv = "/etc/nvidia-container-runtime/host-files-for-container.d/drivers.csv";
    let version = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  595.78  Release\n";
    let gpu = "Model: NVIDIA Thor\nGPU UUID: GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10\n\
               Device Minor: 0\n";
    for (file, text) in [
        ("/etc/nv_tegra_release", ""),
        (csv, ""),
        ("/proc/driver/nvidia/version", version),
        ("/proc/driver/nvidia/gpus/0000:01:00.0/information", gpu),
        (
            "/proc/devices",
            "Character devices:\n195 nvidia\n195 nvidiactl\n",
        ),
        ("/sys/bus/pci/devices/0000:01:00.0/config", "(the space)"),
    ] {
        host.add_file(file, text).unwrap();
    }
    let named = "class nvidia-tegra (variable NVIDIA_TEGRA_VISIBLE_DEVICES)";
    let all = bundle(&[("NVIDIA_VISIBLE_DEVICES", "all")]);
    let (code, text) = doctor(&host, all.path());
    assert_eq!(code, Some(15), "{text}");
    assert_says(&text, &["libcuda.so.1 is not in", named]);
    assert!(!text.contains("class lab"), "{text}");
    let arguments = ["explain", "--bundle", all.path().to_str().unwrap()];
    let explained = boathook(&host, &arguments, b"");
    assert_refused(&explained, code::REQUEST, &["libnvidia-ml.so.1", named]);
}

#[test]
fn a_device_that_is_plugged_in_later_is_not_sought_in_other_classes() {
    let host = HostDirectory::new().unwrap();
    let class = |name: &str, follow: bool, discover: &str| {
        let text = format!(
            "version = 1\nfollow = {follow}\ndescription = 'Cards'\n\
             resource = 'devices.boathook.dev/{name}'\n[request]\n\
             env = '{}_VISIBLE_DEVICES'\n[[discover]]\n{discover}\n\
             [device]\nid = '{name}-{{index}}'\n",
            name.to_uppercase()
        );
        host.add_class(name, &text).unwrap();
    };
    class("stick", true, "path = '/dev/stick-{index:number}'");
    class("other", false, "count = 1");
    let bundle = bundle(&[("STICK_VISIBLE_DEVICES", "stick-0")]);
    let (code, text) = doctor(&host, bundle.path());
    assert_eq!(code, Some(15), "{text}");
    let advice = "plug it in and start the container again; with `?` after the name";
    assert_says(
        &text,
        &[
            "no device on this host",
            advice,
            "STICK_VISIBLE_DEVICES=NAME?",
        ],
    );
    assert!(!text.contains("OTHER_VISIBLE_DEVICES"), "{text}");
}

/// A container that was refused does not exist any more; the hook's report does.
#[test]
fn the_log_is_read_for_a_container_that_is_gone() {
    let host = HostDirectory::new().unwrap();
    let refused = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let mut state = super::state(refused.path());
    let id = format!("gone-{}", std::process::id());
    state["id"] = id.as_str().into();
    super::hook(&host, &["prestart"], state.to_string().as_bytes());
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
    let mut state = super::state(refused.path());
    state["id"] = id.as_str().into();
    super::hook(&host, &["prestart"], state.to_string().as_bytes());
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

/// What a person wants is probably a device of the vendor whose runtime or variables the container
/// has, and else one that is plugged in rather than a node that every host has.
#[test]
fn the_example_is_a_device_that_a_person_wants() {
    let host = HostDirectory::new().unwrap();
    let class = |name: &str, resource: &str, more: &str| {
        let text = format!(
            "version = 1\nresource = '{resource}'\nrequest = {{ env = '{}_VISIBLE_DEVICES' }}\n\
             {more}\n",
            name.to_uppercase()
        );
        host.add_class(name, &text).unwrap();
    };
    let of_path = |path: &str, id: &str| {
        format!("discover = [{{ path = '{path}' }}]\ndevice = {{ id = '{id}' }}")
    };
    class("a", "devices.boathook.dev/a", &of_path("/dev/a", "a"));
    let stick = "follow = true\n[[discover]]\npath = '/dev/stick{n:number}'\n\
                 attributes = [{ name = 'serial', value = 'f074' }, { name = 'place', value = '1-2' }]\n\
                 [device]\nid = 'port-{place}'\naliases = ['{serial}']\n";
    class("stick", "devices.boathook.dev/stick", stick);
    let card = of_path("/dev/card{n:number}", "card-{n}");
    class(
        "card",
        "cards.com/card",
        &format!("{card}\n[compatibility]\nname = 'cards'\nruntimes = ['cards']"),
    );
    for node in ["a", "stick0"] {
        host.add_file(&format!("/dev/{node}"), "").unwrap();
    }
    let fix = |arguments: &[&str]| {
        let ran = boathook(&host, &[&["doctor"], arguments].concat(), b"");
        assert_eq!(ran.status.code(), Some(11), "{ran:?}");
        ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let text = fix(&["--env", "A=B"]);
    assert_says(
        &text,
        &[
            "such as port-1-2 of class stick",
            "STICK_VISIBLE_DEVICES=f074?",
        ],
    );
    let listed = succeeds(&host, &["list"]).stdout;
    assert_says(
        &listed,
        &[
            "a container gets port-1-2 of class stick by",
            "STICK_VISIBLE_DEVICES=f074?",
        ],
    );
    host.add_file("/dev/card0", "").unwrap();
    assert_says(&fix(&["--env", "A=B"]), &["such as card-0 of class card"]);
    // The image's variable of the vendor, and the name of the runtime.
    assert_says(
        &fix(&["--env", "STICK_MODE=1"]),
        &["such as port-1-2 of class stick"],
    );
    class(
        "b",
        "devices.boathook.dev/b",
        &of_path("/dev/b{n:number}", "b-{n}"),
    );
    let id = format!("0f3cc6559efc{}", std::process::id());
    let docker = format!("/var/lib/docker/containers/{id}");
    let config = json!({ "ID": id, "Name": "/web", "State": {},
        "Config": { "Env": ["PATH=/bin"] } });
    for (file, text) in [
        ("config.v2.json", config.to_string()),
        ("hostconfig.json", json!({ "Runtime": "cards" }).to_string()),
    ] {
        host.add_file(&format!("{docker}/{file}"), &text).unwrap();
    }
    class(
        "ahead",
        "a.com/ahead",
        &of_path("/dev/card{n:number}", "ahead-{n}"),
    );
    assert_says(&fix(&["web"]), &["such as card-0 of class card"]);
}

/// nerdctl keeps the name and the id of such a container.
#[test]
fn a_container_that_nerdctl_keeps_is_known_by_its_name() {
    let host = HostDirectory::new().unwrap();
    let id = format!("0f3cc6559efa{}", std::process::id());
    host.add_file("/var/lib/nerdctl/1935db59/names/default/zigbee", &id)
        .unwrap();
    let refused = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let mut state = super::state(refused.path());
    state["id"] = id.as_str().into();
    super::hook(&host, &["prestart"], state.to_string().as_bytes());
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

/// Findings that follow from the first cause are not printed.
#[test]
fn the_examination_ends_with_the_cause() {
    let host = HostDirectory::new().unwrap();
    let variable = format!("{}=npu-64", DemoHost::VARIABLE);
    let ran = boathook(&host, &["doctor", "--env", &variable], b"");
    let errors = ran.stdout.matches("error ").count();
    assert_eq!((ran.status.code(), errors), (Some(5), 1), "{}", ran.stdout);
}

#[test]
fn a_name_of_an_option_is_looked_up_in_the_specifications() {
    let host = HostDirectory::new().unwrap();
    let specification = |file: &str, node: &str| {
        let text = json!({ "cdiVersion": "0.5.0", "kind": "example.com/card", "devices": [
            { "name": "0", "containerEdits": { "deviceNodes": [{ "path": node }] } },
        ] });
        host.add_file(&format!("/etc/cdi/{file}.json"), &text.to_string())
            .unwrap();
    };
    host.add_file("/dev/card0", "").unwrap();
    let examine = |name: &str, code: i32, words: &[&str]| {
        let ran = boathook(&host, &["doctor", "--device", name], b"");
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&text, words);
    };
    let generate = "`boathook cdi generate dummy-npu`";
    examine(
        "dummy.com/npu=all",
        15,
        &["unresolvable CDI devices", generate],
    );
    examine("dummy.com/npu=npu-1", 15, &[generate]);
    examine("example.com/card=0", 15, &["no class has this kind"]);
    examine("card", 5, &["write KIND=NAME"]);
    examine("/dev/card0", 5, &["`boathook list /dev/card0`"]);
    specification("one", "/dev/card0");
    examine(
        "example.com/card=0",
        0,
        &["one.json has example.com/card=0", "no fault found"],
    );
    examine(
        "example.com/card=1",
        15,
        &["did you mean example.com/card=0?"],
    );
    specification("one", "/dev/card-control");
    examine(
        "example.com/card=0",
        15,
        &["/dev/card-control is not on this host", "modprobe"],
    );
    specification("two", "/dev/card0");
    examine("example.com/card=0", 5, &["a name that two files have"]);
}

#[test]
fn the_report_is_json_on_request() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[("DUMMY_VISIBLE_DEVICE", "1")]);
    let directory = bundle.path().to_str().unwrap();
    let ran = boathook(&host, &["doctor", "--json", "--bundle", directory], b"");
    assert_eq!(ran.status.code(), Some(12), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["fault"], "similar-variable");
    let container = &report["containers"][0];
    assert_eq!(container["bundle"], directory);
    assert_eq!(container["findings"][1]["verdict"], "error");
    assert_eq!(container["findings"][1]["fault"], "similar-variable");
    let fix = "set DUMMY_VISIBLE_DEVICES instead of DUMMY_VISIBLE_DEVICE";
    assert_eq!(container["findings"][1]["fix"], fix);
}

/// A CDI specification names the devices in the hook's arguments, and doctor and explain
/// read them as the hook does.
#[test]
fn hooks_of_cdi_specifications_are_understood() {
    let host = HostDirectory::new().unwrap();
    let program = binaries::program("boathook-hook").unwrap();
    let granting = |device: &str| {
        let mut config = config(&["PATH=/bin"]);
        let arguments = ["boathook-hook", "create-runtime", "--cdi", device];
        config["hooks"] = json!({ "createRuntime": [{ "path": program, "args": arguments }] });
        config
    };
    let mut by_cdi = granting("dummy-npu=7");
    // It does not count beside the names of a specification.
    by_cdi["process"]["env"] = json!(["DUMMY_VISIBLE_DEVICES=all"]);
    let gone = granting("gone=0");
    for (config, code, words) in [
        (&by_cdi, 0, ["npu-7 of dummy-npu", "by CDI specifications"]),
        (&gone, 5, ["class gone", "boathook cdi generate"]),
    ] {
        let bundle = bundle_of(config);
        let (found, text) = doctor(&host, bundle.path());
        assert_eq!(found, Some(code), "{text}");
        assert_says(&text, &words);
        let directory = bundle.path().to_str().unwrap();
        let explained = boathook(&host, &["explain", "--json", "--bundle", directory], b"");
        assert_eq!(explained.status.code(), Some(code), "{explained:?}");
        let plan: Value = serde_json::from_str(&explained.stdout).unwrap();
        let devices = &plan["grants"][0]["devices"];
        match code {
            0 => assert_eq!(devices.as_array().unwrap().len(), 1, "{plan}"),
            _ => assert!(plan["error"].is_object(), "{plan}"),
        }
    }
}

/// A host whose driver is loaded, with a device that the driver has not taken, and without a
/// node that programs need.
#[test]
fn what_the_host_lacks_is_reported_although_no_device_is_unhealthy() {
    let class = "version = 1\nresource = 'x.com/chip'\nrequest = { env = 'CHIPS' }\n\
                 discover = [{ count = 1 }]\ndevice = { id = 'chip-{index}' }\n\
                 edits = [{ nodes = [{ path = '/dev/chip-memory', optional = true, \
                 needed_for = 'rendering', advice = 'load chip-memory' }] }]\n\
                 [[unclaimed]]\npath = '/sys/bus/chips/{bus:number}'\n\
                 report = 'the driver has not taken chip {bus}'\n";
    let host = HostDirectory::new().unwrap();
    host.add_class("chip", class).unwrap();
    let lacks = [
        "the driver has not taken chip 7",
        "/dev/chip-memory does not exist, and rendering fails without it; load chip-memory",
    ];
    let arguments: [&[&str]; 3] = [
        &["list", "chip"],
        &["check", "chip"],
        &["doctor", "--env", "CHIPS=all"],
    ];
    std::fs::create_dir_all(host.root().join("sys/bus/chips/7")).unwrap();
    for arguments in arguments {
        let ran = boathook(&host, arguments, b"");
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_says(&printed, &lacks);
        let end = "no fault found, but see the 2 warnings";
        assert_eq!(
            printed.ends_with(end),
            arguments[0] == "doctor",
            "{printed}"
        );
    }
    std::fs::remove_dir(host.root().join("sys/bus/chips/7")).unwrap();
    let printed = boathook(&host, arguments[0], b"").stderr;
    assert!(!printed.contains("has not taken"), "{printed}");
}

/// A GPU that another driver has, or none, where the driver is not loaded: the line is printed once,
/// by the class that is enabled. A host with another vendor's GPU has no such line.
#[test]
fn a_gpu_is_reported_although_its_driver_is_not_loaded() {
    let taken_by = |driver: Option<&str>, vendor: &str| {
        let host = HostDirectory::new().unwrap();
        host.add_all_shipped_classes().unwrap();
        let gpu = "/sys/bus/pci/devices/0000:41:00.0";
        for (file, text) in [("vendor", vendor), ("class", "0x030200")] {
            host.add_file(&format!("{gpu}/{file}"), text).unwrap();
        }
        if let Some(driver) = driver {
            let target = format!("../../../../bus/pci/drivers/{driver}");
            let link = host.root().join(&gpu[1..]).join("driver");
            symlink(target, link).unwrap();
        }
        host
    };
    for (driver, vendor, line) in [
        (
            Some("nouveau"),
            "0x10de",
            Some("0000:41:00.0 (nouveau): install NVIDIA's driver, which blacklists nouveau"),
        ),
        (
            None,
            "0x10de",
            Some("0000:41:00.0 (no driver): run `modprobe nvidia`"),
        ),
        (Some("vfio-pci"), "0x10de", None),
        (None, "0x1a03", None),
    ] {
        let host = taken_by(driver, vendor);
        for arguments in [&["list"][..], &["list", "gpu-share"], &["check"]] {
            let ran = boathook(&host, arguments, b"");
            let printed = format!("{}{}", ran.stdout, ran.stderr);
            let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
            let lines = printed.matches("the driver has not taken").count();
            assert_eq!(
                lines,
                usize::from(line.is_some()),
                "{arguments:?}: {printed}"
            );
            assert!(printed.contains(line.unwrap_or_default()), "{printed}");
        }
    }
}
