//! `boathook class check` as it is used in the CI of a class's maker: strict, with a number of
//! devices, and with golden files; and beside the installed classes.

use std::fs;

use harness::demo_host::HostDirectory;
use serde_json::Value;

use super::{boathook, code, succeeds};
use crate::said::assert_says;

const THING: &str = r#"version = 1
resource = "example.com/thing"
[request]
env = "THING_VISIBLE_DEVICES"
[[discover]]
path = "/sys/thing{index:number}"
attributes = [{ name = "serial", file = "serial" }]
[device]
id = "thing-{serial}"
index = "{index}"
health = [{ file = "/sys/thing{index}/state", equals = "ok" }]
"#;

/// A host with things, each with a serial number and a state.
fn host(things: &[(&str, &str)]) -> HostDirectory {
    let host = HostDirectory::new().unwrap();
    for (index, (serial, state)) in things.iter().enumerate() {
        for (file, text) in [("serial", serial), ("state", state)] {
            host.add_file(&format!("/sys/thing{index}/{file}"), text)
                .unwrap();
        }
    }
    host
}

/// Runs `class check` with these options on a class file outside of the class directory.
fn check(host: &HostDirectory, class: &str, options: &str) -> (Option<i32>, String) {
    let file = host.path().join("thing.toml");
    fs::write(&file, class).unwrap();
    let options = options.replace("HOST", host.path().to_str().unwrap());
    let arguments = ["class", "check"]
        .into_iter()
        .chain(options.split_whitespace());
    let arguments: Vec<&str> = arguments.chain([file.to_str().unwrap()]).collect();
    let ran = boathook(host, &arguments, b"");
    (ran.status.code(), format!("{}{}", ran.stdout, ran.stderr))
}

const PARTS: &str = r#"
[[discover]]
path = "/sys/thing{index:number}/part{part:number}"
additional = true
part_of = "thing-{serial}"
attributes = [
  { name = "serial", file = "/sys/thing{index}/serial" },
  { name = "name", value = "{serial}-{part}" },
]
require = [{ value = "{serial}", none_of = ["broken"] }]
"#;

/// Another table that finds devices must not hide a mistake in one table.
#[test]
fn a_table_that_finds_nothing_is_named() {
    let host = host(&[("a", "ok"), ("b", "ok")]);
    host.add_file("/sys/thing0/part0/size", "1").unwrap();
    let class = THING
        .replace("[device]\n", &format!("{PARTS}[device]\n"))
        .replace("id = \"thing-{serial}\"", "id = \"thing-{name}\"")
        .replace(
            "file = \"serial\" }]",
            "file = \"serial\" }, { name = \"name\", value = \"{serial}\" }]",
        );
    let (exit, printed) = check(&host, &class, "--strict --expect 2");
    assert_eq!(exit, Some(code::SUCCESS), "{printed}");
    assert!(!printed.contains("[[discover]]"), "{printed}");
    // A table without `additional` is not used after one that has found devices.
    let alternative = class
        .replace("additional = true\n", "")
        .replace("/part{part:number}\"", "/piece{part:number}\"");
    let (_, printed) = check(&host, &alternative, "");
    assert!(!printed.contains("[[discover]]"), "{printed}");
    for (from, to, options, expected, says) in [
        (
            "/part{part:number}\"",
            "/piece{part:number}\"",
            "--strict",
            code::SUCCESS,
            "table 2 of [[discover]] finds no device: nothing matches \
             /sys/thing{index:number}/piece{part:number}",
        ),
        (
            "none_of = [\"broken\"]",
            "none_of = [\"a\"]",
            "",
            code::SUCCESS,
            "table 2 of [[discover]] finds no device: `require` refuses all that matches",
        ),
        (
            "part_of = \"thing-{serial}\"",
            "part_of = \"card-{serial}\"",
            "",
            code::SUCCESS,
            "`part_of` names card-a, and no device of this class has this id",
        ),
        (
            "part_of = \"thing-{serial}\"",
            "part_of = \"card-{serial}\"",
            "--strict",
            code::FAILURE,
            "`part_of` names card-a, and no device of this class has this id",
        ),
    ] {
        assert!(class.contains(from), "{from}");
        let (exit, printed) = check(&host, &class.replace(from, to), options);
        assert_eq!(exit, Some(expected), "{to}: {printed}");
        assert_says(&printed, &[says]);
    }
}

