//! The demo is a test as well.

use std::fs;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::privilege;
use harness::scratch;

use crate::said::assert_says;

#[test]
fn the_demo_ends_well() {
    show("the_demo_ends_well", &[]);
}

/// The tutorial's file, unchanged, on a host with two of
/// its devices.
#[test]
fn the_tutorials_class_can_be_shown() {
    let docs = binaries::source_tree().join("docs/class-tutorial.md");
    let text = fs::read_to_string(docs).unwrap();
    let (_, rest) = text.split_once("```toml\n").unwrap();
    let (class, _) = rest.split_once("```").unwrap();
    let directory = scratch::directory("tutorial").unwrap();
    let [file, host] = ["mychip.toml", "host.txt"].map(|name| directory.path().join(name));
    let nodes = "char /dev/mychip0 240:0\nchar /dev/mychip12 240:12\n";
    fs::write(&file, class).unwrap();
    fs::write(&host, nodes).unwrap();
    if let Some(shown) = show("the_tutorials_class_can_be_shown", &[&file, &host]) {
        assert_says(&shown, &["/dev/mychip0", "/dev/mychip12"]);
    }
}

/// Returns the output of the demo, or `None` where it cannot run.
fn show(test: &str, arguments: &[&Path]) -> Option<String> {
    let missing = CgroupView::ALL.map(privilege::missing_for_runc);
    if let [Some(reason), Some(_)] = missing {
        skip::report(test, &reason);
        return None;
    }
    let program = binaries::program("demo").unwrap();
    let shown = Captured::run(Command::new(program).args(arguments));
    let shown = shown.and_then(Captured::success).unwrap().stdout;
    assert_eq!(shown.lines().last(), Some("demo: ok"), "{shown}");
    Some(shown)
}
