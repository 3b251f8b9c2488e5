//! Requests that cannot be met.

use harness::demo_host::{DemoHost, HostDirectory};

use super::{assert_refused, boathook, bundle, bundle_of, code, of_pod, state};

/// The line names the container and the request.
#[test]
fn a_bad_request_is_refused() {
    let host = HostDirectory::new().unwrap();
    let long = "npu-1,".repeat(20_000);
    let cases: [(&str, &[&str]); 8] = [
        ("npu-64", &["npu-64", "dummy-npu", "64"]),
        ("64", &["`64`", "dummy-npu"]),
        ("npu-0,gpu-0", &["gpu-0"]),
        ("60-64", &["`64`"]),
        ("3-1", &["3-1", "range"]),
        ("0-", &["0-", "range"]),
        ("../../dev/sda", &["../../dev/sda"]),
        (&long, &["120000 bytes"]),
    ];
    for (request, words) in cases {
        let bundle = bundle(&[(DemoHost::VARIABLE, request)]);
        let input = state(bundle.path()).to_string();
        let ran = boathook(&host, &["prestart"], input.as_bytes());
        let words = [words, &["the-container", DemoHost::VARIABLE]].concat();
        assert_refused(&ran, code::REQUEST, &words);
        assert!(
            ran.stderr.len() < 1000,
            "{} bytes for one line",
            ran.stderr.len()
        );
    }
}

#[test]
fn an_unknown_class_is_refused() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle_of(&of_pod(&[("devices.boathook.dev/unheard-of", "0")]));
    let ran = boathook(
        &host,
        &["prestart"],
        state(bundle.path()).to_string().as_bytes(),
    );
    assert_refused(&ran, code::REQUEST, &["the-container", "unheard-of"]);
}

/// A log survives where a runtime throws the hook's words away.
#[test]
fn the_refusal_is_in_the_log_too() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "npu-64")]);
    let ran = boathook(
        &host,
        &["prestart"],
        state(bundle.path()).to_string().as_bytes(),
    );
    let log = host.log();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.ends_with(&ran.stderr), "{log}");
}
