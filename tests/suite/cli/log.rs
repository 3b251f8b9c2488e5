//! Messages: one line each wherever they go, whatever an image puts into them.

use std::fs;

use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::json;

use super::{boathook, bundle, code, state};

const HOSTILE: &str = "c1\nboathook: forged\u{1b}[2J\u{202e}";
const ESCAPED: &str = "c1\\nboathook: forged\\u{1b}[2J\\u{202e}";

#[test]
fn control_characters_reach_no_log() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "no-such-device")]);
    let mut state = state(bundle.path());
    state["id"] = json!(HOSTILE);
    let ran = boathook(&host, &["prestart"], state.to_string().as_bytes());
    assert_eq!(ran.status.code(), Some(code::REQUEST), "{}", ran.stderr);
    let file = fs::read_to_string(host.log_file()).unwrap();
    for text in [&ran.stderr, &file] {
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(ESCAPED), "{text}");
        assert!(!text.trim_end_matches('\n').contains(char::is_control));
    }
}

/// crun shows nobody what a hook writes to stderr.
#[test]
fn messages_of_the_hook_are_kept_on_the_node() {
    let host = HostDirectory::new().unwrap();
    fs::create_dir(host.root().join("run")).unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "no-such-device")]);
    let mut state = state(bundle.path());
    let id = format!("kept-{}-{HOSTILE}", std::process::id());
    state["id"] = json!(id);
    let ran = boathook(&host, &["prestart"], state.to_string().as_bytes());
    let message = ran.stderr.trim_end().to_owned();
    let log = boathook(&host, &["log"], b"").success().unwrap().stdout;
    assert_eq!(
        log.lines().filter(|line| line.ends_with(&message)).count(),
        1,
        "{message} in {log}"
    );
}
