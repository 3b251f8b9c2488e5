//! The demo is a test as well.

use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::privilege;

#[test]
fn the_demo_ends_well() {
    let missing = CgroupView::ALL.map(privilege::missing_for_runc);
    if let [Some(reason), Some(_)] = missing {
        return privilege::report_skip("the_demo_ends_well", &reason);
    }
    let program = binaries::program("demo").unwrap();
    let shown = Captured::run(&mut Command::new(program))
        .unwrap()
        .success()
        .unwrap();
    assert_eq!(
        shown.stdout.lines().last(),
        Some("demo: ok"),
        "{}",
        shown.stdout
    );
}
