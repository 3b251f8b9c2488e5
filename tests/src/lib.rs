//! The harness: everything a test, the demo or a bench needs to run the built
//! binaries on real parts.
//!
//! Read from the outside in: [`demo_host`] is a small host of its own with
//! devices and vendor libraries; [`rootfs`] and [`bundle`] make a container's
//! files; [`runc`] runs it on cgroup v1 or v2 ([`cgroup_view`]); a [`probe`]
//! inside reports what the container really sees; [`leftovers`] reports what a
//! container left on the machine. A [`kubelet`] stands in for the real one, on a
//! [`node`] with the plugin, and a [`systemd_host`] for a host that runs systemd, which a
//! [`vm`] is, with real drivers. An engine gets a
//! [`private_host`], on this machine's files or on an [`engine_root`], and an
//! [`image`] for each root file system, and containerd is driven by [`cri`].

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

pub mod alias_device;
pub mod binaries;
pub mod bundle;
pub mod captured;
pub mod cgroup_parent;
pub mod cgroup_view;
pub mod clean_root;
pub mod compile;
pub mod count;
pub mod cri;
pub mod damage;
pub mod demo_host;
pub mod driver_tree;
pub mod engine_root;
pub mod exit;
pub mod figure;
pub mod fingerprint;
pub mod hanging;
pub mod image;
pub mod in_root;
pub mod kubelet;
pub mod leftovers;
pub mod loader;
pub mod manifests;
mod mirror;
pub mod mountinfo;
pub mod node;
pub mod patience;
pub mod plugin_process;
pub mod private_host;
pub mod privilege;
pub mod probe;
pub mod recorded_host;
pub mod reference_work;
pub mod requestless_bundle;
pub mod rootfs;
pub mod runc;
pub mod scratch;
pub mod surroundings;
pub mod systemd_host;
pub mod vm;
