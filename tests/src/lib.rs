//! The harness: everything that a test, the demo or a bench needs to run the built programs with
//! real containers, engines and kernels.
//!
//! [`demo_host`] is a small host with devices and vendor libraries. [`rootfs`] and [`bundle`]
//! create a container's files, and [`runc`] runs the container on cgroup v1 or v2
//! ([`cgroup_view`]). A [`probe`] in the container reports what it finds there, and [`leftovers`]
//! reports what a container left behind on the machine. A [`kubelet`] stands for the real one, on a
//! [`node`] with the plugin, and a [`systemd_host`] for a host that runs systemd. A [`vm`] is a
//! host with real drivers. An engine runs on a [`private_host`], with this machine's files or those
//! of an [`engine_root`], and with an [`image`] of each root file system. [`cri`] calls containerd.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

pub mod alias_device;
pub mod binaries;
pub mod bundle;
pub mod captured;
pub mod cgroup_parent;
pub mod cgroup_view;
pub mod class_files;
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
