//! Requests that `attach` refuses. Nothing of them is left in the container.

use std::fs;
use std::path::PathBuf;

use harness::bundle::{Bundle, BundleBuilder};
use harness::cgroup_parent::CgroupParent;
use harness::cri::{Pod, Record};
use harness::demo_host::{DemoHost, HostDirectory};
use harness::patience::wait_until;
use harness::probe::Access;
use harness::rootfs::Rootfs;
use serde_json::json;

use super::follow::{Follower, assert_follows, may_open, plug_in};
use super::{boathook, done, plain, reads, records};
use crate::attacks::forged_pods::{containerd, in_pod};
use crate::lab::{Lab, STAGE, granting, on_each_cgroup_version};
use crate::said::assert_says;

on_each_cgroup_version!(
    unknown_names_are_refused_with_near_ones,
    a_container_that_has_ended_is_not_touched,
    a_pod_gets_what_the_kubelet_recorded_for_it,
    a_claim_authorizes_what_it_grants,
    a_device_of_a_claim_is_followed,
);

fn unknown_names_are_refused_with_near_ones(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let nothing = "version = 1\nresource = 'example.com/nothing'\nrequest = { env = 'NOTHING' }\n\
        discover = [{ path = '/dev/nothing{index:number}' }]\n\
        [device]\nid = 'nothing-{index}'\nnodes = ['/dev/nothing{index}']\n";
    host.add_class("nothing", nothing).unwrap();
    let bundle = plain(Rootfs::Busybox).build().unwrap();
    let running = lab.start(&bundle);
    let id = bundle.id();
    for (container, device, code, words) in [
        (
            "nobody",
            "dummy-npu=3",
            2,
            &["no container nobody", "there are boathook-tes"][..],
        ),
        (
            id,
            "dummy-nqu=3",
            2,
            &["dummy-nqu.toml", "did you mean dummy-npu"],
        ),
        (id, "dummy-npu=npu-99", 5, &["no device `npu-99`", "npu-0"]),
        (id, "dummy-npu", 2, &["CLASS=DEVICE"]),
        // A quoted text is a name, and no index.
        (id, "dummy-npu=\"3\"", 5, &["no device `3`"]),
        (id, "dummy-npu=dummy.com/npu=void", 2, &["names no device"]),
        (
            id,
            "dummy-npu=npu-3,dummy.com/npu=none",
            2,
            &["names no device"],
        ),
        (id, "nothing=all", 5, &["nothing is attached", "no device"]),
    ] {
        let ran = boathook(lab, &host, &["attach", container, device]);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        assert_says(&ran.stderr, words);
    }
    assert!(records(&host).is_empty());
    assert_eq!(reads(&running, 3), None);
}

fn a_container_that_has_ended_is_not_touched(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let ended = plain(Rootfs::Busybox).args(["/bin/true"]).build().unwrap();
    let running = lab.start(&ended);
    assert!(wait_until(|| running.pid().unwrap() == 0));
    let ran = boathook(lab, &host, &["attach", ended.id(), "dummy-npu=3"]);
    assert!(matches!(ran.status.code(), Some(2 | 6)), "{ran:?}");
    assert!(
        ran.stderr.contains("has ended") || ran.stderr.contains("no process"),
        "{ran:?}"
    );
    assert!(records(&host).is_empty());
}

/// Also without a request in its own configuration.
fn a_pod_gets_what_the_kubelet_recorded_for_it(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let pod = Pod::new(1, Rootfs::Busybox).devices(Some("npu-2"));
    let mut record = Record::new(&host.path().join("kubelet_internal_checkpoint"));
    host.write_config(&record.config()).unwrap();
    let parent = CgroupParent::new();
    let bundle = containerd(plain(Rootfs::Busybox), &pod.uid(), "default");
    let bundle = bundle.cgroups_path(in_pod(&parent, &pod.uid()));
    let bundle = bundle.build().unwrap();
    let running = lab.start(&bundle);
    let id = bundle.id();
    let refused = |device: &str| {
        let ran = boathook(lab, &host, &["attach", id, device]);
        assert_eq!(ran.status.code(), Some(5), "{ran:?}");
        assert_says(&ran.stderr, &["did not allocate them to container main"]);
        assert!(records(&host).is_empty());
    };
    refused("dummy-npu=npu-2");
    record.add(&pod).unwrap();
    refused("dummy-npu=npu-3");
    done(lab, &host, &["attach", id, "dummy-npu=npu-2"]);
    assert_eq!(reads(&running, 2), Some(Access::Granted));
    let forced = boathook(lab, &host, &["attach", id, "dummy-npu=npu-7", "--force"]);
    assert_says(&forced.stderr, &["--force: the kubelet may give"]);
    assert_eq!(reads(&running, 7), Some(Access::Granted));
    done(lab, &host, &["detach", id]);
    for index in [2, 7] {
        assert_eq!(reads(&running, index), None);
    }
}

