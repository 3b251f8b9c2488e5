//! Class files that cannot be used.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use harness::demo_host::{DemoHost, HostDirectory};

use super::{
    assert_refused, boathook, bundle, bundle_of, code, host_with_thing, of_pod, prestart, succeeds,
};
use crate::said::assert_says;

const GOOD: &str = r#"version = 1
description = "for tests"
resource = "example.com/thing"
[request]
env = "THING_VISIBLE_DEVICES"
[[discover]]
path = "/dev/thing{index:number}"
[device]
id = "thing-{index}"
index = "{index}"
nodes = ["/dev/thing{index}"]
"#;

/// A part of a correct file, its replacement, the line, and words of the message.
const CASES: [&str; 6] = [
    "nodes =|noodles =|thing.toml:11:|noodles|did you mean `nodes`",
    "version = 1|version = 2|thing.toml:1:|version",
    "/dev/thing{index:number}|/dev/thing{index|thing.toml:7:|path|{index",
    "/dev/thing{index:number}|dev/../thing*|thing.toml:7:|path",
    "resource = \"example.com/thing\"\n||thing.toml|resource",
    "[device]|[device|thing.toml:8:|table",
];

#[test]
fn a_class_file_with_an_error_is_refused_by_its_line() {
    let host = HostDirectory::new().unwrap();
    let file = host.classes().join("thing.toml");
    let file = file.to_str().unwrap();
    for case in CASES {
        let parts: Vec<&str> = case.split('|').collect();
        let [part, replacement, words @ ..] = &parts[..] else {
            panic!("{case}");
        };
        host.add_class("thing", &GOOD.replacen(part, replacement, 1))
            .unwrap();
        let checked = boathook(&host, &["class", "check", file], b"");
        assert_refused(&checked, code::CONFIG, words);
        let listed = boathook(&host, &["list", "--all"], b"");
        assert_eq!(listed.status.code(), Some(code::CONFIG));
        assert_says(&listed.stderr, words);
        assert!(listed.stdout.contains("npu-63"), "{}", listed.stdout);

        let asking = bundle(&[("THING_VISIBLE_DEVICES", "all")]);
        let ran = prestart(&host, &asking);
        assert_refused(&ran, code::CONFIG, words);
    }
}

/// One vendor's mistake does not stop another vendor's containers.
#[test]
fn a_broken_class_does_not_affect_containers_that_do_not_request_it() {
    let host = HostDirectory::new().unwrap();
    host.add_class("thing", &GOOD.replace("nodes", "noodles"))
        .unwrap();
    for env in [
        vec![],
        vec![(DemoHost::VARIABLE, "void")],
        vec![("THING", "all")],
    ] {
        let bundle = bundle(&env);
        prestart(&host, &bundle).success().unwrap();
    }
}

/// A node has many containers that have nothing to do with devices.
#[test]
fn a_class_that_can_not_be_read_hinders_only_who_names_it() {
    let host = HostDirectory::new().unwrap();
    fs::create_dir(host.classes().join("thing.toml")).unwrap();
    for annotations in [vec![], vec![("devices.boathook.dev/thing", "thing-0")]] {
        let bundle = bundle_of(&of_pod(&annotations));
        let ran = prestart(&host, &bundle);
        let said = "thing.toml: cannot be read: it is a directory, not a regular file";
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        let wanted = if annotations.is_empty() {
            code::SUCCESS
        } else {
            code::CONFIG
        };
        assert_eq!(ran.status.code(), Some(wanted), "{}", ran.stderr);
    }
}

/// Files that decide what runs as root are used only if root alone can change them.
#[test]
fn files_that_others_can_change_are_refused_with_the_command_that_fixes_it() {
    let host = HostDirectory::new().unwrap();
    host.add_class("thing", GOOD).unwrap();
    let class = host.classes().join("thing.toml");
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let prestart = |env: &[(&str, &str)]| {
        let bundle = bundle(env);
        prestart(&host, &bundle)
    };
    let asking = [("THING_VISIBLE_DEVICES", "all")];
    for (path, broken, right) in [(&class, 0o664, 0o644), (&host.classes(), 0o777, 0o755)] {
        mode(path, broken);
        let fix = format!("run: chmod go-w {}", path.display());
        assert_refused(&prestart(&asking), code::CONFIG, &[&fix]);
        let other = prestart(&[("THING", "all")]);
        assert_eq!(other.status.code(), Some(code::SUCCESS), "{}", other.stderr);
        let listed = boathook(&host, &["list", "--all"], b"");
        assert_eq!(listed.status.code(), Some(code::CONFIG));
        assert!(listed.stderr.contains(&fix), "{}", listed.stderr);
        let checked = boathook(&host, &["class", "check", class.to_str().unwrap()], b"");
        assert_says(
            &checked.stdout,
            &["the hook refuses this file: ", &fix, ": refused\n"],
        );
        assert_eq!(checked.status.code(), Some(code::FAILURE));
        mode(path, right);
    }
    mode(&host.config_file(), 0o646);
    let fix = format!("run: chmod go-w {}", host.config_file().display());
    assert_refused(&prestart(&asking), code::CONFIG, &[&fix]);
    let other = prestart(&[]);
    assert_eq!(other.status.code(), Some(code::SUCCESS), "{}", other.stderr);
    mode(&host.config_file(), 0o644);
    let right = prestart(&[]);
    assert_eq!(right.status.code(), Some(code::SUCCESS), "{}", right.stderr);
}

