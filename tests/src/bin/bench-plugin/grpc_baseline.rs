//! A device plugin that only answers: the time that gRPC over a Unix socket
//! costs by itself.

use anyhow::Result;
use harness::kubelet::other_plugin;

use crate::calls::{self, Latency};

/// The latency of a service in its own thread.
pub(crate) fn latency(calls: usize) -> Result<Latency> {
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("echo.sock");
    let _runtime = other_plugin::serve(&socket)?;
    calls::allocate(&socket, calls)
}
