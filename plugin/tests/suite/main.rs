//! Tests of the built `boathook-plugin` as a process, with a fake kubelet.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod allocation;
mod bad_input;
mod calls;
mod capacity;
mod cdi;
mod client;
mod clock;
mod coexistence;
mod damaged;
mod devices;
mod faults;
mod footprint;
mod handover;
mod hanging;
mod host_programs;
mod hostile;
mod hotplug;
mod interrupted_handover;
mod leaks;
mod listeners;
mod lost_record;
mod monitoring;
mod mounts;
mod node;
mod node_labels;
mod opened_devices;
mod operation;
mod pages;
mod registration;
mod releases;
mod replacement;
mod shutdown;
mod withdrawal;
mod without_events;
