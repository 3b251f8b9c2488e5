//! Images whose variables request devices, in containers that were started without the hook:
//! nobody granted what they request, and what a user attaches does not change that.

use std::fs;

use harness::bundle::Bundle;
use harness::demo_host::DemoHost;
use harness::probe::Access;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, on_each_cgroup_version};
use crate::live::follow::{may_open, plug_in, with_device};
use crate::live::{done, plain, reads, records};

on_each_cgroup_version!(
    what_an_image_requests_is_not_attached_with_a_device,
    what_an_image_requests_does_not_stay_after_detach,
    what_an_image_requests_is_not_given_by_refresh,
    what_all_means_today_is_not_attached_with_a_device,
);

fn image(request: &str) -> Bundle {
    let bundle = plain(Rootfs::Busybox).env(DemoHost::VARIABLE, request);
    bundle.build().unwrap()
}

fn what_an_image_requests_is_not_attached_with_a_device(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = image("all");
    let running = lab.start(&bundle);
    let device = format!("dummy-npu={}", DemoHost::UNLIKE);
    done(lab, &host, &["attach", bundle.id(), &device]);
    assert_eq!(reads(&running, DemoHost::UNLIKE), Some(Access::Granted));
    assert_eq!(reads(&running, 3), None);
    assert!(
        !may_open(&running, &host, 3),
        "a device that nobody attached"
    );
}

fn what_an_image_requests_does_not_stay_after_detach(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = image("npu-3");
    let running = lab.start(&bundle);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    done(lab, &host, &["detach", bundle.id()]);
    assert_eq!(reads(&running, 3), None);
    assert!(!may_open(&running, &host, 3), "the rule is left");
    assert!(records(&host).is_empty());
}

/// The files of a driver are for who was given its devices.
fn what_an_image_requests_is_not_given_by_refresh(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let bundle = image("all");
    let running = lab.start(&bundle);
    let text = done(lab, &host, &["refresh", bundle.id()]);
    assert!(text.contains("has no file"), "{text}");
    let mounts = running.output(&["cat", "/proc/mounts"]).unwrap();
    assert!(!mounts.contains("boathook"), "{mounts}");
}

/// A device that was plugged in since it was started, and that it would be given at its next
/// start.
fn what_all_means_today_is_not_attached_with_a_device(lab: &Lab) {
    const NEW: usize = DemoHost::UNLIKE;
    let host = DemoHost::new().unwrap();
    fs::remove_file(host.node(NEW)).unwrap();
    let bundle = with_device(&host, "all").build().unwrap();
    let running = lab.start(&bundle);
    plug_in(&host, NEW, NEW);
    done(lab, &host, &["attach", bundle.id(), "dummy-npu=3"]);
    assert_eq!(reads(&running, 3), Some(Access::Granted));
    assert_eq!(reads(&running, NEW), None);
    assert!(!may_open(&running, &host, NEW));
    let device = format!("dummy-npu={NEW}");
    done(lab, &host, &["attach", bundle.id(), &device]);
    assert_eq!(reads(&running, NEW), Some(Access::Granted));
    done(lab, &host, &["detach", bundle.id(), &device]);
    assert_eq!(reads(&running, NEW), None);
    assert!(!may_open(&running, &host, NEW), "the rule is left");
    assert_eq!(reads(&running, 3), Some(Access::Granted));
}
