//! States and bundles that cannot be used.

use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::json;

use super::{assert_refused, bundle, bundle_of, code, hook, prestart, state};

/// The hook's input is refused before anything else is read.
#[test]
fn a_state_that_cannot_be_used_is_refused() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "all")]);
    let mut state = state(bundle.path());
    let whole = state.to_string().into_bytes();
    state["pid"] = json!(run_to_its_end());
    // The tests of `oci::state` have other texts that are no state.
    let cases: [(&str, Vec<u8>, &[&str]); 3] = [
        (
            "cut off",
            whole[..whole.len() / 2].to_vec(),
            &["state", "stdin"],
        ),
        ("not UTF-8", vec![0xff, 0xfe, b'{'], &["state", "stdin"]),
        (
            "a process that is gone",
            state.to_string().into_bytes(),
            &["container the-container", "process", "gone"],
        ),
    ];
    for stage in ["prestart", "create-runtime"] {
        for (case, input, words) in &cases {
            println!("{stage}: {case}");
            assert_refused(&hook(&host, &[stage], input), code::SPEC, words);
        }
    }
}

/// Runs a process to its end, and returns the id that it had.
fn run_to_its_end() -> u32 {
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
        let words = ["the-container", "config.json"];
        assert_refused(&prestart(&host, bundle), code::SPEC, &words);
    }
}
