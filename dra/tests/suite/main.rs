//! Tests of the built `boathook-dra` as a process, with a fake kubelet and a fake API server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

#[allow(dead_code, reason = "cluster's tests use the rest")]
#[path = "../../../cluster/tests/suite/api_server/mod.rs"]
mod api_server;
mod claims;
mod damaged;
mod disks;
mod figures;
mod functions;
mod kernel;
mod killed;
mod limits;
mod manifests;
mod modes;
mod node;
mod node_events;
mod operation;
mod parameters;
mod parts;
mod parts_faults;
mod plugin_devices;
mod pod_resources;
mod real_functions;
mod shares;
mod slices;
mod sysfs;
mod times;
mod tools;