/// As long as the kubelet records it for the pod.
fn a_claim_authorizes_what_it_grants(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let (claims, pod) = claim(&host, "");
    let parent = CgroupParent::new();
    let bundle = claiming(&host, &pod, &parent);
    let running = lab.start(&bundle);
    let attach = |device: &str| {
        let device = format!("dummy-npu={device}");
        boathook(lab, &host, &["attach", bundle.id(), &device])
    };
    let granted = attach("npu-2");
    assert!(granted.status.success(), "{granted:?}");
    assert!(granted.stdout.contains("has it already"), "{granted:?}");
    assert_eq!(attach("npu-3").status.code(), Some(5));
    fs::remove_file(&claims).unwrap();
    assert_eq!(attach("npu-2").status.code(), Some(5));
    assert_eq!(reads(&running, 2), Some(Access::Granted));
    assert_eq!(reads(&running, 3), None);
}

fn a_device_of_a_claim_is_followed(lab: &Lab) {
    const OTHER: usize = DemoHost::UNLIKE;
    let host = DemoHost::new().unwrap();
    let (claims, pod) = claim(&host, "\n[class.dummy-npu]\nfollow = true\n");
    let parent = CgroupParent::new();
    let bundle = claiming(&host, &pod, &parent);
    let running = lab.start(&bundle);
    let follower = Follower::start(lab, &host);
    assert_follows(&running, &host, 2, &[None, Some(OTHER), None, Some(2)]);
    assert!(!may_open(&running, &host, OTHER));
    // The claim may be another pod's by now.
    assert_follows(&running, &host, 2, &[None]);
    fs::remove_file(&claims).unwrap();
    plug_in(&host, 2, OTHER);
    assert!(wait_until(|| follower.has_said("did not allocate") > 0));
    assert_eq!(reads(&running, 2), None);
    assert!(!may_open(&running, &host, OTHER));
}

/// The kubelet's record of a claim, and the pod that has it.
pub(crate) fn claim(host: &HostDirectory, config: &str) -> (PathBuf, Pod) {
    let kubelet = host.path().join("kubelet");
    let plugins = kubelet.join("device-plugins");
    fs::create_dir_all(&plugins).unwrap();
    let pod = Pod::new(1, Rootfs::Busybox);
    let mut record = Record::new(&plugins.join("kubelet_internal_checkpoint"));
    host.write_config(&(record.config() + config)).unwrap();
    record.add(&pod).unwrap();
    let claims = kubelet.join("dra_manager_state");
    let claim = json!([{"ClaimUID": "u-1", "PodUIDs": {pod.uid(): {}}}]);
    let data = json!({"ClaimInfoStateList": claim}).to_string();
    fs::write(&claims, json!({"Data": data, "Checksum": 1}).to_string()).unwrap();
    (claims, pod)
}

fn claiming(host: &DemoHost, pod: &Pod, parent: &CgroupParent) -> Bundle {
    let bundle = plain(Rootfs::Busybox);
    let bundle = given_by_claim(bundle, "dummy-npu=npu-2", host, pod, parent);
    bundle.build().unwrap()
}

/// A container of the pod that is given a device by the claim.
pub(crate) fn given_by_claim(
    bundle: BundleBuilder,
    device: &str,
    host: &HostDirectory,
    pod: &Pod,
    parent: &CgroupParent,
) -> BundleBuilder {
    let hook = granting(host, &format!("{device}@u-1"));
    let bundle = containerd(bundle.hook(STAGE, hook), &pod.uid(), "default");
    bundle.cgroups_path(in_pod(parent, &pod.uid()))
}
