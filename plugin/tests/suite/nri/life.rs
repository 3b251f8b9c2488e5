//! The connection to the engine, from its beginning to its end and again.

use std::time::Instant;

use harness::nri::{Created, FakeEngine};
use nix::sys::signal::Signal;
use nri_api::{Container, ContainerAdjustment, ContainerState, PodSandbox};
use tonic::Code;

use super::{allocated, connected, container, engine, node, pod};
use crate::client::Client;
use crate::node::{NPU, NPUS, Node, wait_until};
use crate::pages::{address, get, metric};

/// Containers are not started while the engine would not ask.
fn assert_connected(node: &Node, client: &Client, wanted: bool) {
    let address = address(node);
    let name = "boathook_nri_connected";
    wait_until(name, || metric(&address, name) == usize::from(wanted));
    let started = client.pre_start(&["npu-3"]);
    assert_eq!(started.is_ok(), wanted, "{started:?}");
    if let Err(status) = started {
        assert_eq!(status.code(), Code::Unavailable);
        let message = status.message();
        assert!(message.contains("the container would start without its devices: NRI: "));
        assert!(get(&address, "/readyz").contains("503"));
        assert!(get(&address, "/readyz").contains("NRI: "));
    }
}

#[test]
fn no_container_with_devices_starts_while_the_engine_does_not_ask() {
    let mut node = node();
    let _kubelet = node.kubelet();
    node.start_plugin();
    let client = Client::of(&node, NPU);
    assert!(client.options().pre_start_required);
    assert_connected(&node, &client, false);
    node.wait_log("cannot connect to ");

    let engine = engine(&node);
    let plugin = engine.plugin().unwrap();
    assert_connected(&node, &client, true);
    drop(plugin);
    assert_connected(&node, &client, false);
    node.wait_log("the engine closed the connection");

    // It restarts, with a socket of its own.
    drop(engine);
    let engine = super::engine(&node);
    let _plugin = engine.plugin().unwrap();
    assert_connected(&node, &client, true);
}

#[test]
fn without_nri_pre_start_container_is_not_required() {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    let _kubelet = node.kubelet();
    node.start_plugin();
    assert!(!Client::of(&node, NPU).options().pre_start_required);
}

#[test]
fn an_engine_that_configures_first_is_answered() {
    for version in ["v2.1.9", "v2.2.0"] {
        let mut node = node();
        let mut engine = FakeEngine::listen(&node.path("nri.sock"), "containerd", version).unwrap();
        engine.is_hasty = true;
        node.start_plugin();
        let plugin = engine.plugin().unwrap();
        let events = if version == "v2.1.9" { 0x08 } else { 0x2008 };
        assert_eq!(plugin.events(), events, "{version}");
        node.wait_log("NRI: connected");
    }
}

#[test]
fn an_engine_that_accepts_no_hooks_is_left() {
    let mut node = node();
    let mut engine = engine(&node);
    engine.identity.runtime_name = "docker".into();
    node.start_plugin();
    let error = engine.configured().unwrap_err();
    assert!(
        format!("{error:#}").contains("the engine `docker` is not known"),
        "{error:#}"
    );
    node.wait_log("NRI: the engine `docker` is not known to accept hooks");
}

