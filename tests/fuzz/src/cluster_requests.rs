//! Requests of the API server and of kube-scheduler, of which a pod's author writes a part.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cluster::scheduler::config::Config;
use cluster::scheduler::extender::Extender;
use cluster::webhook::api::AcceleratorFunctionSpec;
use cluster::webhook::mappings::{MappingKind, MappingObject};
use cluster::webhook::review::Reviewer;
use serde_json::Value;

const INTERFACE: &str = "69528db6eb31577a8c3668f9faa081f6";
const FUNCTION: &str = "d8424dc4a4a3c413f89e433683f9040b";

/// A review. The patch can be applied, and changes resources and variables alone.
pub(crate) fn review(bytes: &[u8]) {
    static REVIEWER: LazyLock<Reviewer> = LazyLock::new(|| {
        let reviewer = Reviewer::default();
        reviewer.change_mappings(|known| {
            for (name, mode) in [("nlb0", "region"), ("nlb0-pre", "af")] {
                let function = AcceleratorFunctionSpec {
                    afu_id: FUNCTION.to_owned(),
                    interface_id: INTERFACE.to_owned(),
                    mode: mode.to_owned(),
                };
                known.set("fpga", name, MappingObject::Function(function));
            }
            let listed = ["nlb0", "nlb0-pre"].map(|name| ("fpga".to_owned(), name.to_owned()));
            known.retain_listed(MappingKind::Function, &listed.into());
            known.retain_listed(MappingKind::Region, &[].into());
        });
        reviewer
    });
    let Ok(answer) = REVIEWER.review(bytes) else {
        return;
    };
    let answer = serde_json::to_value(answer).unwrap();
    let response = &answer["response"];
    let Some(patch) = response["patch"].as_str() else {
        return;
    };
    assert_eq!(response["allowed"], true);
    let patch = STANDARD.decode(patch).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    for operation in &patch.0 {
        let path = operation.path().to_string();
        let mut parts = path.split('/').skip(1);
        assert_eq!(parts.next(), Some("spec"), "{path}");
        let list = parts.next();
        assert!(
            matches!(list, Some("containers" | "initContainers")),
            "{path}"
        );
        let at: Option<usize> = parts.next().and_then(|at| at.parse().ok());
        assert!(at.is_some(), "{path}");
        assert!(matches!(parts.next(), Some("resources" | "env")), "{path}");
    }
    // What is not read may have escapes for half a surrogate pair.
    let Ok(review) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let mut pod = review["request"]["object"].clone();
    if let Err(error) = json_patch::patch(&mut pod, &patch) {
        panic!("{error}");
    }
}

/// A request to the extender: an answer names only nodes of the request.
pub(crate) fn extender(bytes: &[u8]) {
    static EXTENDER: LazyLock<std::sync::Arc<Extender>> = LazyLock::new(|| {
        let resource = "resource = [{ name = 'vendor.com/npu' }]";
        let config: Config = toml::from_str(resource).unwrap();
        Extender::new(config)
    });
    let filtered = EXTENDER.filter(bytes);
    let scored = EXTENDER.prioritize(bytes);
    assert_eq!(filtered.is_ok(), scored.is_ok());
    for answer in [filtered, scored].into_iter().flatten() {
        assert!(
            answer.len() <= 4 * bytes.len() + 512,
            "{} bytes",
            answer.len()
        );
        // A node's text is passed on; it may have escapes for half a surrogate pair.
        if serde_json::from_slice::<Value>(bytes).is_ok() {
            let _: Value = serde_json::from_slice(&answer).unwrap();
        }
    }
}
