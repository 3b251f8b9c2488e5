//! The scheduler extender's idea of a node's devices, against the choice that the node's
//! plugin makes for the kubelet.

use std::sync::Arc;
use std::time::Duration;

use cluster::scheduler::config::Layout;
use cluster::scheduler::devices::Devices;
use harness::demo_host::HostDirectory;
use harness::kubelet::{Allocation, Config, FakeKubelet};
use harness::plugin_process::PluginProcess;

const RESOURCE: &str = "example.com/card";
const CARDS: usize = 8;
const UNITS: usize = 8;
const CARDS_PER_NUMA_NODE: usize = 4;
const CARDS_PER_GROUP: usize = 2;

/// How long the plugin may take to register.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn shares_of_one_device_lie_where_the_extender_expects_them() {
    compare(
        true,
        &[3, 5, 2, 8, 6, 1, 4, 4, 2, 7, 7, 3, 6, 2, 9, 5, 8, 1, 1, 1],
    );
}

#[test]
fn units_of_several_devices_lie_where_the_extender_expects_them() {
    compare(false, &[3, 8, 16, 2, 5, 1, 12, 7, 4, 3, 2, 20, 1]);
}

/// Allocates these claims one by one, of one node, and compares how many units of each
/// device are free after each.
fn compare(one_device: bool, claims: &[usize]) {
    let host = host(one_device);
    let directory = harness::scratch::directory("kubelet").unwrap();
    let kubelet = FakeKubelet::start(Config::new(directory.path())).unwrap();
    let plugin = PluginProcess::start(directory.path(), &host.config_file()).unwrap();
    let offered = kubelet
        .wait_devices(PATIENCE, RESOURCE)
        .map_err(|error| plugin.explain(error.into()))
        .unwrap();
    assert_eq!(offered.len(), CARDS * UNITS);

    let layout = Layout {
        labels: [].into(),
        units_per_device: UNITS as u64,
        one_device,
        devices_per_numa_node: Some(CARDS_PER_NUMA_NODE),
        devices_per_group: Some(CARDS_PER_GROUP),
    };
    let mut expected = Devices::new(&Arc::new(layout), (CARDS * UNITS) as u64).unwrap();
    let mut free = [UNITS; CARDS];
    let mut refused = 0;
    for (at, claim) in claims.iter().enumerate() {
        let case = format!("claim {at}, of {claim}, with {free:?} free");
        let fits = expected.fit(&[*claim as u64]);
        let allocated = kubelet.allocate(Allocation::of(RESOURCE, *claim));
        assert_eq!(allocated.is_ok(), fits, "{case}: {allocated:?}");
        let Ok(allocated) = allocated else {
            refused += 1;
            continue;
        };
        for id in &allocated.ids {
            let (card, _) = id.split_once("::").unwrap();
            free[card.parse::<usize>().unwrap()] -= 1;
        }
        expected.take(&[*claim as u64]);
        assert_eq!(expected.free(), free.map(|free| free as u32), "{case}");
    }
    assert!(refused > 0, "no claim was too large: {free:?}");
    plugin.stop(directory.path()).unwrap();
}

/// A host whose cards have NUMA nodes and groups, and a class for them.
fn host(one_device: bool) -> HostDirectory {
    let host = HostDirectory::new().unwrap();
    for card in 0..CARDS {
        let files = [
            ("numa_node", card / CARDS_PER_NUMA_NODE),
            ("board", card / CARDS_PER_GROUP),
        ];
        for (name, value) in files {
            let path = format!("/sys/class/card/card{card}/{name}");
            host.add_file(&path, &format!("{value}\n")).unwrap();
        }
    }
    let class = format!(
        "version = 1\n\
         description = \"Cards\"\n\
         resource = \"{RESOURCE}\"\n\
         [request]\n\
         env = \"CARD_VISIBLE_DEVICES\"\n\
         [[discover]]\n\
         path = \"/sys/class/card/card{{index:number}}\"\n\
         attributes = [{{ name = \"board\", file = \"board\" }}]\n\
         [device]\n\
         id = \"{{index}}\"\n\
         index = \"{{index}}\"\n\
         numa = \"/sys/class/card/card{{index}}\"\n\
         group = \"{{board}}\"\n\
         nodes = [{{ path = \"/dev/card{{index}}\", optional = true }}]\n\
         [sharing]\n\
         replicas = {UNITS}\n\
         one_device = {one_device}\n"
    );
    host.add_class("card", &class).unwrap();
    host
}
