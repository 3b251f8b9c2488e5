//! `boathook cdi generate`.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use serde_json::Value;

use super::{boathook, succeeds};

/// A class that is not enabled is written if it is named, and updated from then on.
#[test]
fn what_was_named_once_stays_until_it_is_disabled() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/spare'\nenabled = false\n\
        request = { env = 'SPARE' }\ndiscover = [{ path = '/etc/spare' }]\n\
        [device]\nid = 'spare'\nnodes = []\n[[edits]]\nfiles = ['/etc/spare']\n";
    host.add_class("spare", class).unwrap();
    let directory = host.path().join("cdi");
    let output = directory.to_str().unwrap().to_owned();
    let file = directory.join("boathook-example.com-spare.json");
    let generate = |names: &[&str]| {
        let arguments = [&["cdi", "generate", "--output", &output], names].concat();
        succeeds(&host, &arguments)
    };
    host.add_file("/etc/spare", "").unwrap();
    generate(&[]);
    assert!(!file.exists());
    let named = generate(&["spare"]);
    assert!(named.stderr.contains("spare is not enabled"), "{named:?}");
    let written = fs::read(&file).unwrap();
    fs::write(
        &file,
        String::from_utf8_lossy(&written).replace("npu1", "npu9"),
    )
    .unwrap();
    generate(&[]);
    assert_eq!(fs::read(&file).unwrap(), written);
    host.write_config("[class.spare]\nenabled = false\n")
        .unwrap();
    let removed = generate(&[]).stdout;
    assert!(removed.contains("removed"), "{removed}");
    assert!(!file.exists());
}

/// A device has several names, and all devices together have another.
#[test]
fn devices_are_counted_and_classes_that_are_not_enabled_are_named() {
    let host = HostDirectory::new().unwrap();
    host.write_config("[class.dummy-npu]\nenabled = false\n")
        .unwrap();
    let directory = host.path().join("cdi");
    let output = format!("--output={}", directory.display());
    let generate = |names: &[&str]| {
        let arguments = [&["cdi", "generate", output.as_str()], names].concat();
        boathook(&host, &arguments, b"").success().unwrap()
    };
    let nothing = generate(&[]).stderr;
    assert!(
        nothing.contains("no class has a usable device on this host"),
        "{nothing}"
    );
    let class = "version = 1\nresource = 'example.com/card'\nenabled = false\n\
        request = { env = 'CARD' }\ndiscover = [{ path = '/etc/card{index:number}' }]\n\
        [device]\nid = 'card-{index}'\nindex = '{index}'\nfiles = ['/etc/card{index}']\n";
    host.add_class("card", class).unwrap();
    for (number, counts) in [
        (0, "1 device of example.com/card (3 names)"),
        (1, "2 devices of example.com/card (5 names)"),
    ] {
        host.add_file(&format!("/etc/card{number}"), "").unwrap();
        let disabled = generate(&[]).stderr;
        let words = "no class that is enabled has a usable device on this host; others have \
                     devices, and `boathook cdi generate card` writes their names";
        assert!(disabled.contains(words), "{disabled}");
        let written = generate(&["card"]).stdout;
        assert!(number == 1 || written.contains(counts), "{written}");
        fs::remove_dir_all(&directory).unwrap();
        let written = generate(&["card", "--form=plain"]).stdout;
        assert!(written.contains(counts), "{written}");
    }
}

