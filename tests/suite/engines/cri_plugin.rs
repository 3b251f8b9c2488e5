//! A containerd of today, the plugin, and what the plugin answers to the kubelet: the
//! engine brings the hook by CDI, with no file of its own changed.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::binaries;
use harness::cri::Pod;
use harness::cri::api::ContainerConfig;
use harness::demo_host::DemoHost;
use harness::engine_root::Generation;
use harness::kubelet::{Allocation, Config, FakeKubelet};
use harness::patience::PATIENCE;
use harness::rootfs::Rootfs;

use super::cri::{Container, Cri, How};
use super::ctr::{self, kill_inside};

/// The pods that are started while the plugin is killed.
const PODS: u32 = 30;

/// An engine, a kubelet and the plugin. Parts are dropped in this order.
pub(super) struct Node {
    kubelet: FakeKubelet,
    plugin: Option<Child>,
    pub(super) engine: Cri,
}

impl Node {
    /// `None`: it cannot be run here.
    pub(super) fn new(test: &str) -> Option<Self> {
        if let Some(reason) = ctr::missing(Generation::Forky) {
            skip::report(test, &reason);
            return None;
        }
        let engine = Cri::new(Generation::Forky, How::Cdi).unwrap();
        let directory = engine.machine().path("kubelet");
        let kubelet = FakeKubelet::start(Config::new(&directory)).unwrap();
        let mut node = Node {
            kubelet,
            plugin: None,
            engine,
        };
        // No specification for people is needed.
        let private = &node.engine.machine().private;
        fs::remove_file(private.file("/run/cdi/boathook-dummy.com-npu.json")).unwrap();
        node.start_plugin().unwrap();
        Some(node)
    }

    fn file(&self) -> PathBuf {
        let private = &self.engine.machine().private;
        private.file("/run/cdi/boathook-dummy.com.pods.boathook.dev-npu.json")
    }

    fn remove_file(&self) {
        fs::remove_file(self.file()).unwrap();
    }

    fn start_plugin(&mut self) -> Result<()> {
        let machine = self.engine.machine();
        let mut plugin = machine
            .private
            .command(binaries::program("boathook-plugin")?);
        plugin.args(["run", "--cdi", "/run/cdi", "--hook"]);
        plugin
            .arg(binaries::program("boathook-hook")?)
            .arg("--kubelet-dir")
            .arg(machine.path("kubelet"));
        self.plugin = Some(machine.start("plugin", &mut plugin, || self.file().exists())?);
        let devices = self.kubelet.wait_devices(PATIENCE, DemoHost::RESOURCE)?;
        assert!(devices.iter().all(|device| device.health == "Healthy"));
        Ok(())
    }

    fn kill_plugin(&mut self) {
        if let Some(mut plugin) = self.plugin.take() {
            kill_inside(&mut plugin).unwrap();
        }
    }

    /// Returns the fields that the kubelet adds to the container of a pod that gets these devices.
    fn allocated(&self, pod: &Pod) -> Result<impl FnOnce(&mut ContainerConfig) + use<>> {
        let mut allocation = Allocation::new(DemoHost::RESOURCE, 0);
        allocation.ids = pod.allocated();
        allocation.pod_uid = pod.uid();
        let given = self
            .kubelet
            .allocate(allocation)
            .map_err(anyhow::Error::msg);
        let annotations = given?.response.annotations;
        Ok(|asked: &mut ContainerConfig| asked.annotations = annotations.into_iter().collect())
    }

    /// Starts the container of a pod that is given these devices.
    pub(super) fn start(&self, number: u32, devices: &str) -> Result<Container<'_>> {
        let pod = Pod::new(number, Rootfs::Busybox).devices(Some(devices));
        let allocated = self.allocated(&pod)?;
        Container::run_in_pod(&self.engine, pod, allocated)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill_plugin();
    }
}