#[test]
fn with_strict_and_expect_a_class_that_finds_less_fails() {
    let two_well = [("a", "ok"), ("b", "ok")];
    let one_sick = [("a", "ok"), ("b", "hot")];
    let one_left_out = [("a", "ok"), ("a", "ok")];
    for (things, options, expected, says) in [
        (
            &two_well[..],
            "--strict --expect 2",
            code::SUCCESS,
            "class thing: OK",
        ),
        (
            &two_well,
            "--expect 3",
            code::FAILURE,
            "the class has 2 devices here, and --expect says 3",
        ),
        (
            &two_well,
            "--expect 1",
            code::FAILURE,
            "the class has 2 devices here, and --expect says 1",
        ),
        (&one_sick, "", code::SUCCESS, "OK, with warnings"),
        (&one_sick, "--strict", code::FAILURE, "error  health"),
        (&one_sick, "--expect 2", code::FAILURE, "error  health"),
        (&one_left_out, "", code::SUCCESS, "OK, with warnings"),
        (
            &one_left_out,
            "--expect 1",
            code::FAILURE,
            "error  discover",
        ),
        (&[], "", code::SUCCESS, "note  discover"),
        (&[], "", code::SUCCESS, "OK, but it finds no device here"),
        (
            &[],
            "--strict",
            code::FAILURE,
            "error  discover  no device of this class",
        ),
        (
            &[],
            "--expect 1",
            code::FAILURE,
            "the class has 0 devices here",
        ),
        (&[], "--strict --expect 0", code::SUCCESS, "class thing: OK"),
    ] {
        let (code, printed) = check(&host(things), THING, options);
        assert_eq!(code, Some(expected), "{things:?} {options}: {printed}");
        assert!(printed.contains(says), "{things:?} {options}: {printed}");
    }
}

#[test]
fn names_of_installed_classes_are_errors() {
    let host = host(&[("a", "ok")]);
    host.add_shipped_class("nvidia-gpu").unwrap();
    host.add_shipped_class("rdma-shared").unwrap();
    for (right, wrong, expected, says) in [
        ("", "", code::SUCCESS, "class thing: OK"),
        (
            "THING_VISIBLE_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
            code::FAILURE,
            "the class nvidia-gpu uses the variable NVIDIA_VISIBLE_DEVICES too",
        ),
        (
            "THING_VISIBLE_DEVICES",
            "NVIDIA_VISIBLE_DEVICES",
            code::FAILURE,
            "choose a name of your own, such as THING_VISIBLE_DEVICES",
        ),
        (
            "example.com/thing",
            "nvidia.com/gpu",
            code::FAILURE,
            "the class nvidia-gpu has the resource and CDI kind nvidia.com/gpu too",
        ),
        (
            "example.com/thing\"",
            "rdma/hca_shared_devices_a\"\nenabled = false",
            code::SUCCESS,
            "only one of the two may be enabled",
        ),
        (
            "example.com/thing\"",
            "example.com/thing\"\nsharing = { replicas = 2, count_resource = \"dummy.com/npu\" }",
            code::FAILURE,
            "the class dummy-npu has the resource and CDI kind dummy.com/npu too",
        ),
    ] {
        let (code, printed) = check(&host, &THING.replacen(right, wrong, 1), "");
        assert_eq!(code, Some(expected), "{wrong}: {printed}");
        assert!(printed.contains(says), "{wrong}: {printed}");
    }
    // The file replaces an installed one of its name, and is no clash with itself.
    let (_, printed) = check(&host, THING, "");
    assert_says(&printed, &["to install the class, copy the file to"]);
    host.add_class("thing", THING).unwrap();
    let (_, printed) = check(&host, THING, "");
    assert!(!printed.contains("install"), "{printed}");
    let (code, printed) = check(&host, &format!("{THING}# changed\n"), "");
    assert_eq!(code, Some(code::SUCCESS), "{printed}");
    assert_says(
        &printed,
        &[
            "the installed class of this name is another one",
            "classes/thing.toml",
        ],
    );
    let installed = host.classes().join("thing.toml");
    let ran = succeeds(&host, &["class", "check", installed.to_str().unwrap()]);
    assert!(!ran.stdout.contains("names"), "{}", ran.stdout);
}

/// The hook refuses containers that need the node, so that no device can be used.
#[test]
fn without_a_node_for_all_devices_none_is_healthy() {
    let host = host(&[("a", "ok")]);
    for (more, expected, is_healthy) in [
        ("", code::SUCCESS, true),
        (
            "[[edits]]\nnodes = ['/dev/thing-control']\n",
            code::FAILURE,
            false,
        ),
        (
            "[[edits]]\noptional = true\nnodes = ['/dev/thing-control']\n",
            code::SUCCESS,
            true,
        ),
    ] {
        let (code, printed) = check(&host, &format!("{THING}{more}"), "--json");
        assert_eq!(code, Some(expected), "{printed}");
        let json: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(json["devices"][0]["healthy"], is_healthy, "{printed}");
    }
}