/// For scripts that put the specifications elsewhere, or want a part of them.
#[test]
fn specifications_are_printed_and_have_the_devices_that_are_named() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nresource = 'example.com/card'\n\
        request = { env = 'CARD' }\ndiscover = [{ path = '/etc/card{index:number}' }]\n\
        [device]\nid = 'card-{index}'\nindex = '{index}'\nfiles = ['/etc/card{index}']\n";
    host.add_class("card", class).unwrap();
    for number in 0..3 {
        host.add_file(&format!("/etc/card{number}"), "").unwrap();
    }
    let print = |names: &[&str]| {
        let arguments = ["cdi", "generate", "card", "--form=plain", "--output=-"];
        let text = succeeds(&host, &[&arguments, names].concat()).stdout;
        let specification: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(specification["kind"], "example.com/card");
        let devices = specification["devices"].as_array().unwrap().iter();
        let names = devices.map(|device| device["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(print(&[]), "card-0 0 card-1 1 card-2 2 all");
    let two = ["--device=card-1", "--device=example.com/card=0"];
    assert_eq!(print(&two), "0 card-1");
    let arguments = [
        "--json",
        "cdi",
        "generate",
        "card",
        "--form=plain",
        "--output=-",
    ];
    let json: Value = serde_json::from_str(&succeeds(&host, &arguments).stdout).unwrap();
    assert_eq!(json["specifications"][0]["kind"], "example.com/card");

    let directory = host.path().join("cdi");
    let output = format!("--output={}", directory.display());
    let other = directory.join("boathook-example.com-other.json");
    fs::create_dir(&directory).unwrap();
    fs::write(&other, "{\"kind\": \"example.com/other\"}").unwrap();
    let arguments = ["cdi", "generate", "card", &output, "--form=plain"];
    succeeds(&host, &[&arguments[..], &["--device=2"]].concat());
    let text = fs::read_to_string(directory.join("boathook-example.com-card.json")).unwrap();
    assert!(!text.contains("card-0"), "{text}");
    assert!(other.exists(), "a part of the devices removes no file");
    let unknown = [&arguments[..], &["--device=card-7"]].concat();
    let refused = boathook(&host, &unknown, b"");
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("is named `card-7`"), "{refused:?}");
}

/// `boathook list` does not show what it leaves out.
#[test]
fn a_device_of_a_class_that_is_not_enabled_is_found_by_the_message() {
    let host = HostDirectory::new().unwrap();
    let class = "version = 1\nenabled = false\nresource = 'example.com/card'\n\
        request = { env = 'CARD' }\ndiscover = [{ path = '/etc/card' }]\n\
        device = { id = 'card', files = ['/etc/card'] }\n";
    host.add_class("card", class).unwrap();
    host.add_file("/etc/card", "").unwrap();
    for (arguments, says) in [
        (
            "--device=card",
            "a class that is not enabled has example.com/card=card",
        ),
        (
            "--device=example.com/card=card",
            "has example.com/card=card: name the class, or add --all",
        ),
        (
            "--device=cart",
            "`boathook list --all` shows ids and indices",
        ),
        (
            "card --device=cart",
            "`boathook list --all` shows ids and indices",
        ),
        ("card --device=card", ""),
        ("--all --device=card", ""),
    ] {
        let line = format!("cdi generate --form=plain --output=- {arguments}");
        let ran = boathook(&host, &line.split(' ').collect::<Vec<_>>(), b"");
        let is_unknown = ran
            .stderr
            .contains("no device of the specifications is named");
        assert_eq!(is_unknown, !says.is_empty(), "{arguments}: {ran:?}");
        assert!(ran.stderr.contains(says), "{arguments}: {ran:?}");
    }
}

/// A chart installs in the directory `installDir`, which no file on the node names. The next version
/// is beside this one, and this one is removed in the end.
#[test]
fn the_hook_of_an_installation_is_named_by_the_link_to_the_current_version() {
    let host = HostDirectory::new().unwrap();
    let installed = host.path().join("installed");
    let programs = installed.join("0.9.1/bin");
    fs::create_dir_all(&programs).unwrap();
    for name in ["boathook", "boathook-hook"] {
        fs::copy(binaries::program(name).unwrap(), programs.join(name)).unwrap();
    }
    let config_file = host.config_file();
    let hooks = |program: &str| {
        let mut command = Command::new(installed.join(program).join("bin/boathook"));
        // The hook gets the absolute path.
        command.current_dir(config_file.parent().unwrap());
        command
            .arg("--config")
            .arg(config_file.file_name().unwrap());
        command.args(["cdi", "generate", "--all", "--output", "-"]);
        let printed = Captured::run(&mut command).unwrap().success().unwrap();
        let document: Value = serde_json::from_str(&printed.stdout).unwrap();
        let hook = &document["devices"][0]["containerEdits"]["hooks"][0];
        let arguments = [
            "boathook-hook",
            "create-runtime",
            "--config",
            config_file.to_str().unwrap(),
            "--cdi",
        ];
        assert_eq!(hook["args"].as_array().unwrap()[..5], arguments);
        hook["path"].clone()
    };
    let path = |directory: &str| {
        Value::from(format!(
            "{}/{directory}/bin/boathook-hook",
            installed.display()
        ))
    };
    assert_eq!(hooks("0.9.1"), path("0.9.1"));
    symlink("0.9.1", installed.join("current")).unwrap();
    assert_eq!(hooks("0.9.1"), path("current"));
    assert_eq!(hooks("current"), path("current"));
}

/// The units are those of the shipped class, as the vendor's package installs them.
#[test]
fn check_names_the_services_of_a_vendor_that_write_specifications() {
    let host = HostDirectory::new().unwrap();
    host.add_shipped_class("nvidia-gpu").unwrap();
    let found = || {
        let checked = boathook(&host, &["check", "--json"], b"").stdout;
        let document: Value = serde_json::from_str(&checked).unwrap();
        let findings = document["findings"].as_array().unwrap().clone();
        let mut findings = findings.into_iter();
        findings.find(|finding| finding["subject"] == "CDI names")
    };
    assert_eq!(found(), None);
    for unit in ["nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"] {
        host.add_file(&format!("/usr/lib/systemd/system/{unit}"), "")
            .unwrap();
    }
    let services = "nvidia-cdi-refresh.path nvidia-cdi-refresh.service";
    for verdict in ["note", "warning"] {
        let finding = found().unwrap();
        assert_eq!(finding["verdict"], verdict);
        let fix = finding["fix"].as_str().unwrap();
        let command = format!("run `systemctl disable --now {services}`");
        assert!(fix.contains(&command), "{fix}");
        host.add_file("/run/cdi/boathook-nvidia.com-gpu.json", "{}")
            .unwrap();
    }
}
