//! `boathook doctor`: the fault decides the exit code, and the fix is printed.

use std::fs;
use std::path::Path;

use harness::binaries;
use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::{Value, json};

use super::{boathook, bundle, bundle_of, of_pod};
use crate::tree::listing;

/// Asks about a bundle.
fn doctor(host: &HostDirectory, bundle: &Path) -> (Option<i32>, String) {
    let arguments = ["doctor", "--bundle", bundle.to_str().unwrap()];
    let ran = boathook(host, &arguments, b"");
    assert_eq!(ran.stderr, "", "{}", ran.stdout);
    (ran.status.code(), ran.stdout)
}

fn with_hook(mut config: Value, path: &Path) -> Value {
    config["hooks"] = json!({ "createRuntime": [{ "path": path }] });
    config
}

fn asking(env: &str) -> Value {
    json!({"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"env": [env]}})
}

#[test]
fn the_exit_code_identifies_the_fault_and_the_fix_is_printed() {
    let host = HostDirectory::new().unwrap();
    let absent = "version = 1\nresource = 'example.com/thing'\n\
        request = { env = 'THINGS' }\ndiscover = [{ path = '/dev/thing{index:number}' }]\n\
        device = { id = 'thing-{index}' }\n";
    host.add_class("thing", absent).unwrap();
    let program = binaries::program("boathook").unwrap();
    let request = format!("{}=npu-1", DemoHost::VARIABLE);
    let gone = Path::new("/nowhere/boathook");
    for (config, code, words) in [
        (asking("PATH=/bin"), 11, ["no variable of any class", "-e "]),
        (
            asking("DUMMY_VISIBLE_DEVICE=1"),
            12,
            [
                "did you mean DUMMY_VISIBLE_DEVICES",
                "set DUMMY_VISIBLE_DEVICES in",
            ],
        ),
        (
            asking(&request),
            13,
            ["no boathook hook", "in place of the runtime"],
        ),
        (
            with_hook(asking(&request), gone),
            14,
            ["/nowhere/boathook", "boathook-init install"],
        ),
        (
            with_hook(asking("THINGS=all"), &program),
            15,
            ["no device on this host", "driver is loaded"],
        ),
        (
            with_hook(asking("DUMMY_VISIBLE_DEVICES=npu-64"), &program),
            5,
            ["no device `npu-64`", "npu-63"],
        ),
        (
            with_hook(asking(&request), &program),
            0,
            ["is called at createRuntime", "no fault found"],
        ),
    ] {
        let bundle = bundle_of(&config);
        let before = (listing(bundle.path()), listing(host.path()));
        let (found, text) = doctor(&host, bundle.path());
        assert_eq!(found, Some(code), "{config}: {text}");
        for word in words {
            assert!(text.contains(word), "no `{word}` in {text}");
        }
        let after = (listing(bundle.path()), listing(host.path()));
        assert_eq!(before, after, "doctor changed something");
    }
    let (code, text) = doctor(&host, Path::new("/nowhere"));
    assert_eq!(code, Some(4), "{text}");
}

/// The first fault of new users of Kubernetes, and the second.
#[test]
fn a_pod_needs_a_limit_and_a_runtime_class() {
    let host = HostDirectory::new().unwrap();
    let mut config = of_pod(&[]);
    config["process"] = json!({ "env": [format!("{}=all", DemoHost::VARIABLE)] });
    config["annotations"]["io.kubernetes.cri.sandbox-namespace"] = "training".into();
    config["annotations"]["io.kubernetes.cri.sandbox-name"] = "job".into();
    let bundle = bundle_of(&config);
    host.write_config("[trust]\nkubelet_checkpoint = '/nowhere'\n")
        .unwrap();
    let (code, text) = doctor(&host, bundle.path());
    assert_eq!(code, Some(16), "{text}");
    assert!(text.contains("limits: dummy.com/npu: 1"), "{text}");
    host.write_config("[trust]\ntrusted_pods = ['training/job']\n")
        .unwrap();
    let (code, text) = doctor(&host, bundle.path());
    assert_eq!(code, Some(13), "{text}");
    assert!(text.contains("runtimeClassName: boathook"), "{text}");
}

#[test]
fn variables_are_tried_without_a_container() {
    let host = HostDirectory::new().unwrap();
    for (variable, code, word) in [
        ("DUMMY_VISIBLE_DEVICES=0,1", 0, "npu-0,npu-1 of dummy-npu"),
        (
            "DUMMY_VISIBLE_DEVICES=0 1",
            5,
            "neither a device nor a range",
        ),
        (
            "DUMY_VISIBLE_DEVICES=0",
            12,
            "did you mean DUMMY_VISIBLE_DEVICES",
        ),
        ("DUMMY", 2, "write NAME=VALUE"),
    ] {
        let ran = boathook(&host, &["doctor", "--env", variable], b"");
        assert_eq!(ran.status.code(), Some(code), "{variable}: {ran:?}");
        let printed = format!("{}{}", ran.stdout, ran.stderr);
        assert!(printed.contains(word), "{variable}: {printed}");
    }
}

/// Of several that a misspelled variable may mean, the nearest is named.
#[test]
fn the_nearest_variable_is_named() {
    let host = HostDirectory::new().unwrap();
    host.add_shipped_class("amd-gpu").unwrap();
    let variable = "DUMY_VISIBLE_DEVICES=0";
    let ran = boathook(&host, &["doctor", "--env", variable], b"");
    assert!(
        ran.stdout.contains("did you mean DUMMY_VISIBLE_DEVICES"),
        "{ran:?}"
    );
    assert!(!ran.stdout.contains("AMD_VISIBLE_DEVICES"), "{ran:?}");
}

/// A container that was refused does not exist any more; the hook's report does.
#[test]
fn the_log_is_read_for_a_container_that_is_gone() {
    let host = HostDirectory::new().unwrap();
    fs::create_dir(host.root().join("run")).unwrap();
    let refused = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let mut state = super::state(refused.path());
    let id = format!("gone-{}", std::process::id());
    state["id"] = id.as_str().into();
    boathook(&host, &["prestart"], state.to_string().as_bytes());
    let ran = boathook(&host, &["doctor", "--container", &id], b"");
    assert_eq!(ran.status.code(), Some(10), "{}", ran.stdout);
    assert!(ran.stdout.contains("no device `npu-64`"), "{}", ran.stdout);
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
    let program = binaries::program("boathook").unwrap();
    let granting = |device: &str| {
        let mut config = asking("PATH=/bin");
        let arguments = ["boathook", "create-runtime", "--cdi", device];
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
        for word in words {
            assert!(text.contains(word), "no `{word}` in {text}");
        }
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
