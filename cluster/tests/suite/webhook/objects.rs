//! AcceleratorFunctions and FpgaRegions that are created and deleted.

use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use cluster::watch::DELAYS;
use cluster::webhook::api::{AcceleratorFunction, FpgaRegion};
use cluster::webhook::feed::follow;
use cluster::webhook::review::Reviewer;
use serde_json::{Value, json};

use super::reviews::review;
use super::{DCP12, NLB0, container, pod};
use crate::api_server::ApiServer;
use crate::client::wait_until;

const GROUP: &str = "/apis/fpga.intel.com/v2";

const QUICK: ExponentialBuilder = DELAYS
    .with_min_delay(Duration::from_millis(20))
    .with_max_delay(Duration::from_millis(100));

fn start(server: &ApiServer) -> Arc<Reviewer> {
    let reviewer = Arc::new(Reviewer::default());
    tokio::spawn(follow::<AcceleratorFunction>(
        server.client(),
        Arc::clone(&reviewer),
        QUICK,
    ));
    tokio::spawn(follow::<FpgaRegion>(
        server.client(),
        Arc::clone(&reviewer),
        QUICK,
    ));
    reviewer
}

fn put(server: &ApiServer, plural: &str, name: &str, spec: Value) {
    let kind = match plural {
        "fpgaregions" => "FpgaRegion",
        _ => "AcceleratorFunction",
    };
    let object = json!({
        "apiVersion": "fpga.intel.com/v2", "kind": kind, "metadata": {}, "spec": spec,
    });
    server.put(&format!("{GROUP}/namespaces/fpga/{plural}/{name}"), object);
}

fn answer(reviewer: &Reviewer, name: &str) -> Value {
    let body = review(&pod(container(&[(name, "1")]))).to_string();
    let answer = reviewer.review(body.as_bytes()).unwrap();
    serde_json::to_value(answer).unwrap()["response"].clone()
}

fn is_allowed(reviewer: &Reviewer, name: &str) -> bool {
    answer(reviewer, name)["allowed"] == true
}

async fn wait_allowed(reviewer: &Reviewer, name: &str, wanted: bool) {
    let what = format!("{name} is {wanted}");
    wait_until(&what, || is_allowed(reviewer, name) == wanted).await;
}

#[tokio::test]
async fn objects_are_followed() {
    let mut server = ApiServer::start().await;
    let function = json!({"afuId": NLB0, "interfaceId": DCP12, "mode": "region"});
    put(&server, "acceleratorfunctions", "nlb0", function.clone());
    let reviewer = start(&server);
    wait_allowed(&reviewer, "nlb0", true).await;
    put(
        &server,
        "fpgaregions",
        "whole",
        json!({"interfaceId": DCP12}),
    );
    wait_allowed(&reviewer, "whole", true).await;
    server.delete(&format!("{GROUP}/namespaces/fpga/fpgaregions/whole"));
    wait_allowed(&reviewer, "whole", false).await;

    server.stop().await;
    server.delete(&format!(
        "{GROUP}/namespaces/fpga/acceleratorfunctions/nlb0"
    ));
    put(&server, "acceleratorfunctions", "new", function);
    server.compact();
    assert!(is_allowed(&reviewer, "nlb0"));
    server.resume().await;
    wait_allowed(&reviewer, "new", true).await;
    wait_allowed(&reviewer, "nlb0", false).await;
}

#[tokio::test]
async fn objects_that_contradict_each_other_are_not_mapped() {
    let server = ApiServer::start().await;
    let reviewer = start(&server);
    let function = json!({"afuId": NLB0, "interfaceId": DCP12, "mode": "region"});
    put(&server, "acceleratorfunctions", "same", function.clone());
    wait_allowed(&reviewer, "same", true).await;
    put(
        &server,
        "fpgaregions",
        "same",
        json!({"interfaceId": DCP12}),
    );
    wait_allowed(&reviewer, "same", false).await;
    let response = answer(&reviewer, "same");
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("is both an AcceleratorFunction and an FpgaRegion"),
        "{message}"
    );
    // Other names are not affected, and this one works again when one object is deleted.
    put(&server, "acceleratorfunctions", "other", function);
    wait_allowed(&reviewer, "other", true).await;
    server.delete(&format!("{GROUP}/namespaces/fpga/fpgaregions/same"));
    wait_allowed(&reviewer, "same", true).await;
}

#[tokio::test]
async fn an_object_of_an_older_schema_stops_only_itself() {
    let server = ApiServer::start().await;
    let odd = json!({"afuId": "XY", "interfaceId": "", "mode": "afx"});
    put(&server, "acceleratorfunctions", "odd", odd);
    let good = json!({"afuId": NLB0, "interfaceId": DCP12, "mode": "af"});
    put(&server, "acceleratorfunctions", "good", good);
    let reviewer = start(&server);
    wait_allowed(&reviewer, "good", true).await;
    let response = answer(&reviewer, "odd");
    let message = response["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("\"odd\" has an id that is not hexadecimal"),
        "{message}"
    );
}
