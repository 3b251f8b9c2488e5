//! Boathook's tests from outside: they run the built programs as a user does.
//!
//! Tiers are modules. A test that needs more than the machine has prints
//! `skipped: <test>: <reason>`.
//!
//! - `cli`: the program `boathook` by itself; needs no root
//! - `durability`: devices on a host with systemd; needs root, runc and debootstrap
//! - `kubernetes`: plugin, kubelet and hook together; needs root and runc
//! - `wrapper`: the program `boathook-runtime` by itself; needs no root
//! - `engines`: docker, podman, containerd, crun, with their own commands; needs
//!   root and the engine
//! - `selfcheck`: the harness itself, without boathook
//! - `runc`: the hook in real containers; needs root and runc

// A test fails by panicking, in its helpers as well.
#![allow(clippy::unwrap_used)]

mod cli;
mod demo;
mod durability;
mod engines;
mod kubernetes;
mod lab;
mod runc;
mod selfcheck;
mod tree;
mod wrapper;
