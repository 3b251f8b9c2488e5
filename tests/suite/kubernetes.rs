//! A node from allocation to container: the plugin's devices, the kubelet's record, the
//! hook in a real container.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::cgroup_parent::CgroupParent;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container;
use harness::kubelet::{Allocated, Allocation, Config, FakeKubelet};
use harness::plugin_process::PluginProcess;
use harness::rootfs::Rootfs;
use tempfile::TempDir;

use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(
    what_was_allocated_is_in_the_container,
    thousands_of_shares_are_their_device,
    a_pods_own_variable_gives_nothing_more,
    without_a_record_there_is_no_device
);

fn what_was_allocated_is_in_the_container(lab: &Lab) {
    let node = Node::start();
    let given = node.allocate(Allocation::of_ids(DemoHost::RESOURCE, &["npu-5", "npu-3"]));
    assert_eq!(node.devices_in_a_container(lab, &given), [3, 5]);
    node.stop();
}

/// As many as MiB in 24 GB. Their ids are longer than a request may be.
fn thousands_of_shares_are_their_device(lab: &Lab) {
    const SHARES: usize = 24_576;
    let node = Node::with(&format!("[class.dummy-npu]\nreplicas = {SHARES}\n"));
    let shares: Vec<String> = (0..SHARES).map(|share| format!("npu-3::{share}")).collect();
    let shares: Vec<&str> = shares.iter().map(String::as_str).collect();
    let given = node.allocate(Allocation::of_ids(DemoHost::RESOURCE, &shares));
    assert_eq!(node.devices_in_a_container(lab, &given), [3]);
    node.stop();
}

/// A pod's variable overrides the plugin's, and requests everything.
fn a_pods_own_variable_gives_nothing_more(lab: &Lab) {
    let node = Node::start();
    let mut allocation = Allocation::of_ids(DemoHost::RESOURCE, &["npu-2"]);
    allocation
        .env
        .insert(DemoHost::VARIABLE.to_string(), "all".to_string());
    let given = node.allocate(allocation);
    assert_eq!(given.envs[DemoHost::VARIABLE], "all");
    assert_eq!(node.devices_in_a_container(lab, &given), [2]);
}

/// An image that requests everything, in a pod that was allocated nothing.
fn without_a_record_there_is_no_device(lab: &Lab) {
    let node = Node::start();
    let mut stranger = node.allocate(Allocation::of_ids(DemoHost::RESOURCE, &["npu-2"]));
    stranger
        .envs
        .insert(DemoHost::VARIABLE.to_string(), "all".to_string());
    stranger
        .annotations
        .retain(|key, _| key.starts_with("io.kubernetes"));
    let uid = stranger
        .annotations
        .get_mut("io.kubernetes.cri.sandbox-uid")
        .unwrap();
    *uid = "00000000-0000-4000-8000-000000000000".to_string();
    assert_eq!(
        node.devices_in_a_container(lab, &stranger),
        [] as [usize; 0]
    );
    let log = node.host.log();
    assert_eq!(log.lines().count(), 1, "{log}");
}

/// How long the plugin may take to register.
const PATIENCE: Duration = Duration::from_secs(10);

/// A node of a cluster with devices.
struct Node {
    // Dropped in this order: a plugin makes its socket again where it is removed.
    plugin: PluginProcess,
    kubelet: FakeKubelet,
    directory: TempDir,
    host: DemoHost,
}

impl Node {
    /// A node whose plugin has registered its devices.
    fn start() -> Self {
        Self::with("")
    }

    /// The same with more lines in config.toml.
    fn with(config: &str) -> Self {
        let host = DemoHost::new().unwrap();
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        host.trust_kubelet(directory.path()).unwrap();
        let mut file = File::options()
            .append(true)
            .open(host.config_file())
            .unwrap();
        file.write_all(config.as_bytes()).unwrap();
        let kubelet = FakeKubelet::start(Config::new(directory.path())).unwrap();
        let plugin = PluginProcess::start(directory.path(), &host.config_file()).unwrap();
        let devices = kubelet
            .wait_devices(PATIENCE, DemoHost::RESOURCE)
            .map_err(|error| plugin.explain(error.into()))
            .unwrap();
        assert!(devices.len() >= 64);
        Self {
            host,
            directory,
            kubelet,
            plugin,
        }
    }

    fn allocate(&self, allocation: Allocation) -> Allocated {
        self.kubelet.allocate(allocation).unwrap()
    }

    /// The indices of the devices that a container with this allocation has.
    fn devices_in_a_container(&self, lab: &Lab, given: &Allocated) -> Vec<usize> {
        let stage = Stage::CreateRuntime;
        let hook = HookCommand::boathook(stage, &self.host.config_file()).unwrap();
        // As the kubelet names it, with the cgroupfs driver.
        let parent = CgroupParent::new();
        let uid = &given.annotations["io.kubernetes.cri.sandbox-uid"];
        let mut builder = Bundle::builder(Rootfs::Busybox)
            .hook(stage, hook)
            .cgroups_path(parent.child(&format!("pod{uid}/container")))
            .args(asking(&in_container::questions()));
        for (key, value) in &given.envs {
            builder = builder.env(key, value);
        }
        for (key, value) in &given.annotations {
            builder = builder.annotation(key, value);
        }
        let report = lab.probe(&builder.build().unwrap());
        in_container::devices(&report).unwrap()
    }

    /// Stops the plugin as the kubelet does; it must leave nothing.
    fn stop(self) {
        self.plugin.stop(self.directory.path()).unwrap();
    }
}
