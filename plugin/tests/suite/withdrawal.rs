//! A server whose resource is withdrawn, in this process.

use std::sync::Arc;
use std::time::Instant;

use device_class::DeviceClass;
use device_class::host::RecordedHost;
use harness::kubelet::{Config, Event, FakeKubelet};
use plugin::catalog::{Memory, Resource, scan};
use plugin::kubelet_dir::KubeletDir;
use plugin::nudge::Nudge;
use plugin::server::{Context, RegisterBy, Timing, serve};
use plugin::service::Preparer;
use tokio::sync::watch;

use crate::listeners::Listeners;
use crate::node::{NPU, NPUS, PATIENCE, wait_until};

/// So many that their list is longer than a narrow window.
fn npus() -> Arc<Resource> {
    let name = "dummy-npu".to_owned().try_into().unwrap();
    let text = format!("{NPUS}sharing = {{ replicas = 400 }}\n");
    let class = DeviceClass::parse(name, "dummy-npu.toml".as_ref(), &text).unwrap();
    let (host, now) = (RecordedHost::default(), Instant::now());
    let scan = scan(&[class], &host, &mut Memory::new(), now);
    scan.inventory.into_values().next().unwrap()
}

#[test]
fn what_is_withdrawn_is_offered_to_nobody_although_somebody_hangs_on() {
    let root = tempfile::tempdir().unwrap();
    let kubelet = FakeKubelet::start(Config::new(root.path())).unwrap();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let (_nudge, nudged) = Nudge::new();
    let (resource, receiver) = watch::channel(npus());
    let context = Context {
        kubelet: KubeletDir::new(root.path().to_owned()).unwrap(),
        register_by: RegisterBy::Kubelet,
        timing: Timing::default(),
        preparer: Arc::new(Preparer::new(root.path().to_owned())),
        metrics: Arc::default(),
    };
    let serving = runtime.spawn(serve(receiver, context, nudged));
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    let socket = root
        .path()
        .join("device-plugins/boathook-dummy.com_npu.sock");
    let deaf = Listeners::open_narrow(&socket, 1);

    drop(resource);
    wait_until("the socket is gone", || !socket.exists());
    let broken = |event: &Event| matches!(event, Event::StreamBroken { .. });
    kubelet.wait(PATIENCE, broken).unwrap();
    assert!(!serving.is_finished(), "half a list is not sent yet");
    drop(deaf);
    runtime.block_on(serving).unwrap().unwrap();
}
