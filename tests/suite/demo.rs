//! The demo is a test as well.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::privilege;
use harness::scratch;

#[test]
fn the_demo_ends_well() {
    show("the_demo_ends_well", &[]);
}

/// The tutorial's file, unchanged, on a host with two of
/// its devices.
#[test]
fn the_tutorials_class_can_be_shown() {
    let docs = binaries::source_tree().join("docs/device-classes.md");
    let text = fs::read_to_string(docs).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (class, _) = rest.split_once("```").unwrap();
    let directory = scratch::directory("tutorial").unwrap();
    let (file, host) = (
        directory.path().join("mychip.toml"),
        directory.path().join("host.txt"),
    );
    fs::write(&file, class).unwrap();
    fs::write(
        &host,
        "char /dev/mychip0 240:0\nchar /dev/mychip12 240:12\n",
    )
    .unwrap();
    let shown = show("the_tutorials_class_can_be_shown", &[&file, &host]);
    for node in ["/dev/mychip0", "/dev/mychip12"] {
        assert!(
            shown.as_ref().is_none_or(|shown| shown.contains(node)),
            "{node}"
        );
    }
}

/// What the demo prints; nothing where it cannot run.
fn show(test: &str, arguments: &[&Path]) -> Option<String> {
    let missing = CgroupView::ALL.map(privilege::missing_for_runc);
    if let [Some(reason), Some(_)] = missing {
        skip::report(test, &reason);
        return None;
    }
    let program = binaries::program("demo").unwrap();
    let shown = Captured::run(Command::new(program).args(arguments))
        .unwrap()
        .success()
        .unwrap();
    assert_eq!(
        shown.stdout.lines().last(),
        Some("demo: ok"),
        "{}",
        shown.stdout
    );
    Some(shown.stdout)
}