#[test]
fn a_pod_gets_its_devices_and_no_other_without_any_configuration() {
    let Some(node) = Node::new("the plugin and CDI") else {
        return;
    };
    let pod = node.start(0, "npu-3,npu-5").unwrap();
    assert_eq!(pod.devices(), [3, 5]);
    let handler = node.engine.machine().private.file("/etc/containerd/conf.d");
    assert!(!handler.exists());
}

/// As on a node that has just started: `/run` is empty, and the kubelet starts the
/// containers of before.
#[test]
fn a_container_waits_until_the_plugin_has_written_its_file() {
    let Some(mut node) = Node::new("CDI after a reboot") else {
        return;
    };
    let pod = Pod::new(0, Rootfs::Busybox).devices(Some("npu-3"));
    let start = |node: &Node| {
        let names = "dummy.com.pods.boathook.dev/npu=npu-3".to_owned();
        let key = "cdi.k8s.io/boathook_dummy.com_npu".to_owned();
        let named = |asked: &mut ContainerConfig| drop(asked.annotations.insert(key, names));
        let started = Container::run_in_pod(&node.engine, pod.clone(), named);
        started.map(|container| container.devices())
    };
    assert_eq!(start(&node).unwrap(), [3]);
    node.kill_plugin();
    // It needs no living plugin.
    assert_eq!(start(&node).unwrap(), [3]);
    node.remove_file();
    let error = format!("{:#}", start(&node).unwrap_err());
    assert!(
        error.contains("dummy.com.pods.boathook.dev/npu=npu-3"),
        "{error}"
    );
    node.start_plugin().unwrap();
    assert_eq!(start(&node).unwrap(), [3]);
}

/// A vendor's service writes the names of people while the plugin serves, as
/// nvidia-cdi-refresh.service does at a boot.
#[test]
fn a_vendors_file_of_the_same_devices_hinders_no_pod() {
    let Some(node) = Node::new("the plugin beside a vendor's specification") else {
        return;
    };
    let text = "cdiVersion: 0.5.0\nkind: dummy.com/npu\ndevices:\n- name: npu-3\n  \
        containerEdits:\n    env: [VENDOR=1]\n";
    let machine = node.engine.machine();
    machine.write("/run/cdi/vendor.yaml", text).unwrap();
    // No list of unhealthy devices follows.
    let list = node
        .kubelet
        .wait_devices(Duration::from_secs(3), DemoHost::RESOURCE);
    assert!(list.is_err(), "{list:?}");
    let pod = node.start(0, "npu-3,npu-5").unwrap();
    assert_eq!(pod.devices(), [3, 5]);
}

/// Whatever the moment, a container has its devices or is refused.
#[test]
fn no_container_starts_without_its_devices_when_the_plugin_is_killed() {
    let Some(mut node) = Node::new("CDI, the plugin is killed") else {
        return;
    };
    let mut started = 0;
    for number in 0..PODS {
        let index = number % DemoHost::NODES as u32;
        let pod = Pod::new(number, Rootfs::Busybox).devices(Some(&format!("npu-{index}")));
        let allocated = node.allocated(&pod).unwrap();
        // Each third node has lost its files, too.
        let is_lost = number % 3 == 2;
        let mut plugin = node.plugin.take().context("no plugin").unwrap();
        let file = node.file();
        let devices = std::thread::scope(|scope| {
            let killing = scope.spawn(move || {
                sleep(Duration::from_millis(u64::from(number) * 10));
                kill_inside(&mut plugin).unwrap();
                if is_lost {
                    fs::remove_file(file).unwrap();
                }
            });
            let container = Container::run_in_pod(&node.engine, pod, allocated);
            killing.join().unwrap();
            container.map(|container| container.devices())
        });
        if let Ok(devices) = devices {
            assert_eq!(devices, [index as usize]);
            started += 1;
        }
        node.start_plugin().unwrap();
    }
    println!("{started} of {PODS} started");
}
