//! The plugin as a plugin of the container engine.

mod bad_input;
mod containers;
mod life;
mod rules;

use std::collections::BTreeMap;

use harness::nri::{FakeEngine, Plugin};
use nri_api::{Container, ContainerState, PodSandbox};

use crate::node::{NPUS, Node};
use crate::pages::SERVE;

/// The annotation of an allocation of [`NPUS`].
const ANNOTATION: &str = "devices.boathook.dev/dummy-npu";

/// The hook in these tests.
const HOOK: &str = "/opt/boathook/current/bin/boathook";

/// A node whose plugin is to connect to `nri.sock`.
fn node() -> Node {
    let node = Node::new(&[("dummy-npu", NPUS)]);
    let socket = node.path("nri.sock").display().to_string();
    node.with_arguments(&["--nri", &socket])
        .with_arguments(&SERVE)
}

/// An engine of the first version that validates, unless told otherwise.
fn engine(node: &Node) -> FakeEngine {
    FakeEngine::listen(&node.path("nri.sock"), "containerd", "v2.2.0").unwrap()
}

/// A node whose plugin an engine has accepted.
fn connected() -> (Node, FakeEngine, Plugin) {
    let mut node = node();
    let engine = engine(&node);
    node.start_plugin();
    let plugin = engine.plugin().unwrap();
    node.wait_log("NRI: connected");
    (node, engine, plugin)
}

fn pod() -> PodSandbox {
    PodSandbox {
        id: "sandbox-1".into(),
        name: "train-0".into(),
        uid: "00000000-0000-4000-8000-000000000001".into(),
        namespace: "default".into(),
        runtime_handler: String::new(),
    }
}

/// A container with this environment.
fn container(env: &[&str]) -> Container {
    Container {
        id: "container-1".into(),
        pod_sandbox_id: "sandbox-1".into(),
        name: "main".into(),
        state: ContainerState::Created.into(),
        env: env.iter().map(ToString::to_string).collect(),
        ..Container::default()
    }
}

/// A container to which devices were allocated.
fn allocated(ids: &str) -> Container {
    Container {
        annotations: BTreeMap::from([(ANNOTATION.to_owned(), ids.to_owned())]),
        ..container(&[&format!("DUMMY_VISIBLE_DEVICES={ids}")])
    }
}
