//! Under containerd, as the kubelet drives it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use harness::engine_root::Generation;
use harness::probe::Report;
use harness::rootfs::Rootfs;
use harness::scratch;

use super::pool::Lease;
use super::{pool, run};
use crate::engines::cri::{Cri, How};
use crate::engines::ctr;
use crate::engines::engine::{ContainerSettings, Engine};

#[test]
#[ignore = "500 pods take many minutes: make load"]
fn pods_beside_a_load() {
    if let Some(reason) = ctr::missing(Generation::OfThisMachine) {
        return skip::report("hundreds of pods", &reason);
    }
    let engine = Cri::new(Generation::OfThisMachine, How::BinaryName).unwrap();
    let machine = engine.machine();
    pool::put_in(&machine.devices);
    let scratch = scratch::directory("load").unwrap();
    let root = machine.private.root();
    let before = mounts(&root);
    run("containerd, CRI", 500, scratch.path(), |lease| {
        start(&engine, lease)
    });
    assert_eq!(mounts(&root), before);
    assert!(!machine.private.file("/run/boathook").exists());
    assert_eq!(machine.devices.logged_problems(), "");
}

/// The mount points in the engine's namespace.
fn mounts(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.parent().unwrap().join("mountinfo")).unwrap();
    let mut points: Vec<_> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(str::to_owned)
        .collect();
    points.sort();
    points
}

fn start(engine: &Cri, lease: &Lease) -> Result<Duration> {
    let wanted = ContainerSettings::new(Rootfs::Glibc, Some(&lease.request()));
    let begin = Instant::now();
    let container = engine.start(&wanted)?;
    let time = begin.elapsed();
    lease.check(&Report::parse(
        &container.exec(&lease.questions().command()?)?,
    )?)?;
    Ok(time)
}