/// `class check` accepts the output of `class new`.
#[test]
fn a_first_class_file_can_be_used() {
    let host = HostDirectory::new().unwrap();
    for (device, name) in [
        ("/dev/mychip0", "mychip"),
        ("/dev/net/tun", "net-tun"),
        ("pci:10ee:5000", "pci-10ee-5000"),
        ("usb:054c:06c1", "usb-054c-06c1"),
    ] {
        let ran = succeeds(&host, &["class", "new", device]);
        host.add_class(name, &ran.stdout).unwrap();
        let file = host.classes().join(format!("{name}.toml"));
        succeeds(&host, &["class", "check", file.to_str().unwrap()]);
    }
    // No installed class has the names of a new one.
    for (class, device, name) in [
        ("serial-port", "/dev/serial0", "my-serial"),
        ("usb-054c-06c1", "usb:054c:06c1", "my-usb-054c-06c1"),
    ] {
        if class == "serial-port" {
            host.add_shipped_class(class).unwrap();
        }
        let ran = succeeds(&host, &["class", "new", device]);
        let variable = name.replace('-', "_").to_uppercase();
        let variable = format!("env = \"{variable}_VISIBLE_DEVICES\"");
        let resource = format!("resource = \"example.com/{name}\"");
        assert_says(
            &ran.stdout,
            &[&variable, &resource, &format!("as {name}.toml")],
        );
    }
    // Nodes that differ in a number are of two devices.
    let ran = succeeds(&host, &["class", "new", "/dev/hidraw1", "/dev/hidraw2"]);
    let said = "/dev/hidraw1 and /dev/hidraw2 are two devices in this class";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("nodes = [\"/dev/hidraw{index}\"]\n"),
        "{}",
        ran.stdout
    );
    // A path that may be a slip of the pen is no error, but is said.
    host.add_file("/dev/log0", "not a device").unwrap();
    for (device, said) in [
        ("/dev/nothing7", "/dev/nothing7 is not on this host"),
        ("/dev/log0", "/dev/log0 is a regular file, not a device"),
    ] {
        let ran = succeeds(&host, &["class", "new", device]);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
        assert!(ran.stdout.starts_with("# Save this as"), "{}", ran.stdout);
    }
}

