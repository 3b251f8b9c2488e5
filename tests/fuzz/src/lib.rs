//! Fuzz targets: functions that give any bytes to a parser or an editor and panic if
//! the result is wrong. The tests of this library call them with the corpus in
//! `fuzz/corpus` and variations of it.
#![cfg(any(test, feature = "targets"))]
// A target panics if something is wrong.
#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod cdi_arguments;
mod claims;
mod classes;
mod cluster_requests;
#[cfg(test)]
mod corpus;
mod engine_config;
mod ld_cache;
mod spec;
#[path = "../../../daemon/src/host_inventory/hotplug/message.rs"]
mod uevent_message;

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Panics if the input is handled wrongly.
    pub run: fn(&[u8]),
}

pub const TARGETS: [Target; 18] = [
    Target {
        name: "state",
        run: spec::state,
    },
    Target {
        name: "config_json",
        run: spec::config_json,
    },
    Target {
        name: "class_file",
        run: classes::class_file,
    },
    Target {
        name: "request",
        run: classes::request,
    },
    Target {
        name: "ld_cache",
        run: ld_cache::merge,
    },
    Target {
        name: "checkpoint",
        run: hook::fuzzing::checkpoint,
    },
    Target {
        name: "device_program",
        run: hook::fuzzing::device_program,
    },
    Target {
        name: "engine_config",
        run: engine_config::edit,
    },
    Target {
        name: "uevent",
        run: uevent,
    },
    Target {
        name: "mountinfo",
        run: hook::fuzzing::mountinfo,
    },
    Target {
        name: "forged_annotations",
        run: hook::fuzzing::forged_annotations,
    },
    Target {
        name: "cdi_arguments",
        run: cdi_arguments::grant,
    },
    Target {
        name: "kubelets_claims",
        run: claims::kubelets_record,
    },
    Target {
        name: "claim_record",
        run: claims::record,
    },
    Target {
        name: "claim_parameters",
        run: claims::parameters,
    },
    Target {
        name: "facts",
        run: classes::facts,
    },
    Target {
        name: "review",
        run: cluster_requests::review,
    },
    Target {
        name: "extender",
        run: cluster_requests::extender,
    },
];

/// The target of that name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Runs the target of that name, which must not take more than [`MAX_TIME`].
pub fn run(name: &str, input: &[u8]) {
    let target = target(name).unwrap_or_else(|| panic!("no target is named {name}"));
    let before = processor_time();
    (target.run)(input);
    let time = processor_time() - before;
    assert!(time <= MAX_TIME, "{name} took {time:?} of processor time");
}

/// Processor time that one input may take, in any build: more is a way to delay the
/// start of containers.
const MAX_TIME: Duration = Duration::from_secs(1);

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    time.into()
}

fn uevent(message: &[u8]) {
    let relevant = uevent_message::may_concern_accelerator(message);
    let mut more = message.to_vec();
    more.extend(b"\0KEY=VALUE\0");
    assert_eq!(uevent_message::may_concern_accelerator(&more), relevant);
    if message.starts_with(b"add@/devices/pci0000:00/") {
        let head = message.split(|byte| *byte == 0).next();
        let is_text = head.is_some_and(|head| str::from_utf8(head).is_ok());
        assert_eq!(relevant, is_text);
    }
}
