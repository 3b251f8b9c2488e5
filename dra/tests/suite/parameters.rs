//! Tests of the parameters that a claim or its DeviceClass sets for the devices of this
//! driver.

use std::fs;

use serde_json::json;

use crate::node::{NPUS, Node, result};

const A: [&str; 3] = ["n", "a", "u-1"];

/// Returns the text of a class with capabilities.
fn capable() -> String {
    let request = "capabilities_env = 'NPU_CAPS', default_capabilities = ['run'], \
        trusted_capabilities = ['all-npus'], implies = { trace-all = ['all-npus'] }";
    let request = format!("request = {{ env = 'DUMMY_VISIBLE_DEVICES', {request} }}");
    let class = NPUS.replace("request = { env = 'DUMMY_VISIBLE_DEVICES' }", &request);
    let edits = ["run", "trace", "trace-all", "all-npus"].map(|name| {
        format!("[[edits]]\ncapability = '{name}'\nfiles = [{{ path = '/etc/{name}', optional = true }}]\n")
    });
    class + &edits.concat()
}

/// Returns an entry for the field `config` of an allocation.
fn config(source: &str, requests: &[&str], parameters: &serde_json::Value) -> serde_json::Value {
    json!({"source": source, "requests": requests,
        "opaque": {"driver": "boathook.dev", "parameters": parameters}})
}

#[tokio::test]
async fn parameters_of_the_claim_count_before_those_of_its_device_class() {
    let mut node = Node::new(&capable(), 3).await;
    let driver = node.start().await;
    let results = [("own/sub", "npu-0"), ("class", "npu-1"), ("none", "npu-2")];
    let results = results.map(|(request, device)| result(request, "npu", device));
    let both = json!({"capabilities": ["run", "trace"]});
    let one = json!({"capabilities": ["trace"]});
    let config = [
        config("FromClass", &["own", "class"], &both),
        config("FromClaim", &["own/sub", "other"], &one),
    ];
    let allocation = json!({"devices": {"results": results, "config": config}});
    node.claim("a", "u-1", allocation);
    driver.prepare_one(A).await.unwrap();
    let variables = |specified: &serde_json::Value| {
        let env = specified["containerEdits"]["env"].as_array().unwrap();
        let text = |one: &serde_json::Value| one.as_str().unwrap().to_owned();
        let mut env = env.iter().map(text);
        env.find(|one| one.starts_with("NPU_CAPS="))
    };
    let wanted = [
        ("u-1-0-class", Some("NPU_CAPS=run,trace")),
        ("u-1-1-none", None),
        ("u-1-2-own", Some("NPU_CAPS=trace")),
    ];
    let written = node.specified("u-1");
    assert_eq!(written.len(), wanted.len());
    for (specified, (name, variable)) in written.iter().zip(wanted) {
        assert_eq!(specified["name"], name);
        assert_eq!(variables(specified).as_deref(), variable, "{name}");
    }
    // The driver writes the specification again from the claim record.
    fs::remove_dir_all(node.path("cdi")).unwrap();
    node.start().await;
    node.wait_specification("u-1").await;
    assert_eq!(node.specified("u-1"), written);
}

#[tokio::test]
async fn parameters_that_mean_nothing_are_an_error_of_the_claim() {
    let mut node = Node::new(&capable(), 1).await;
    let driver = node.start().await;
    let long = "x".repeat(9000);
    for (number, (parameters, wanted)) in [
        (
            json!({"capabilities": ["run"], "Lists": []}),
            "of the claim: unknown field `Lists`, expected `capabilities` or `lists`",
        ),
        (
            json!({"capabilities": "run"}),
            "of the claim: invalid type: string",
        ),
        (
            json!({"capabilities": [1]}),
            "invalid type: integer `1`, expected a string",
        ),
        (json!({"capabilities": ["run,trace"]}), "`run,trace`"),
        (json!(7), "invalid type: integer `7`"),
        (
            json!({"capabilities": ["Run"]}),
            "class npu has no capability Run; use all, all-npus, run, trace, trace-all",
        ),
        (json!({"capabilities": [long]}), "`xxxx"),
        (
            json!({"capabilities": ["all-npus"]}),
            "capability all-npus is not for claims",
        ),
        (
            json!({"capabilities": ["trace-all"]}),
            "capability trace-all is not for claims",
        ),
        (
            json!({"lists": ["base"]}),
            "`lists` in `config`: class npu has none to choose from; remove it",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let config = [config("FromClaim", &[], &parameters)];
        let results = [result("r", "npu", "npu-0")];
        let allocation = json!({"devices": {"results": results, "config": config}});
        let (name, uid) = (format!("c-{number}"), format!("u-{number}"));
        node.claim(&name, &uid, allocation);
        let error = driver.prepare_one(["n", &name, &uid]).await.unwrap_err();
        let error = error.to_string();
        assert!(error.contains(wanted), "{parameters}: {error}");
        assert!(error.len() < 500, "{error}");
    }
    assert_eq!(node.names("kubelet/plugins/boathook.dev/claims"), [""; 0]);
}

/// The API server accepts parameters of 10 KiB for each request, and a claim may have 32
/// requests.
#[tokio::test]
async fn parameters_of_any_length_leave_a_record_that_can_be_read() {
    let class = capable().replace(
        "capabilities_env = 'NPU_CAPS'",
        "lists_env = 'NPU_LISTS', capabilities_env = 'NPU_CAPS'",
    );
    let listed = "[[edits]]\nfiles_listed_in = '/etc/lists/{list}'\n";
    let mut node = Node::new(&(class + listed), 32).await;
    let driver = node.start().await;
    let results: Vec<_> = (0..32)
        .map(|number| result(&format!("r-{number}"), "npu", &format!("npu-{number}")))
        .collect();
    let long = vec!["a"; 10 * 1024 / "\"a\",".len() - 10];
    for parameters in [
        json!({"capabilities": vec!["run"; 1600]}),
        json!({"lists": long}),
    ] {
        assert!(parameters.to_string().len() <= 10 * 1024);
        let config = [config("FromClaim", &[], &parameters)];
        let allocation = json!({"devices": {"results": results, "config": config}});
        node.claim("a", "u-1", allocation);
        driver.prepare_one(A).await.unwrap();
        // The driver writes the specification again from the claim record.
        fs::remove_dir_all(node.path("cdi")).unwrap();
        node.wait_specification("u-1").await;
        driver.unprepare(A).await.unwrap();
    }
}
