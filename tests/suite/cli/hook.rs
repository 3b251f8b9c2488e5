//! `boathook-hook` as a program: its help, its refusals, and hooks that were configured to call
//! `boathook`.

use std::fs;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::{DemoHost, HostDirectory};
use harness::privilege::missing_for_root;
use serde_json::{Value, json};

use super::{assert_refused, boathook, bundle, code, hook, state, with_private_run};
use crate::said::assert_says;

fn run(arguments: &[&str]) -> Captured {
    let mut command = with_private_run();
    command.arg(binaries::program("boathook-hook").unwrap());
    Captured::run(command.args(arguments)).unwrap()
}

#[test]
fn the_help_says_whose_program_it_is() {
    let help = run(&["--help"]).success().unwrap().stdout;
    let words = [
        "The OCI hook of Boathook",
        "engines",
        "boathook-hook(1)",
        "https://",
    ];
    assert_says(&help, &words);
    let version = run(&["--version"]).success().unwrap().stdout;
    let wanted = format!("boathook-hook {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(version, wanted);
}

#[test]
fn what_is_not_known_is_refused() {
    for (arguments, words) in [
        (&[][..], ["neither `prestart` nor", "--help"]),
        (&["list"], ["no stage `list`", "`boathook`"]),
        (&["--colour", "prestart"], ["argument `--colour`", "--help"]),
        (&["prestart", "--cdi"], ["`--cdi` needs a value", "--help"]),
        (
            &["create-runtime", "--cdi", "npu\u{1b}[2J"],
            ["`npu\\u{1b}[2J` for `--cdi`", "not CLASS=DEVICE"],
        ),
    ] {
        assert_refused(&run(arguments), code::USAGE, &words);
    }
    let ran = run(&["--json", "prestart", "more"]);
    assert_eq!(ran.status.code(), Some(code::USAGE));
    let printed: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(printed["error"]["kind"], "usage");
    assert_eq!(printed["error"]["exit_code"], code::USAGE);
}

/// crun does not show a hook's stderr.
#[test]
fn a_refusal_is_in_the_log_of_the_node() {
    if let Some(reason) = missing_for_root() {
        return skip::report("a_refusal_is_in_the_log_of_the_node", &reason);
    }
    let program = |name| binaries::program(name).unwrap();
    let script = "\"$0\" prestart --colour 2>/dev/null; test $? = 2 && exec \"$1\" log";
    let mut command = with_private_run();
    command.args(["/bin/sh", "-c", script]);
    command.args([program("boathook-hook"), program("boathook")]);
    let log = Captured::run(&mut command)
        .unwrap()
        .success()
        .unwrap()
        .stdout;
    assert_says(&log, &["unexpected argument `--colour`"]);
}

/// The engine knows the device by the hook's argument in config.json, in either form.
#[test]
fn a_device_of_a_cdi_specification_is_in_config_json() {
    let host = HostDirectory::new().unwrap();
    for (hook_has, called_with, code, words) in [
        (
            "--cdi=dummy-npu=no-such",
            "dummy-npu=no-such",
            code::REQUEST,
            "`no-such`",
        ),
        (
            "--cdi=dummy-npu=no-such",
            "dummy-npu=0",
            code::SPEC,
            "`--cdi dummy-npu=0`",
        ),
        (
            "--colour",
            "dummy-npu=0",
            code::SPEC,
            "no hook in config.json",
        ),
    ] {
        let bundle = bundle(&[]);
        let file = bundle.path().join("config.json");
        let mut config: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        let path = binaries::program("boathook-hook").unwrap();
        let arguments = ["boathook-hook", "create-runtime", hook_has];
        config["hooks"] = json!({ "createRuntime": [{ "path": path, "args": arguments }] });
        fs::write(&file, config.to_string()).unwrap();
        let state = state(bundle.path()).to_string();
        let arguments = ["create-runtime", &format!("--cdi={called_with}")];
        let ran = hook(&host, &arguments, state.as_bytes());
        assert_refused(&ran, code, &[words]);
    }
}

/// A host is upgraded while an engine still has the configuration of the release before.
#[test]
fn a_hook_that_was_configured_to_call_boathook_does_the_same() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "no-such-device")]);
    let state = state(bundle.path()).to_string();
    for arguments in [
        &["prestart"][..],
        &["create-runtime"],
        &["--json", "prestart"],
        &["create-runtime", "--cdi", "dummy-npu=0"],
        &["create-runtime", "--cdi", "none"],
    ] {
        let before = boathook(&host, arguments, state.as_bytes());
        let now = hook(&host, arguments, state.as_bytes());
        assert_eq!(before.status, now.status, "{before:?} {now:?}");
        if now.status.code() != Some(code::USAGE) {
            assert_eq!((before.stdout, before.stderr), (now.stdout, now.stderr));
        }
    }
    let help = boathook(&host, &["--help"], b"").success().unwrap().stdout;
    assert!(
        !help.contains("prestart") && !help.contains("create-runtime"),
        "{help}"
    );
}
