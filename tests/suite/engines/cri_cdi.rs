//! CDI devices of a containerd of today: by annotation, and by its own client. By the
//! field of CRI they are a column of the table.

use std::fs;

use harness::cri::Pod;
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::image::name_of;
use harness::probe::Report;
use harness::rootfs::Rootfs;

use super::cri::{Cri, How};
use super::ctr;
use super::engine::printed;
use super::nri::Running;

/// The engine with specifications of all devices. `None`: it cannot be run here.
fn engine(test: &str) -> Option<Cri> {
    match ctr::missing(Generation::Forky) {
        Some(reason) => {
            skip::report(test, &reason);
            None
        }
        None => Some(Cri::new(Generation::Forky, How::Cdi).unwrap()),
    }
}

/// The container's annotations are the kubelet's, with those of device plugins.
#[test]
fn an_annotation_of_the_container_names_devices() {
    let Some(engine) = engine("CDI annotations of CRI") else {
        return;
    };
    let pod = Pod::new(0, Rootfs::Busybox);
    let named = Running::of(&engine, &pod, |asked| {
        let devices = "dummy.com/npu=npu-3".to_owned();
        asked
            .annotations
            .insert("cdi.k8s.io/test".to_owned(), devices);
    });
    assert_eq!(named.unwrap().devices(), [3]);
}

#[test]
fn a_device_that_is_gone_stops_the_pods_container() {
    let Some(engine) = engine("CDI devices of CRI that are gone") else {
        return;
    };
    let start = |number| {
        let pod = Pod::new(number, Rootfs::Busybox).devices(Some("npu-3"));
        Running::of(&engine, &pod.by_cdi(true), |_| {})
    };
    assert_eq!(start(0).unwrap().devices(), [3]);
    let file = engine
        .machine()
        .private
        .file("/run/cdi/boathook-dummy.com-npu.json");
    fs::remove_file(file).unwrap();
    let error = start(1).err().expect("it started");
    let message = format!("{error:#}");
    assert!(message.contains("dummy.com/npu=npu-3"), "{message}");
}

/// As `nerdctl run --device` does, which no Debian release has.
#[test]
fn containerds_own_client_names_devices() {
    let Some(engine) = engine("CDI devices of ctr") else {
        return;
    };
    let mut run = engine.containerd.ctr();
    run.args(["run", "--rm", "--device=dummy.com/npu=npu-3", "--cgroup"])
        .arg(engine.machine().parent.child("ctr"))
        .arg(name_of(Rootfs::Busybox))
        .arg("by-ctr")
        .args(in_container::questions().command().unwrap());
    let report = Report::parse(&printed(&mut run).unwrap()).unwrap();
    assert_eq!(in_container::devices(&report).unwrap(), [3]);
}
