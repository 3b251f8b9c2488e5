//! Tests with another plugin that already serves a resource that a class would advertise.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use daemon::kubelet_api::deviceplugin::RegisterRequest;
use daemon::kubelet_api::deviceplugin::registration_client::RegistrationClient;
use daemon::kubelet_api::{DEVICE_PLUGIN_API_VERSION, KUBELET_SOCKET_NAME};
use harness::kubelet::{Event, other_plugin};
use nix::sys::signal::Signal;
use tokio::runtime::Runtime;
use tonic::transport::Endpoint;

use crate::node::{NPU, NPUS, Node, PATIENCE, wait_list};
use crate::pages::{SERVE, address, get, metric};

/// The time in which the plugin must take over a resource that the other plugin has left. The
/// plugin asks the kubelet every 10 s.
const RELEASE: Duration = Duration::from_secs(20);

/// The vendor's plugin, registered with the kubelet. Dropping this value ends the plugin
/// without any cleanup, as if its process had been killed.
struct RunningPlugin {
    runtime: Option<Runtime>,
    socket: PathBuf,
}

impl RunningPlugin {
    fn register(node: &Node) -> Self {
        let directory = node.path("kubelet/device-plugins");
        let socket = directory.join("vendor.sock");
        let runtime = other_plugin::serve(&socket).unwrap();
        let kubelet = directory.join(KUBELET_SOCKET_NAME);
        let endpoint = Endpoint::from_shared(format!("unix://{}", kubelet.display())).unwrap();
        let request = RegisterRequest {
            version: DEVICE_PLUGIN_API_VERSION.to_owned(),
            endpoint: "vendor.sock".to_owned(),
            resource_name: NPU.to_owned(),
            options: None,
        };
        let registered = runtime.block_on(async {
            let channel = endpoint.connect().await.unwrap();
            RegistrationClient::new(channel).register(request).await
        });
        registered.unwrap();
        RunningPlugin {
            runtime: Some(runtime),
            socket,
        }
    }
}

impl Drop for RunningPlugin {
    fn drop(&mut self) {
        self.runtime.take().unwrap().shutdown_background();
        let _ = fs::remove_file(&self.socket);
    }
}

fn registered_as(event: &Event, name: &str) -> bool {
    matches!(event, Event::Registered { resource, endpoint } if resource == NPU && endpoint == name)
}

fn is_ours(event: &Event) -> bool {
    registered_as(event, "boathook-dummy.com_npu.sock")
}

const LEFT: &str = "another plugin serves this resource";

#[test]
fn a_resource_that_another_plugin_serves_is_left_to_it_until_it_ends() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&SERVE);
    let kubelet = node.kubelet();
    let vendor = RunningPlugin::register(&node);
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    node.start_plugin();
    node.wait_log(LEFT);
    let ours = kubelet.wait(Duration::from_millis(500), is_ours);
    assert!(ours.is_err(), "{ours:?}");
    let address = address(&node);
    let gauge = format!("boathook_left_to_other_plugin{{resource=\"{NPU}\"}}");
    assert_eq!(metric(&address, &gauge), 1);
    let ready = get(&address, "/readyz");
    for said in ["200 OK", "left to another plugin: dummy.com/npu"] {
        assert!(ready.contains(said), "{ready}");
    }

    drop(vendor);
    kubelet.wait(RELEASE, is_ours).unwrap();
    assert_eq!(kubelet.wait_devices(PATIENCE, NPU).unwrap().len(), 64);
    node.wait_log("the other plugin is gone");
    assert_eq!(metric(&address, &gauge), 0);
    assert_eq!(node.log().matches(LEFT).count(), 1, "{}", node.log());
}

#[test]
fn a_resource_is_taken_over_on_request() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&["--take-over"]);
    let kubelet = node.kubelet();
    let _vendor = RunningPlugin::register(&node);
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    node.start_plugin();
    kubelet.wait(PATIENCE, is_ours).unwrap();
    assert!(!node.log().contains(LEFT), "{}", node.log());
}

/// The kubelet's checkpoint still lists the devices of a killed plugin. A new instance of the
/// plugin must not take these for another plugin's devices.
#[test]
fn an_earlier_boathook_plugin_is_not_another_plugin() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let kubelet = node.serve(NPU);
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        node.end_plugin(signal);
        node.start_plugin();
        kubelet.wait(PATIENCE, is_ours).unwrap();
    }
    assert!(!node.log().contains(LEFT), "{}", node.log());
}

/// The kubelet registers each socket that it finds in the directory of its plugin watcher. The
/// plugin makes no socket there for a resource that it leaves to another plugin.
#[test]
fn the_plugin_watcher_finds_no_socket_of_a_resource_that_is_left() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]).with_arguments(&["--register=watcher"]);
    let kubelet = node.kubelet();
    let vendor = RunningPlugin::register(&node);
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    node.start_plugin();
    node.wait_log(LEFT);
    let socket = node.path("kubelet/plugins_registry/boathook-dummy.com_npu.sock");
    assert!(!socket.exists());
    drop(vendor);
    wait_list(&kubelet, |devices| devices.len() == 64);
    assert!(socket.exists());
}
