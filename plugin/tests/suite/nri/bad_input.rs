//! Engines that are wrong, slow or none.

use harness::nri::{CallError, Created, Plugin};
use nri_api::{ContainerAdjustment, MAX_MESSAGE};

use super::{HOOK, allocated, connected, container, engine, node, pod};
use crate::client::Client;
use crate::node::NPU;

fn code(plugin: &mut Plugin, method: &str, payload: &[u8]) -> i32 {
    match plugin.call(method, payload) {
        Ok(_) => 0,
        Err(CallError::Status(status)) => status.code,
        Err(CallError::Dropped(error)) => panic!("{error:#}"),
    }
}

#[test]
fn what_is_not_understood_is_answered_and_the_connection_stays() {
    let (_node, _engine, mut plugin) = connected();
    let garbage = [0xff; 100];
    for (method, payload, wanted) in [
        ("RunPodSandbox", &[][..], 12),
        ("PostUpdatePodSandbox", &[], 12),
        ("NoSuchMethod", &garbage, 12),
        // An event of an unknown kind (99).
        ("StateChange", &[8, 99], 0),
        ("Configure", &garbage, 3),
        ("Synchronize", &garbage, 3),
        ("CreateContainer", &garbage, 3),
        ("ValidateContainerAdjustment", &garbage, 3),
        ("CreateContainer", &[], 0),
        ("Synchronize", &vec![0; MAX_MESSAGE], 8),
        ("Shutdown", &[], 0),
    ] {
        assert_eq!(code(&mut plugin, method, payload), wanted, "{method}");
    }
    // Frames of a connection that nobody opened, and a message of no known kind.
    plugin.send(&[0, 0, 0, 9, 0, 0, 0, 3, 1, 2, 3]).unwrap();
    plugin
        .send(&[0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 77, 255])
        .unwrap();
    let created = plugin.create(&pod(), &allocated("npu-3"), ContainerAdjustment::default());
    let Created::Container(adjust) = created else {
        panic!("refused");
    };
    assert_eq!(adjust.hooks.unwrap().prestart[0].path, HOOK);
}

#[test]
fn what_is_no_engine_is_left_and_tried_again() {
    let mut node = node();
    let engine = engine(&node);
    node.start_plugin();
    let mut plugin = engine.connection().unwrap();
    plugin.send(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    node.wait_log("the peer does not use NRI");
    let _plugin = engine.plugin().unwrap();
    node.wait_log("NRI: connected");
}

/// As with `disable_connections`, or an engine that hangs.
#[test]
fn an_engine_that_is_silent_is_not_taken_for_a_connected_one() {
    let mut node = node();
    let (engine, _kubelet) = (engine(&node), node.kubelet());
    node.start_plugin();
    let client = Client::of(&node, NPU);
    let _plugin = engine.connection().unwrap();
    let error = client.pre_start(&["npu-3"]).unwrap_err();
    assert!(
        error.message().contains("not connected to the engine yet"),
        "{error}"
    );
}

/// Thousands of class files are not read in a millisecond. A pod whose own request
/// counts is refused then, and one without any promise starts without the hook.
#[test]
fn a_decision_that_takes_too_long_is_an_error_before_the_engines_timeout() {
    let mut node = node();
    for number in 0..3000 {
        node.write(
            &format!("classes/class-{number}.toml"),
            "# VISIBLE_DEVICES\n",
        );
    }
    let [classes, host] = ["classes", "host"].map(|name| node.path(name));
    let config = format!(
        "classes = [{classes:?}]\nhost_root = {host:?}\n[trust]\ntrusted_pods = [\"default\"]\n"
    );
    node.write("config.toml", &config);
    let mut engine = engine(&node);
    engine.identity.request_timeout = 2_000;
    node.start_plugin();
    let mut plugin = engine.plugin().unwrap();
    // The engine is patient, and says that it is not.
    engine.identity.request_timeout = 1;
    plugin.configure_again(&engine.identity).unwrap();
    let asking = container(&["DUMMY_VISIBLE_DEVICES=all"]);
    let nothing = ContainerAdjustment::default;
    let Created::Refused(reason) = plugin.create(&pod(), &asking, nothing()) else {
        panic!("created");
    };
    assert!(reason.contains("no decision in 0 ms"), "{reason}");
    let mut stranger = pod();
    stranger.namespace = "other".into();
    let created = plugin.create(&stranger, &asking, nothing());
    assert_eq!(created, Created::Container(Box::default()));
    node.wait_log("NRI: without the hook: boathook: container main of other/train-0: ");
    // An allocation needs no file.
    engine.identity.request_timeout = 2_000;
    plugin.configure_again(&engine.identity).unwrap();
    let Created::Container(adjust) = plugin.create(&pod(), &allocated("npu-3"), nothing()) else {
        panic!("refused");
    };
    assert!(adjust.hooks.is_some());
}
