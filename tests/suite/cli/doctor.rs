//! `boathook doctor`: the fault decides the exit code, and the fix is printed.

mod host_faults;
mod other_classes;
mod stopped_containers;
mod waiting;

use std::os::unix::fs::symlink;
use std::path::Path;

use harness::binaries;
use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::{Value, json};

use super::{boathook, bundle, bundle_of, config, succeeds};
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
                "in place of the node in config.json, set PORTS=NAME with a name that stays",
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
                "in place of the node in config.json, set MODEMS=NAME? with a name that stays",
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
                "in place of the node in config.json, set CABLES=NAME with a name that stays",
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

/// A rootless engine mounts the host's node for `--device`: without the node it cannot start the
/// container again.
#[test]
fn a_mounted_node_that_the_host_has_no_more_is_named() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nfollow = true\nresource = 'example.com/modem'\nrequest = { env = 'MODEMS' }\n\
         discover = [{ path = '/dev/ttyACM{n}' }]\n\
         device = { id = 'modem-{n}', nodes = ['/dev/ttyACM{n}'] }\n";
    host.add_class("modem", class).unwrap();
    host.add_file("/dev/ttyACM1", "").unwrap();
    for (source, options, code) in [
        ("/dev/ttyACM0", ["bind", "rprivate"], 15),
        ("/dev/ttyACM1", ["bind", "rprivate"], 11),
        ("/dev/ttyACM0", ["ro", "nosuid"], 11),
        ("/srv/ttyACM0", ["bind", "rprivate"], 11),
    ] {
        let mut config = config(&["PATH=/bin"]);
        config["mounts"] = json!([
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs" },
            { "destination": "/dev/modem", "type": "bind", "source": source, "options": options },
        ]);
        let bundle = bundle_of(&config);
        let (found, text) = doctor(&host, bundle.path());
        assert_eq!(found, Some(code), "{source} {options:?}: {text}");
        let words = [
            "config.json mounts /dev/ttyACM0, which this host does not have: the container cannot start",
            "set MODEMS=NAME? with a name that stays",
        ];
        match code {
            15 => assert_says(&text, &words),
            _ => assert!(!text.contains("config.json mounts"), "{text}"),
        }
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
    // An id that does not depend on a port is better than another name.
    let card = "discover = [{ path = '/dev/card{n:number}' }]\n\
                device = { id = 'card-{n}', aliases = ['0000:17:0{n}.0'] }";
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
    assert_says(
        &fix(&["--env", "A=B"]),
        &[
            "such as card-0 of class card",
            "CARD_VISIBLE_DEVICES=card-0",
        ],
    );
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

/// The engine of a rootless user keeps config.json where other users do not look for it.
#[test]
fn a_process_without_a_known_config_may_have_devices_by_name() {
    let host = HostDirectory::new().unwrap();
    let process = std::process::id().to_string();
    let ran = boathook(&host, &["doctor", "--pid", &process], b"");
    assert_eq!(ran.status.code(), Some(11), "{ran:?}");
    let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = [
        "devices by name (`--device`) are not known",
        "run this as the user of a rootless engine",
    ];
    assert_says(&text, &words);
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
        text
    };
    let generate = "`boathook cdi generate dummy-npu`";
    examine(
        "dummy.com/npu=all",
        15,
        &["unresolvable CDI devices", generate],
    );
    examine("dummy.com/npu=npu-1", 15, &[generate]);
    // It would not write the name of a device that is not there.
    let list = "this host has no such device; `boathook list dummy-npu` shows its devices";
    let printed = examine("dummy.com/npu=npu-64", 15, &[list]);
    assert!(!printed.contains("cdi generate"), "{printed}");
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
        &["did you mean example.com/card=0?; after example.com/card= there may be 0"],
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