#[test]
fn a_golden_file_has_the_shares_of_devices() {
    let host = host(&[]);
    let things = "file /sys/thing0/serial\n| a\nfile /sys/thing0/state\n| ok\n";
    fs::write(host.path().join("host.txt"), things).unwrap();
    let shared = format!("{THING}[sharing]\nreplicas = 3\n");
    let options = "--host HOST/host.txt --golden HOST/golden.txt --update";
    let (code, printed) = check(&host, &shared, options);
    assert_eq!(code, Some(code::SUCCESS), "{printed}");
    let written = fs::read_to_string(host.path().join("golden.txt")).unwrap();
    assert_says(&written, &["thing-a is for 3 containers at once"]);
}

#[test]
fn a_recorded_host_is_compared_with_a_golden_file() {
    let host = host(&[]);
    let things = "file /sys/thing0/serial\n| a\nfile /sys/thing0/state\n| ok\n";
    fs::write(host.path().join("host.txt"), things).unwrap();
    let golden = host.path().join("golden.txt");
    let options = "--strict --host HOST/host.txt --golden HOST/golden.txt";
    let update = format!("{options} --update");

    let (code, printed) = check(&host, THING, options);
    assert_eq!(code, Some(code::FAILURE), "{printed}");
    assert_says(&printed, &["golden.txt does not exist", "--update"]);
    assert!(!golden.exists());

    let (code, printed) = check(&host, THING, &update);
    assert_eq!(code, Some(code::SUCCESS), "{printed}");
    let written = fs::read_to_string(&golden).unwrap();
    let expected = "thing-a  example.com/thing  numa none  healthy  index 0\n\n\
                    $ THING_VISIBLE_DEVICES=all\nthing: 1 of 1 devices\n";
    assert!(written.starts_with(expected), "{written}");

    // The requests of the file are kept.
    let more = format!("{written}\n$ THING_VISIBLE_DEVICES=7\n");
    fs::write(&golden, more).unwrap();
    check(&host, THING, &update);
    let written = fs::read_to_string(&golden).unwrap();
    assert_says(
        &written,
        &[
            "$ THING_VISIBLE_DEVICES=all",
            "$ THING_VISIBLE_DEVICES=7\nrefused: ",
        ],
    );
    let (code, printed) = check(&host, THING, options);
    assert_eq!(code, Some(code::SUCCESS), "{printed}");

    // A class that finds something else fails, and the file stays.
    let other = THING.replace("thing-{serial}", "other-{serial}");
    let (code, printed) = check(&host, &other, options);
    assert_eq!(code, Some(code::FAILURE), "{printed}");
    let difference = [
        "\n- thing-a  example.com",
        "\n+ other-a  example.com",
        "--update",
    ];
    assert_says(&printed, &difference);
    assert_eq!(fs::read_to_string(&golden).unwrap(), written);
    let (_, printed) = check(&host, &other, &format!("--json {options}"));
    let json: Value = serde_json::from_str(&printed).unwrap();
    let first = json["difference"][0].as_str().unwrap();
    assert!(first.starts_with("- thing-a"), "{first}");

    // A golden file is of a recorded host.
    let (code, printed) = check(&host, THING, "--golden HOST/golden.txt");
    assert_eq!(code, Some(code::USAGE), "{printed}");
}

/// The message for a frequent mistake in a first class proposes what the maker probably meant.
#[test]
fn a_makers_mistake_has_a_proposal() {
    const CARD: &str = r#"
version = 1
resource = "example.com/card"
library_directories = ["/opt/card/lib"]
request = { env = "CARD_VISIBLE_DEVICES" }

[[discover]]
path = "/sys/class/card/card{index:number}"

[device]
id = "card-{index}"

[[edits]]
libraries = ["libcard.so.1"]
"#;
    let host = HostDirectory::new().unwrap();
    host.add_file("/sys/class/card/card0/state", "ok").unwrap();
    host.add_file("/opt/card/lib/libcard.so.1", "").unwrap();
    for (right, wrong, says) in [
        (
            "library_directories",
            "library_dirs",
            "did you mean `library_directories`?",
        ),
        (
            "card-{index}",
            "card-{indx}",
            "uses the attribute `indx`, did you mean `index`?",
        ),
        (
            "card/card{",
            "card/acme{",
            "nothing matches /sys/class/card/acme{index:number}; /sys/class/card has card0",
        ),
        (
            "libcard.so.1",
            "libcard.so",
            "; /opt/card/lib/libcard.so.1 is there",
        ),
        (
            "\"/sys/class",
            "\"sys/class",
            "bad pattern `sys/class/card/card{index:number}`: it must begin with a slash",
        ),
    ] {
        let (_, printed) = check(&host, &CARD.replacen(right, wrong, 1), "");
        let words: Vec<&str> = printed.split_whitespace().collect();
        assert!(words.join(" ").contains(says), "{wrong}: {printed}");
    }
}
