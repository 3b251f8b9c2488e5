//! Command lines and configurations that are wrong.

use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;

use super::{assert_refused, boathook, code};

#[test]
fn a_wrong_command_line_is_refused() {
    let host = HostDirectory::new().unwrap();
    for arguments in [
        ["prestrat"].as_slice(),
        &["explain"],
        &["class", "check"],
        &["--colour"],
    ] {
        let ran = boathook(&host, arguments, b"");
        assert_eq!(
            ran.status.code(),
            Some(code::USAGE),
            "{arguments:?}: {}",
            ran.stderr
        );
    }
}

#[test]
fn a_wrong_configuration_is_refused() {
    let host = HostDirectory::new().unwrap();
    let cases: [(&str, &[&str]); 3] = [
        (
            "hots_root = \"/\"\n",
            &["config.toml:4:", "hots_root", "host_root"],
        ),
        ("class = 1\n", &["config.toml:4:", "class"]),
        ("= 1\n", &["config.toml:4:"]),
    ];
    for (more, words) in cases {
        host.write_config(more).unwrap();
        assert_refused(&boathook(&host, &["list"], b""), code::CONFIG, words);
    }
}

/// One that was named must be there; the default one need not.
#[test]
fn a_configuration_that_is_named_has_to_be_there() {
    let mut command = Command::new(binaries::program("boathook").unwrap());
    command.args(["--config", "/nowhere/config.toml", "list"]);
    let ran = Captured::run(&mut command).unwrap();
    assert_refused(&ran, code::CONFIG, &["/nowhere/config.toml"]);
}