/// Once it has configured the plugin, and told it of all containers, too.
#[test]
fn an_engine_that_refuses_the_registration_is_named_and_tried_again() {
    for is_hasty in [false, true] {
        let mut node = node();
        let _kubelet = node.kubelet();
        let mut engine = engine(&node);
        engine.is_hasty = is_hasty;
        node.start_plugin();
        let client = Client::of(&node, NPU);
        let mut waits = Vec::new();
        let mut before = None::<Instant>;
        for _ in 0..4 {
            engine.refused("plugins are not welcome").unwrap();
            waits.extend(
                before
                    .replace(Instant::now())
                    .map(|before| before.elapsed()),
            );
        }
        // Each wait is twice the one before, less a quarter at most.
        for (wait, least) in waits.iter().zip([75, 150, 300]) {
            assert!(wait.as_millis() >= least, "{is_hasty}: {waits:?}");
        }
        let reason = "the engine refused the plugin: plugins are not welcome";
        node.wait_log(reason);
        assert_connected(&node, &client, false);
        let ready = get(&address(&node), "/readyz");
        assert!(ready.contains(&format!("NRI: {reason}")), "{ready}");
        let log = node.log();
        assert_eq!(
            log.matches("WARN NRI: the engine refused").count(),
            1,
            "{log}"
        );
        assert!(!log.contains("NRI: connected"), "{log}");

        let _plugin = engine.plugin().unwrap();
        assert_connected(&node, &client, true);
        assert!(get(&address(&node), "/readyz").contains("200"));
    }
}

/// What ran before the plugin was connected, told in parts.
#[test]
fn containers_that_were_started_without_the_hook_are_reported() {
    let mut node = node();
    let engine = engine(&node);
    node.start_plugin();
    let running = |name: &str, pod: &str, of: Container| Container {
        name: name.into(),
        pod_sandbox_id: pod.into(),
        state: ContainerState::Running.into(),
        ..of
    };
    let by_wrapper = PodSandbox {
        id: "sandbox-2".into(),
        runtime_handler: "boathook".into(),
        ..pod()
    };
    let containers = [
        running("lost", "sandbox-1", allocated("npu-1")),
        running("wrapped", "sandbox-2", allocated("npu-2")),
        running(
            "image",
            "sandbox-1",
            container(&["DUMMY_VISIBLE_DEVICES=all"]),
        ),
        Container {
            state: ContainerState::Stopped.into(),
            ..allocated("npu-3")
        },
    ];
    let _plugin = engine
        .accepted(&[pod(), by_wrapper], &containers, 1)
        .unwrap();
    node.wait_log("started without the hook; restart their pods: lost of default/train-0\n");
    assert_eq!(
        metric(&address(&node), "boathook_nri_containers_without_hook"),
        1
    );
}

/// An engine with NRI 0.10 asks its validators even if they are gone: the request in
/// which the plugin ends or hangs is refused. Those after it are not, which is what
/// PreStartContainer is for.
#[test]
fn a_plugin_that_ends_or_hangs_in_a_request_has_it_refused() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let (mut node, engine, mut plugin) = connected();
        if signal == Signal::SIGKILL {
            node.end_plugin(signal);
        } else {
            node.signal(signal);
        }
        let nothing = ContainerAdjustment::default;
        let refused = plugin.create(&pod(), &allocated("npu-3"), nothing());
        assert!(
            matches!(refused, Created::Refused(_)),
            "{signal}: {refused:?}"
        );
        let after = plugin.create(&pod(), &allocated("npu-3"), nothing());
        assert_eq!(after, Created::Container(Box::default()), "{signal}");
        drop(plugin);
        if signal == Signal::SIGKILL {
            node.start_plugin();
        } else {
            node.signal(Signal::SIGCONT);
        }
        let mut plugin = engine.plugin().unwrap();
        let Created::Container(adjust) = plugin.create(&pod(), &allocated("npu-3"), nothing())
        else {
            panic!("refused");
        };
        assert!(adjust.hooks.is_some());
    }
}

/// Two instances during a rolling update: both are asked, one after the other.
#[test]
fn two_instances_add_one_hook() {
    let (node, engine, mut first) = connected();
    let _second = node.second_plugin();
    let mut second = engine.plugin().unwrap();
    let created = first.create(&pod(), &allocated("npu-3"), ContainerAdjustment::default());
    let Created::Container(first) = created else {
        panic!("refused");
    };
    let both = second.create(&pod(), &allocated("npu-3"), (*first).clone());
    assert_eq!(both, Created::Container(first));
}
