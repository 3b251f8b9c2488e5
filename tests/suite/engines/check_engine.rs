//! What `boathook-plugin check-engine` says of an engine that reads CDI annotations, which
//! `cri_cdi` shows, and of one that ignores them.

use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::engine_root::Generation;

use super::cri::{Cri, How};
use super::ctr;
use crate::said::assert_says;

/// The engine's answer to the plugin; `None`: it cannot be run here.
fn asked(test: &str, generation: Generation, how: How) -> Option<Captured> {
    if let Some(reason) = ctr::missing(generation) {
        skip::report(test, &reason);
        return None;
    }
    let engine = Cri::new(generation, how).unwrap();
    let mut plugin = Command::new(binaries::program("boathook-plugin").unwrap());
    plugin.args(["check-engine", "--socket"]);
    plugin.arg(engine.machine().path("socket"));
    Some(Captured::run(&mut plugin).unwrap())
}

#[test]
fn a_containerd_of_today_brings_devices_by_cdi() {
    let test = "check-engine, containerd 2";
    if let Some(ran) = asked(test, Generation::Forky, How::Cdi) {
        let ran = ran.success().unwrap();
        assert!(ran.stdout.contains("with containerd 2."), "{}", ran.stdout);
    }
}

#[test]
fn containerd_1_is_refused() {
    let test = "check-engine, containerd 1";
    let version = Captured::run(Command::new("containerd").arg("--version"));
    if !version.is_ok_and(|ran| ran.stdout.contains(" 1.")) {
        return skip::report(test, "needs containerd 1.x");
    }
    if let Some(ran) = asked(test, Generation::OfThisMachine, How::BinaryName) {
        assert_eq!(ran.status.code(), Some(1));
        assert_says(&ran.stderr, &["ignores CDI annotations"]);
    }
}
