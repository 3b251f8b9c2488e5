//! Which containers get the hook, and what it is told.

use std::collections::BTreeMap;

use harness::nri::Created;
use nri_api::{Container, ContainerAdjustment, Hook, Hooks};

use super::{ANNOTATION, HOOK, allocated, connected, container, engine, node, pod};
use crate::pages::{address, metric};

fn hooks(path: &str) -> Hooks {
    let hook = Hook {
        path: path.into(),
        ..Hook::default()
    };
    Hooks {
        prestart: vec![hook],
        create_runtime: Vec::new(),
    }
}

/// The hooks that a container is created with.
fn added(created: Created) -> Vec<Hook> {
    match created {
        Created::Container(adjust) => adjust.hooks.unwrap_or_default().prestart,
        Created::Refused(reason) => panic!("{reason}"),
    }
}

#[test]
fn containers_that_ask_for_devices_get_the_hook_and_no_others() {
    let (node, _engine, mut plugin) = connected();
    let nothing = ContainerAdjustment::default;
    for (asking, count) in [
        (allocated("npu-3"), 1),
        (container(&["DUMMY_VISIBLE_DEVICES=all"]), 1),
        // What the hook refuses, it says itself.
        (container(&["DUMMY_VISIBLE_DEVICES=!"]), 1),
        (container(&["DUMMY_VISIBLE_DEVICES=void"]), 0),
        (container(&["DUMMY_VISIBLE_DEVICES="]), 0),
        (container(&["PATH=/bin", "OTHER_VISIBLE_DEVICES=all"]), 0),
        (container(&[]), 0),
    ] {
        let hooks = added(plugin.create(&pod(), &asking, nothing()));
        assert_eq!(hooks.len(), count, "{asking:?}");
    }
    let address = address(&node);
    let counted = |result| {
        let labels = format!("{{result=\"{result}\"}}");
        metric(&address, &format!("boathook_nri_adjustments_total{labels}"))
    };
    assert_eq!(
        [counted("hook"), counted("unchanged"), counted("refused")],
        [3, 4, 0]
    );
}

#[test]
fn the_hooks_arguments_name_the_container() {
    let (_node, _engine, mut plugin) = connected();
    let created = plugin.create(&pod(), &allocated("npu-3"), ContainerAdjustment::default());
    let hook = added(created).remove(0);
    assert_eq!(hook.path, HOOK);
    let expected = [
        "boathook",
        "prestart",
        "--pod-uid=00000000-0000-4000-8000-000000000001",
        "--pod-namespace=default",
        "--pod-name=train-0",
        "--container=main",
        &format!("--annotation={ANNOTATION}=npu-3"),
    ];
    assert_eq!(hook.args, expected);
    assert!(hook.env[0].starts_with("PATH="));
    let timeout = runtime_config::HOOK_TIMEOUT;
    assert_eq!(hook.timeout.unwrap().value, i64::from(timeout));
}

#[test]
fn the_hook_is_not_added_twice() {
    let (_node, _engine, mut plugin) = connected();
    for (path, ours) in [
        (HOOK, true),
        // Of hooks.d, or of another version.
        ("/usr/local/bin/boathook", true),
        ("/usr/bin/other-hook", false),
    ] {
        // In the spec before, and by an instance that is asked earlier.
        let in_spec = Container {
            hooks: Some(hooks(path)),
            ..allocated("npu-3")
        };
        let by_another = ContainerAdjustment {
            hooks: Some(hooks(path)),
            ..ContainerAdjustment::default()
        };
        let in_spec = added(plugin.create(&pod(), &in_spec, ContainerAdjustment::default()));
        assert_eq!(in_spec.is_empty(), ours, "{path}");
        let by_another = added(plugin.create(&pod(), &allocated("npu-3"), by_another));
        assert_eq!(by_another[0].path == path, ours, "{path}");
        assert_eq!(by_another.len(), 1);
    }
}

/// In CRI-O a pod's author writes among the container's annotations.
#[test]
fn a_pods_own_annotations_are_no_allocation_in_cri_o() {
    let mut node = node();
    let mut engine = engine(&node);
    engine.identity.runtime_name = "cri-o".into();
    engine.identity.runtime_version = "1.34.1".into();
    node.start_plugin();
    let mut plugin = engine.plugin().unwrap();
    assert_eq!(plugin.events(), 0x2008);
    let own = "io.kubernetes.cri-o.Annotations";
    let json = format!(r#"{{"{ANNOTATION}":"npu-4"}}"#);
    for (listed, ids) in [("null", None), ("{}", None), (&*json, Some("npu-4"))] {
        let forged = Container {
            annotations: BTreeMap::from([
                (ANNOTATION.to_owned(), "npu-3".to_owned()),
                (own.to_owned(), listed.to_owned()),
            ]),
            ..container(&[])
        };
        let hooks = added(plugin.create(&pod(), &forged, ContainerAdjustment::default()));
        let told = hooks.first().and_then(|hook| hook.args.last());
        let expected = ids.map(|ids| format!("--annotation={ANNOTATION}={ids}"));
        assert_eq!(told, expected.as_ref(), "{listed}");
    }
    let malformed = Container {
        annotations: BTreeMap::from([(own.to_owned(), "[".to_owned())]),
        ..container(&[])
    };
    let created = plugin.create(&pod(), &malformed, ContainerAdjustment::default());
    let Created::Refused(reason) = created else {
        panic!("created");
    };
    assert!(
        reason.contains("container main of default/train-0"),
        "{reason}"
    );
    assert!(reason.contains(own), "{reason}");
}

#[test]
fn a_container_that_lost_the_hook_is_rejected() {
    use nri_api::{
        ValidateContainerAdjustmentRequest as Request,
        ValidateContainerAdjustmentResponse as Response,
    };
    use prost::Message;
    let (_node, _engine, mut plugin) = connected();
    for (container, adjusted, rejected) in [
        (allocated("npu-3"), None, true),
        (allocated("npu-3"), Some(HOOK), false),
        (allocated("npu-3"), Some("/usr/bin/other-hook"), true),
        (container(&[]), None, false),
    ] {
        let adjust = ContainerAdjustment {
            hooks: adjusted.map(hooks),
            ..ContainerAdjustment::default()
        };
        let request = Request {
            pod: Some(pod()),
            container: Some(container),
            adjust: Some(adjust),
        };
        let answer = plugin.call("ValidateContainerAdjustment", &request.encode_to_vec());
        let answer = Response::decode(answer.unwrap().as_slice()).unwrap();
        assert_eq!(answer.reject, rejected, "{adjusted:?}: {}", answer.reason);
    }
}
