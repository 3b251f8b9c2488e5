//! Tests with AcceleratorFunctions and FpgaRegions that are created and deleted.

use std::sync::Arc;

use cluster::webhook::api::{AcceleratorFunction, FpgaRegion};
use cluster::webhook::feed::watch_mappings;
use cluster::webhook::review::Reviewer;
use serde_json::{Value, json};

use super::reviews::review;
use super::{DCP12, NLB0, container, pod};
use crate::api_server::ApiServer;
use crate::client::{SHORT_DELAYS, wait_until};

const FUNCTIONS: &str = "/apis/fpga.intel.com/v2/namespaces/fpga/acceleratorfunctions";
const REGIONS: &str = "/apis/fpga.intel.com/v2/namespaces/fpga/fpgaregions";

fn start(server: &ApiServer) -> Arc<Reviewer> {
    let reviewer = Arc::new(Reviewer::default());
    let functions =
        watch_mappings::<AcceleratorFunction>(server.client(), Arc::clone(&reviewer), SHORT_DELAYS);
    let regions =
        watch_mappings::<FpgaRegion>(server.client(), Arc::clone(&reviewer), SHORT_DELAYS);
    tokio::spawn(functions);
    tokio::spawn(regions);
    reviewer
}

fn put_function(server: &ApiServer, name: &str, spec: Value) {
    let object = json!({"apiVersion": "fpga.intel.com/v2", "kind": "AcceleratorFunction",
        "metadata": {}, "spec": spec});
    server.put(&format!("{FUNCTIONS}/{name}"), object);
}

fn put_region(server: &ApiServer, name: &str) {
    let object = json!({"apiVersion": "fpga.intel.com/v2", "kind": "FpgaRegion", "metadata": {},
        "spec": {"interfaceId": DCP12}});
    server.put(&format!("{REGIONS}/{name}"), object);
}

fn answer(reviewer: &Reviewer, name: &str) -> Value {
    let body = review(&pod(container(&[(name, "1")]))).to_string();
    let answer = reviewer.review(body.as_bytes()).unwrap();
    serde_json::to_value(answer).unwrap()["response"].clone()
}

fn refusal(reviewer: &Reviewer, name: &str) -> String {
    let response = answer(reviewer, name);
    let message = response["status"]["message"].as_str();
    message.unwrap().to_owned()
}

fn is_allowed(reviewer: &Reviewer, name: &str) -> bool {
    answer(reviewer, name)["allowed"] == true
}

async fn wait_allowed(reviewer: &Reviewer, name: &str, wanted: bool) {
    let what = format!("{name} is {wanted}");
    wait_until(&what, || is_allowed(reviewer, name) == wanted).await;
}

#[tokio::test]
async fn names_can_be_used_as_long_as_their_objects_exist() {
    let mut server = ApiServer::start().await;
    let function = json!({"afuId": NLB0, "interfaceId": DCP12, "mode": "region"});
    put_function(&server, "nlb0", function.clone());
    let reviewer = start(&server);
    wait_allowed(&reviewer, "nlb0", true).await;
    put_region(&server, "whole");
    wait_allowed(&reviewer, "whole", true).await;
    server.delete(&format!("{REGIONS}/whole"));
    wait_allowed(&reviewer, "whole", false).await;

    server.stop().await;
    server.delete(&format!("{FUNCTIONS}/nlb0"));
    put_function(&server, "new", function);
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
    put_function(&server, "same", function.clone());
    wait_allowed(&reviewer, "same", true).await;
    put_region(&server, "same");
    wait_allowed(&reviewer, "same", false).await;
    let message = refusal(&reviewer, "same");
    let reason = "is both an AcceleratorFunction and an FpgaRegion";
    assert!(message.contains(reason), "{message}");
    // Other names are not affected by the conflict. The name can be used again when one of the
    // two objects is deleted.
    put_function(&server, "other", function);
    wait_allowed(&reviewer, "other", true).await;
    server.delete(&format!("{REGIONS}/same"));
    wait_allowed(&reviewer, "same", true).await;
}

#[tokio::test]
async fn an_invalid_object_makes_only_its_own_name_unusable() {
    let server = ApiServer::start().await;
    let odd = json!({"afuId": "XY", "interfaceId": "", "mode": "afx"});
    put_function(&server, "odd", odd);
    let good = json!({"afuId": NLB0, "interfaceId": DCP12, "mode": "af"});
    put_function(&server, "good", good);
    let reviewer = start(&server);
    wait_allowed(&reviewer, "good", true).await;
    let message = refusal(&reviewer, "odd");
    let reason = "\"odd\" has an id that is not hexadecimal";
    assert!(message.contains(reason), "{message}");
}
