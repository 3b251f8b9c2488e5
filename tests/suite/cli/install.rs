//! `boathook-init` installs the programs beside it into a directory, and removes them.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::scratch;

use crate::said::assert_says;

fn printed(command: &mut Command) -> String {
    let ran = Captured::run(command).and_then(Captured::success);
    ran.unwrap().stdout
}

/// The programs themselves: a script that runs one under an emulator is not installed.
fn programs(into: &Path) {
    fs::create_dir(into).unwrap();
    for name in [
        "boathook",
        "boathook-hook",
        "boathook-runtime",
        "boathook-init",
    ] {
        let path = binaries::program(name).unwrap();
        let start = fs::read(&path).unwrap();
        let program = match start.strip_prefix(b"#!/bin/sh\nexec ") {
            None => path,
            Some(words) => {
                let words = String::from_utf8_lossy(words).into_owned();
                words.split_whitespace().nth(1).unwrap().into()
            }
        };
        binaries::copy(&program, &into.join(name)).unwrap();
    }
}

#[test]
fn the_programs_are_installed_into_a_directory_and_removed() {
    let init = || Command::new(binaries::program("boathook-init").unwrap());
    let help = printed(init().arg("--help"));
    assert!(help.contains("Exit codes:"), "{help}");
    let version = env!("CARGO_PKG_VERSION");
    for name in ["boathook", "boathook-init"] {
        let program = binaries::program(name).unwrap();
        let text = printed(Command::new(program).arg("--version"));
        assert_eq!(text, format!("{name} {version}\n"));
    }

    let dir = scratch::directory("install").unwrap();
    let (host, source) = (dir.path().join("host"), dir.path().join("programs"));
    fs::create_dir(&host).unwrap();
    programs(&source);
    let on_host = |arguments: &[&str]| {
        let mut command = init();
        command.arg("--host-root").arg(&host).args(arguments);
        printed(&mut command)
    };
    let classes = binaries::source_tree().join("device-class/classes");
    let (source, classes) = (source.to_str().unwrap(), classes.to_str().unwrap());
    let install = [
        "install",
        "--engine=none",
        "--source",
        source,
        "--classes",
        classes,
    ];
    let text = on_host(&install);
    assert_says(&text, &[&format!("boathook {version} is installed")]);
    let current = host.join("opt/boathook/current");
    assert!(current.join("bin/boathook-runtime").is_file());
    assert!(current.join("classes.d/dummy-npu.toml").is_file());
    assert!(on_host(&["status"]).contains(version));
    on_host(&["uninstall"]);
    assert_eq!(fs::read_dir(&host).unwrap().count(), 0);
}
