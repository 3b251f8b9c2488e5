//! Boathook's tests from outside: they run the built programs as a user does.
//!
//! Tiers are modules. A test that needs more than the machine has prints
//! `skipped: <test>: <reason>`.
//!
//! - `architecture`: which crates and folders use which
//! - `at_root`: the programs with `/` as the host's root; needs root, and strace and runc
//!   for parts
//! - `attacks`: images, users and pods that try to turn the hook against the host;
//!   needs root and runc, and podman for those that are podman's
//! - `cli`: the program `boathook` by itself; needs no root
//! - `cost`: the hook's system calls; needs strace, and for the reference work root and
//!   runc
//! - `documentation`: the commands in README.md and docs
//! - `drivers`: the vendors' real drivers, from Debian's packages; needs root, runc,
//!   debootstrap and a mirror, and runs by `make test-drivers` alone
//! - `durability`: devices on a host with systemd; needs root, runc and debootstrap
//! - `fpga`: webhook, plugin, kubelet, hook and programmer together; needs root and runc
//! - `kubernetes`: plugin, kubelet and hook together; needs root and runc
//! - `wrapper`: the program `boathook-runtime` by itself; needs no root
//! - `engines`: docker, podman, containerd, crun, with their own commands; needs
//!   root and the engine
//! - `failures`: system calls that fail; needs strace, and for the hook root and runc
//! - `live`: devices for containers that run; needs root and runc
//! - `load`: hundreds of containers on a busy machine; needs root and runc, and
//!   containerd for those by CRI
//! - `real_kubernetes`: a cluster of one node; needs root, debootstrap, a mirror and
//!   Kubernetes' programs, and runs by `make test-kubernetes` alone
//! - `selfcheck`: the harness itself, without boathook
//! - `release`: archives, packages and the image as a user downloads them
//! - `runc`: the hook in real containers; needs root and runc
//! - `vm`: devices of real drivers, in a virtual machine; needs root, QEMU and debootstrap,
//!   and but for one device (`boot`) runs by `make test-vm` alone

// A test fails by panicking, in its helpers as well.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod architecture;
mod at_root;
mod attacks;
mod broken_classes;
mod cli;
mod cost;
mod demo;
mod documentation;
mod drivers;
mod durability;
mod engines;
mod failures;
mod fpga;
mod kubernetes;
mod lab;
mod live;
mod load;
mod real_kubernetes;
mod release;
mod runc;
mod said;
mod selfcheck;
mod selinux;
mod tree;
mod vm;
mod wrapper;
