//! CDI devices of a containerd of today: forged names, restarts, and its own client. By
//! annotation they are in `cri_plugin`; by the field of CRI they are a column of the table.

use harness::cri::Pod;
use harness::cri::api::KeyValue;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::image::name_of;
use harness::patience::wait_until;
use harness::rootfs::Rootfs;

use super::cri::{Container, Cri, How};
use super::ctr;
use super::engine::printed;

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

/// A pod that requests devices by CDI.
fn by_cdi(number: u32, devices: &str) -> Pod {
    Pod {
        by_cdi: true,
        ..Pod::new(number, Rootfs::Busybox).devices(Some(devices))
    }
}

/// A pod's author writes variables and labels of the container; the kubelet does not pass
/// the pod's annotations on to it.
#[test]
fn a_pod_cannot_name_another_ones_devices() {
    let Some(engine) = engine("CDI, forged names") else {
        return;
    };
    let victim = Container::run_in_pod(&engine, by_cdi(0, "npu-3"), |_| {}).unwrap();
    let attacker = Container::run_in_pod(&engine, Pod::new(1, Rootfs::Busybox), |asked| {
        asked.envs.push(KeyValue {
            key: DemoHost::VARIABLE.into(),
            value: "npu-3".into(),
        });
        for (key, value) in [
            ("cdi.k8s.io/test", "dummy.com/npu=npu-3"),
            ("devices.boathook.dev/dummy-npu", "npu-3"),
        ] {
            asked.labels.insert(key.into(), value.into());
        }
    });
    assert_eq!(attacker.unwrap().devices(), [] as [usize; 0]);
    assert_eq!(victim.devices(), [3]);
}

#[test]
fn a_restart_of_the_engine_is_survived() {
    let Some(engine) = engine("CDI, restart of containerd") else {
        return;
    };
    let start = |number, devices| Container::run_in_pod(&engine, by_cdi(number, devices), |_| {});
    let first = start(0, "npu-1").unwrap();
    engine.containerd.restart().unwrap();
    // It answers a moment after it listens.
    let mut second = start(1, "npu-2");
    wait_until(|| {
        second.is_ok() || {
            second = start(1, "npu-2");
            false
        }
    });
    assert_eq!(first.devices(), [1]);
    assert_eq!(second.unwrap().devices(), [2]);
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
        .arg("by-ctr");
    let devices = in_container::devices_by(|asked| printed(run.args(asked)));
    assert_eq!(devices.unwrap(), [3]);
}
