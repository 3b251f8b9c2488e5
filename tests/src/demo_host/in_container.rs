//! Finds the devices of a demo host that a container has.

use anyhow::{Result, ensure};

use super::DemoHost;
use crate::probe::{Access, Kind, Questions, Report};

/// Returns the path of a device node in the container.
pub fn node(index: usize) -> String {
    format!("/dev/dummy-npu{index}")
}

/// Returns the questions for a probe about all devices that have a node on the host.
pub fn questions() -> Questions {
    (0..DemoHost::NODES)
        .map(node)
        .fold(Questions::new(), Questions::path)
}

/// Returns the indices of the devices that have a node in the container. A node that cannot be read
/// is an error.
pub fn devices(report: &Report) -> Result<Vec<usize>> {
    let mut devices = Vec::new();
    for index in 0..DemoHost::NODES {
        let seen = report.path(node(index))?;
        if seen.kind != Kind::Missing {
            ensure!(seen.read == Access::Granted, "npu-{index}: {}", seen.read);
            devices.push(index);
        }
    }
    Ok(devices)
}

/// Returns the indices of the devices that have a node in the container in which `execute` runs a
/// command.
pub fn devices_by(execute: impl FnOnce(&[String]) -> Result<String>) -> Result<Vec<usize>> {
    devices(&Report::parse(&execute(&questions().command()?)?)?)
}
