//! Requests that cannot be met.

use harness::demo_host::{DemoHost, HostDirectory};

use super::{assert_refused, bundle, bundle_of, code, of_pod, prestart};

/// The line names the container and the request.
#[test]
fn a_bad_request_is_refused() {
    let host = HostDirectory::new().unwrap();
    let long = "npu-1,".repeat(20_000);
    // The tests of `injection_plan::request` have other texts that are no request.
    let cases: [(&str, &[&str]); 3] = [
        ("npu-64", &["npu-64", "dummy-npu", "64"]),
        ("../../dev/sda", &["../../dev/sda"]),
        (&long, &["120000 bytes"]),
    ];
    for (request, words) in cases {
        let bundle = bundle(&[(DemoHost::VARIABLE, request)]);
        let ran = prestart(&host, &bundle);
        let words = [words, &["the-container", DemoHost::VARIABLE]].concat();
        assert_refused(&ran, code::REQUEST, &words);
        assert!(
            ran.stderr.len() < 1000,
            "{} bytes for one line",
            ran.stderr.len()
        );
    }
}

/// A file that cannot be read may be what the name means: it is named beside it, and in
/// its place only if it is the class's own.
#[test]
fn an_unreadable_class_file_does_not_hide_an_unknown_class() {
    let host = HostDirectory::new().unwrap();
    for name in ["b", "c", "d", "e"] {
        std::fs::create_dir(host.classes().join(format!("{name}.toml"))).unwrap();
    }
    let run = |class: &str| {
        let bundle = bundle_of(&of_pod(&[(&format!("devices.boathook.dev/{class}"), "0")]));
        prestart(&host, &bundle)
    };
    let words = ["unheard-of names a class", "b.toml", "d.toml", "and 1 more"];
    assert_refused(&run("unheard-of"), code::REQUEST, &words);
    let own = run("d");
    assert_refused(&own, code::CONFIG, &["d.toml: "]);
    assert!(!own.stderr.contains("b.toml"), "{}", own.stderr);
}
