//! Devices of which every one has a number of its own.

use std::collections::VecDeque;
use std::fs;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use harness::alias_device::AliasDevice;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::probe::{Access, Kind, Questions, Report};

use super::{AT_A_TIME, DEVICES, lock};

/// A few more than are in use at a time, so that what a container had goes to
/// another one soon.
const SIZE: usize = AT_A_TIME * DEVICES + 16;

/// Numbers that the kernel keeps for local and experimental use (its
/// Documentation/admin-guide/devices.txt): no driver has them. An open(2) that the
/// device rules allow ends with ENXIO, one that they forbid with EPERM.
const MAJOR: u64 = 120;

/// The indices of devices that nobody has.
pub(super) struct Pool(Mutex<VecDeque<usize>>);

/// Devices of one container, which go back to the pool when this is dropped.
pub(super) struct Lease<'a> {
    pool: &'a Pool,
    indices: Vec<usize>,
}

/// Gives the host's class the devices of the pool.
pub(super) fn put_in(host: &DemoHost) {
    let file = host.classes().join("dummy-npu.toml");
    let text = fs::read_to_string(file).unwrap();
    let larger = text
        .replace("count = 64", &format!("count = {SIZE}"))
        .replace(", optional = true }]", " }]");
    assert_ne!(text, larger);
    host.add_class("dummy-npu", &larger).unwrap();
    for index in 0..SIZE {
        let node = host.node(index);
        let _ = fs::remove_file(&node);
        let minor = index as u64;
        let device = AliasDevice {
            major: MAJOR,
            minor,
        };
        device.make_node(&node).unwrap();
    }
}

impl Pool {
    pub(super) fn new() -> Self {
        Self(Mutex::new((0..SIZE).collect()))
    }

    /// Those that have been free for the longest time.
    pub(super) fn lease(&self) -> Lease<'_> {
        let indices = lock(&self.0).drain(..DEVICES).collect();
        Lease {
            pool: self,
            indices,
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        lock(&self.pool.0).extend(self.indices.drain(..));
    }
}

/// The path of a node that a container makes itself, with a device's number.
fn own_node_path(index: usize) -> String {
    format!("/dev/made{index}")
}

impl Lease<'_> {
    /// The request for them.
    pub(super) fn request(&self) -> String {
        let ids: Vec<_> = self
            .indices
            .iter()
            .map(|index| format!("npu-{index}"))
            .collect();
        ids.join(",")
    }

    /// The questions to the container about all devices of the pool.
    pub(super) fn questions(&self) -> Questions {
        (0..SIZE).fold(Questions::new(), |questions, index| {
            questions
                .path(node(index))
                .new_node(own_node_path(index), MAJOR, index as u64)
        })
    }

    /// Checks the answers: these devices are there and may be opened, and no others.
    pub(super) fn check(&self, report: &Report) -> Result<()> {
        for index in 0..SIZE {
            let is_ours = self.indices.contains(&index);
            let there = report.path(node(index))?;
            let number = there.number();
            let expected = is_ours.then_some((MAJOR, index as u64));
            ensure!(number == expected, "{}: {there:?}", node(index));
            ensure!(is_ours || there.kind == Kind::Missing, "{there:?}");
            let attempt = report.new_node(own_node_path(index))?;
            ensure!(attempt.made == Access::Granted, "{attempt:?}");
            let opened = attempt.read.as_ref().context("it was made")?;
            let expected = Access::refused(if is_ours { "ENXIO" } else { "EPERM" });
            ensure!(
                *opened == expected,
                "{} of {:?}: {opened}",
                node(index),
                self.indices
            );
            if is_ours {
                ensure!(there.read_write == expected, "{}: {there:?}", node(index));
            }
        }
        Ok(())
    }
}