/// A recording has the files that classes read, and never overwrites another one.
#[test]
fn a_host_is_recorded_once() {
    let host = HostDirectory::new().unwrap();
    let text = GOOD.replace("/dev/thing{index:number}", "/sys/thing{index:number}");
    let text = text.replace(
        "nodes = [\"/dev/thing{index}\"]",
        "health = [{ file = \"state\", equals = \"up\" }]",
    );
    host.add_class("thing", &text).unwrap();
    host.add_file("/sys/thing7/state", "up\n").unwrap();
    host.add_file("/sys/thing7/secret", "hidden\n").unwrap();
    let directory = host.path().join("recorded");
    let arguments = ["class", "record", directory.to_str().unwrap()];
    let ran = succeeds(&host, &arguments);
    assert_says(&ran.stdout, &["devices of dummy-npu, thing"]);
    let recorded = fs::read_to_string(directory.join("host.txt")).unwrap();
    assert!(
        recorded.contains("file /sys/thing7/state\n| up\n"),
        "{recorded}"
    );
    assert!(!recorded.contains("hidden"), "{recorded}");
    assert_eq!(ran.stderr, "");
    let ran = boathook(&host, &arguments, b"");
    assert_refused(&ran, code::FAILURE, &["host.txt", "exists"]);
    let before = fs::read_to_string(directory.join("host.txt")).unwrap();
    assert_eq!(before, recorded);
    // A file where the directory should be.
    let file = host.path().join("file");
    fs::write(&file, "mine").unwrap();
    let ran = boathook(&host, &["class", "record", file.to_str().unwrap()], b"");
    assert_refused(&ran, code::FAILURE, &["file/host.txt", "cannot write"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

/// A recording without the devices of a class that was named helps nobody.
#[test]
fn a_named_class_without_devices_is_reported_when_a_host_is_recorded() {
    let host = HostDirectory::new().unwrap();
    host.add_class("thing", GOOD).unwrap();
    for (number, class, is_reported) in [
        (1, Some("thing"), true),
        (2, Some("dummy-npu"), false),
        (3, None, false),
    ] {
        let directory = host.path().join(format!("recorded{number}"));
        let mut arguments = vec!["class", "record", directory.to_str().unwrap()];
        arguments.extend(class.iter().flat_map(|class| ["--class", class]));
        let ran = succeeds(&host, &arguments);
        let text = "class thing finds no device on this host";
        assert_eq!(ran.stderr.contains(text), is_reported, "{class:?}: {ran:?}");
    }
}

/// A class file need not be installed, and a recording has nothing else of /dev and /proc.
#[test]
fn only_what_the_class_of_a_file_reads_is_recorded() {
    let host = HostDirectory::new().unwrap();
    let text = GOOD
        .replace("/dev/thing{index:number}", "/dev/{name}")
        .replace("thing-{index}", "thing-{name}")
        .replace("index = \"{index}\"\n", "")
        .replace(
            "nodes = [\"/dev/thing{index}\"]",
            "nodes = [\"/dev/{name}\"]",
        );
    let narrow = GOOD
        .replace("/dev/thing", "/sys/thing")
        .replace("nodes =", "# nodes =");
    let [file, narrow_file] = ["wide.toml", "thing.toml"].map(|name| host.path().join(name));
    fs::write(&file, text).unwrap();
    fs::write(&narrow_file, narrow).unwrap();
    host.add_file("/sys/thing7", "").unwrap();
    host.add_file("/sys/other7", "").unwrap();
    host.add_file("/tmp/private", "").unwrap();
    host.add_file("/proc/71/fd/1", "").unwrap();
    for (target, link) in [
        ("/proc/self/fd", "dev/fd"),
        ("71", "proc/self"),
        ("/proc/71/fd/1", "dev/stdout"),
    ] {
        symlink(target, host.root().join(link)).unwrap();
    }
    let record = |name: &str, file: &Path| {
        let directory = host.path().join(name);
        let [directory, file] = [&directory, file].map(|path| path.to_str().unwrap());
        succeeds(&host, &["class", "record", directory, file]);
        fs::read_to_string(host.path().join(name).join("host.txt")).unwrap()
    };
    let recorded = record("one", &narrow_file);
    assert!(recorded.contains("file /sys/thing7\n"), "{recorded}");
    assert!(!recorded.contains("other7"), "{recorded}");
    // The class of any name in /dev sees where the links lead, but not what is there.
    let recorded = record("two", &file);
    assert!(recorded.contains("link /dev/stdout "), "{recorded}");
    for line in recorded.lines() {
        let path = line.split(' ').nth(1).unwrap_or_default();
        assert!(!path.starts_with("/proc"), "{recorded}");
    }
}

/// Two classes that are requested by one variable: neither is guessed.
#[test]
fn two_classes_with_one_variable_are_refused() {
    let host = HostDirectory::new().unwrap();
    host.add_class("thing", GOOD).unwrap();
    host.add_class("thing-too", GOOD).unwrap();
    let asking = bundle(&[("THING_VISIBLE_DEVICES", "all")]);
    let ran = prestart(&host, &asking);
    let words = ["thing", "thing-too", "THING_VISIBLE_DEVICES", "disable one"];
    assert_refused(&ran, code::CONFIG, &words);
}

/// All commands search for the driver's files in the same place.
#[test]
fn every_command_uses_the_driver_root() {
    let host = host_with_thing(
        "discover = [{ path = '/sys/thing{index:number}' }]\n\
         device = { id = 'thing-{index}' }\nedits = [{ binaries = ['/usr/bin/thing-info'] }]\n",
    );
    host.write_config("[class.thing]\ndriver_root = \"/run/thing/driver\"\n")
        .unwrap();
    host.add_file("/sys/thing0", "").unwrap();
    let program = "/run/thing/driver/usr/bin/thing-info";
    host.add_file(program, "").unwrap();

    let file = host.classes().join("thing.toml");
    succeeds(&host, &["class", "check", file.to_str().unwrap()]);
    let recorded = host.path().join("recorded");
    succeeds(&host, &["class", "record", recorded.to_str().unwrap()]);
    let recording = fs::read_to_string(recorded.join("host.txt")).unwrap();
    assert_says(&recording, &[&format!("file {program}\n")]);
    let asking = bundle(&[("THINGS", "all")]);
    let bundle = asking.path().to_str().unwrap();
    let explained = boathook(&host, &["explain", "--bundle", bundle], b"").stdout;
    assert!(explained.contains(program), "{explained}");
    let listed = boathook(&host, &["list", "--all"], b"").stdout;
    assert!(listed.contains("thing-0"), "{listed}");
}

/// The host lacks what few containers request.
#[test]
fn what_no_container_gets_by_default_may_be_missing() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'x.com/chip'\ndiscover = [{ count = 1 }]\n\
                 request = { env = 'CHIPS', capabilities_env = 'CHIP_CAPABILITIES', switches = { COPY = { on = 'copy' } } }\n\
                 device = { id = 'chip-{index}' }\n\
                 edits = [{ capability = 'copy', nodes = ['/dev/chip-copy'] }]\n";
    host.add_class("chip", class).unwrap();
    let class = host.classes().join("chip.toml");
    let checked = boathook(&host, &["class", "check", class.to_str().unwrap()], b"");
    let note = "note  edits  with a capability that is not given by default: /dev/chip-copy";
    assert!(checked.stdout.contains(note), "{checked:?}");
    assert_eq!(checked.status.code(), Some(code::SUCCESS), "{checked:?}");
}
