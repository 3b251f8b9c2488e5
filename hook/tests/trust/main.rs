//! Who authorizes a request: what containers of real engines under a real
//! kubelet request (recorded, see `testdata/`), and what they get.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod cdi;
mod host;
mod outside;
mod pods;
mod record;
