//! States and bundles that cannot be used.

use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::{Value, json};

use super::{assert_refused, boathook, bundle, bundle_of, code, state};

/// The hook's input is refused before anything else is read.
#[test]
fn a_state_that_cannot_be_used_is_refused() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "all")]);
    let with = |key: &str, value: Value| {
        let mut state = state(bundle.path());
        state[key] = value;
        state.to_string().into_bytes()
    };
    let whole = state(bundle.path()).to_string().into_bytes();
    let large = [vec![b' '; 1 << 20], whole.clone()].concat();
    let cases: [(&str, Vec<u8>, &[&str]); 10] = [
        ("empty", Vec::new(), &["state", "stdin"]),
        (
            "cut off",
            whole[..whole.len() / 2].to_vec(),
            &["state", "stdin"],
        ),
        ("too large", large, &["state", "stdin", "1048576 bytes"]),
        ("not JSON", b"hello".to_vec(), &["state", "stdin"]),
        ("not UTF-8", vec![0xff, 0xfe, b'{'], &["state", "stdin"]),
        ("a list", b"[]".to_vec(), &["state", "stdin"]),
        (
            "an unknown version",
            with("ociVersion", json!("7.0.0")),
            &["7.0.0"],
        ),
        (
            "an unknown status",
            with("status", json!("dreaming")),
            &["dreaming"],
        ),
        (
            "a stopped container",
            with("status", json!("stopped")),
            &["stopped"],
        ),
        (
            "a process that is gone",
            with("pid", json!(gone())),
            &["process", "gone"],
        ),
    ];
    for stage in ["prestart", "create-runtime"] {
        for (case, input, words) in &cases {
            println!("{stage}: {case}");
            assert_refused(&boathook(&host, &[stage], input), code::SPEC, words);
        }
    }
}

/// The id of a process that has ended.
fn gone() -> u32 {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn a_bundle_that_cannot_be_used_is_refused() {
    let host = HostDirectory::new().unwrap();
    let no_config = tempfile::tempdir().unwrap();
    let not_json = tempfile::tempdir().unwrap();
    std::fs::write(not_json.path().join("config.json"), "hello").unwrap();
    let no_root = bundle_of(&json!({"ociVersion": "1.0.2"}));
    for bundle in [&no_config, &not_json, &no_root] {
        let input = state(bundle.path()).to_string();
        let words = ["the-container", "config.json"];
        assert_refused(
            &boathook(&host, &["prestart"], input.as_bytes()),
            code::SPEC,
            &words,
        );
    }
}

/// What other runtimes write is not refused.
#[test]
fn states_of_other_runtimes_are_read() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[]);
    let mut cases = vec![state(bundle.path())];
    for (key, value) in [
        ("ociVersion", json!("1.0.2-dev")),
        ("ociVersion", json!("1.3.0")),
        ("status", json!("created")),
        ("root", json!("/")),
        ("vendorExtension", json!({"deep": [1, null]})),
    ] {
        let mut state = state(bundle.path());
        state[key] = value;
        cases.push(state);
    }
    for state in cases {
        let ran = boathook(&host, &["create-runtime"], state.to_string().as_bytes());
        assert_eq!(
            ran.status.code(),
            Some(code::SUCCESS),
            "{state}: {}",
            ran.stderr
        );
        assert_eq!(ran.stdout + &ran.stderr, "", "{state}");
    }
}
