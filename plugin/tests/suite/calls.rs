//! Calls with arguments that the kubelet never sends. Each call is refused with a message, and
//! the plugin answers the next call.

use daemon::kubelet_api::deviceplugin::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest,
    ContainerPreferredAllocationRequest, Empty, PreferredAllocationRequest,
};
use daemon::kubelet_api::pluginregistration::registration_client::RegistrationClient;
use daemon::kubelet_api::pluginregistration::{InfoRequest, RegistrationStatus};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::client::Client;
use crate::node::{NPU, NPUS, Node};

fn strings(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn allocate(client: &Client, containers: &[&[&str]]) -> Result<AllocateResponse, Status> {
    let container_requests = containers.iter().map(|ids| ContainerAllocateRequest {
        devices_ids: strings(ids),
    });
    let request = AllocateRequest {
        container_requests: container_requests.collect(),
    };
    client.call(async |mut plugin| plugin.allocate(request).await)
}

/// Returns the devices that the plugin prefers for one container.
fn preferred(
    client: &Client,
    available: &[&str],
    must: &[&str],
    size: i32,
) -> Result<Vec<String>, Status> {
    let container = ContainerPreferredAllocationRequest {
        available_device_i_ds: strings(available),
        must_include_device_i_ds: strings(must),
        allocation_size: size,
    };
    let request = PreferredAllocationRequest {
        container_requests: vec![container],
    };
    let answer = client.call(async |mut plugin| plugin.get_preferred_allocation(request).await)?;
    Ok(answer.container_responses[0].device_i_ds.clone())
}

/// Starts a node with a kubelet's directory and a plugin that serves 64 devices.
fn served() -> (Node, Client) {
    let mut node = Node::new(&[("dummy-npu", NPUS)]);
    node.write("kubelet/device-plugins/kept", "");
    node.start_plugin();
    let client = Client::connect(&node, NPU);
    (node, client)
}

#[test]
fn allocate_answers_each_container_or_none() {
    let (_node, client) = served();
    let long = "x".repeat(1_000_000);
    for (containers, wanted) in [
        (&[][..], Ok(0)),
        (&[&["npu-0"][..], &["npu-1", "npu-2"]], Ok(2)),
        // Two containers may get the same device: the kubelet decides which container has
        // which device.
        (&[&["npu-0"], &["npu-0"]], Ok(2)),
        (&[&["npu-0"], &[]], Err(Code::InvalidArgument)),
        (&[&["npu-0"], &["npu-64"]], Err(Code::NotFound)),
        (&[&[""]], Err(Code::NotFound)),
        (&[&["npu-0,npu-1"]], Err(Code::NotFound)),
        (&[&["npu-0 "]], Err(Code::NotFound)),
        (&[&["npu-0\0"]], Err(Code::NotFound)),
        (&[&["all"]], Err(Code::NotFound)),
        (&[&[&long]], Err(Code::NotFound)),
    ] {
        let answer = allocate(&client, containers);
        let answer = answer.map(|answer| answer.container_responses.len());
        assert_eq!(
            answer.map_err(|status| status.code()),
            wanted,
            "{containers:.80?}"
        );
    }
}

#[test]
fn ten_thousand_ids_in_one_call_are_answered() {
    let (_node, client) = served();
    let known: Vec<String> = (0..10_000).map(|n| format!("npu-{}", n % 64)).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let answer = allocate(&client, &[&known]).unwrap();
    let names = &answer.container_responses[0].envs["DUMMY_VISIBLE_DEVICES"];
    assert_eq!(names.split(',').count(), 64, "each once");
    let many: Vec<&[&str]> = vec![&["npu-7"]; 10_000];
    let answer = allocate(&client, &many).unwrap();
    assert_eq!(answer.container_responses.len(), 10_000);
    let unknown: Vec<String> = (0..10_000).map(|n| format!("gpu-{n}")).collect();
    let unknown: Vec<&str> = unknown.iter().map(String::as_str).collect();
    let refused = allocate(&client, &[&unknown]).unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    assert_eq!(preferred(&client, &unknown, &[], 0).unwrap(), [""; 0]);
    assert_eq!(preferred(&client, &known, &[], 64).unwrap().len(), 64);
}

#[test]
fn a_preference_that_can_not_be_met_is_refused() {
    let (_node, client) = served();
    let three = &["npu-0", "npu-1", "npu-2"][..];
    let refused = |said: &'static str| Err((Code::InvalidArgument, said));
    for (available, must, size, wanted) in [
        (three, &[][..], 0, Ok(0)),
        (&[], &[], 0, Ok(0)),
        (three, &["npu-1"], 2, Ok(2)),
        (three, &[], -1, refused("cannot choose -1 devices")),
        (three, &[], i32::MIN, refused("-2147483648 devices")),
        (three, &[], i32::MAX, refused("2147483647 of 3 available")),
        (three, &[], 4, refused("4 of 3 available")),
        (&["npu-0"; 3], &[], 2, refused("2 of 1 available")),
        (&["gone", "npu-0"], &[], 2, refused("2 of 1 available")),
        (three, &["npu-3"], 1, refused("`npu-3` must be included")),
        (three, &["gone"], 1, refused("`gone` must be included")),
        (three, &["npu-0", "npu-1"], 1, refused("2 devices must be")),
    ] {
        match (preferred(&client, available, must, size), wanted) {
            (Ok(chosen), Ok(count)) => assert_eq!(chosen.len(), count, "{size}"),
            (Err(status), Err((code, said))) => {
                assert_eq!(status.code(), code, "{size}: {status}");
                assert!(status.message().contains(said), "{size}: {status}");
            }
            (got, wanted) => panic!("{size} of {available:?}: {got:?}, not {wanted:?}"),
        }
    }
}

/// The calls are: two lists at once, one of which the client does not read; a call that does
/// not exist; bytes that are not a valid message; and a message over the size limit.
#[test]
fn what_is_no_call_at_all_is_refused() {
    let (_node, client) = served();
    let first = |client: &Client| {
        let mut list = client
            .call(async |mut plugin| plugin.list_and_watch(Empty {}).await)
            .unwrap();
        client.run(list.message()).unwrap().unwrap().devices.len()
    };
    let _unread = client.call(async |mut plugin| plugin.list_and_watch(Empty {}).await);
    assert_eq!((first(&client), first(&client)), (64, 64));

    let raw = |path: &'static str, message: RegistrationStatus| {
        client.run(async {
            let mut grpc = tonic::client::Grpc::new(client.channel());
            grpc.ready().await.unwrap();
            let path = PathAndQuery::from_static(path);
            // This message has a boolean and a string field. It is sent to calls that expect
            // other messages.
            let codec: ProstCodec<RegistrationStatus, Empty> = ProstCodec::default();
            let answer = grpc.unary(Request::new(message), path, codec).await;
            answer.map(|_| ()).map_err(|status| status.code())
        })
    };
    let wrong = RegistrationStatus {
        plugin_registered: true,
        error: "x".to_owned(),
    };
    let none = raw("/v1beta1.DevicePlugin/Deallocate", wrong.clone());
    assert_eq!(none, Err(Code::Unimplemented));
    // `Allocate` expects a list of containers in field 1, but the message has a boolean there.
    let garbled = raw("/v1beta1.DevicePlugin/Allocate", wrong.clone());
    assert_eq!(garbled, Err(Code::Internal));
    let error = "x".repeat(5 << 20);
    let huge = RegistrationStatus { error, ..wrong };
    let huge = raw(
        "/pluginregistration.Registration/NotifyRegistrationStatus",
        huge,
    );
    assert_eq!(huge, Err(Code::OutOfRange));
    assert_eq!(first(&client), 64);
}

#[test]
fn the_plugin_watchers_calls_are_answered_whatever_they_say() {
    let (node, client) = served();
    let mut watcher = RegistrationClient::new(client.channel());
    let info = client.run(watcher.get_info(InfoRequest {})).unwrap();
    assert_eq!(info.into_inner().name, NPU);
    let status = RegistrationStatus {
        plugin_registered: false,
        error: format!("no\n{}", "x".repeat(100_000)),
    };
    client
        .run(watcher.notify_registration_status(status))
        .unwrap();
    node.wait_log("the kubelet refused the registration: no\\nxxx");
    assert!(
        node.log().lines().all(|line| line.len() < 300),
        "{}",
        node.log()
    );
}
