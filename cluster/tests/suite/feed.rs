//! Tests of the view of nodes and pods, which watches of a fake API server update.

use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBuilder;
use cluster::scheduler::extender::Extender;
use cluster::scheduler::feed;
use cluster::watch::RETRY_DELAYS;
use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::client::{SHORT_DELAYS, wait_until};
use crate::extender::{CONFIG, node, parse_config, pod};

const GPU: &str = "vendor.com/gpu";
const MEMORY: &str = "vendor.com/gpu-mem";

const PODS: &str = "/api/v1/namespaces/default/pods";

fn start_watches(server: &ApiServer, delays: ExponentialBuilder) -> Arc<Extender> {
    let extender = Extender::new(parse_config(CONFIG));
    tokio::spawn(feed::watch_nodes(
        server.client(),
        Arc::clone(&extender),
        delays,
    ));
    tokio::spawn(feed::watch_pods(
        server.client(),
        Arc::clone(&extender),
        delays,
    ));
    extender
}

/// Starts the watches and waits until the view has the lists of nodes and pods.
async fn start_and_wait_for_lists(server: &ApiServer, delays: ExponentialBuilder) -> Arc<Extender> {
    let extender = start_watches(server, delays);
    wait_until("the lists", || extender.view().is_complete()).await;
    extender
}

fn put_node(server: &ApiServer, name: &str, resource: &str, units: &str) {
    let object = node(name, resource, units);
    server.put(&format!("/api/v1/nodes/{name}"), object);
}

fn put_pod(server: &ApiServer, uid: &str, node: &str, resource: &str, units: &str) {
    let object = pod(uid, Some(node), resource, units);
    server.put(&format!("{PODS}/{uid}"), object);
}

fn score(extender: &Extender, node: &str) -> u64 {
    // The pod of a request needs no metadata.
    let mut pod = pod("", None, GPU, "1");
    pod["metadata"] = json!({});
    let request = json!({"Pod": pod, "NodeNames": [node]});
    let answer = extender.prioritize(request.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    answer[0]["Score"].as_u64().unwrap()
}

/// Returns whether both watches have failed.
fn have_failed(extender: &Extender) -> bool {
    let errors = &extender.metrics().watch_errors;
    let count = |kind| errors.get_or_create(&[("kind", kind)]).get();
    count("nodes") > 0 && count("pods") > 0
}

fn passes(extender: &Extender, node: &str, units: &str) -> bool {
    let request = json!({"Pod": pod("new", None, MEMORY, units), "NodeNames": [node]});
    let answer = extender.filter(request.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    answer["NodeNames"] == json!([node])
}

#[tokio::test]
async fn the_view_has_all_pages_of_a_list_and_all_later_changes() {
    let server = ApiServer::start().await;
    for number in 0..600 {
        let node = format!("n{number}");
        put_node(&server, &node, GPU, "4");
        put_pod(&server, &format!("p{number}"), &node, GPU, "1");
    }
    let mut ended = pod("ended", Some("n0"), GPU, "4");
    ended["status"]["phase"] = "Failed".into();
    server.put(&format!("{PODS}/ended"), ended);
    let waiting = pod("waiting", None, GPU, "4");
    server.put(&format!("{PODS}/waiting"), waiting);
    let extender = start_and_wait_for_lists(&server, SHORT_DELAYS).await;
    assert_eq!(extender.view().count_nodes_and_pods(), (600, 600));
    assert!(server.lists() >= 4, "{}", server.lists());
    assert_eq!(score(&extender, "n0"), 5);

    put_pod(&server, "q", "n0", GPU, "2");
    wait_until("a pod", || score(&extender, "n0") == 10).await;
    server.delete(&format!("{PODS}/q"));
    wait_until("its end", || score(&extender, "n0") == 5).await;
    // A pod that succeeds no longer matches the watch's selector, so the watch reports it as
    // deleted.
    let mut done = pod("p0", Some("n0"), GPU, "1");
    done["status"]["phase"] = "Succeeded".into();
    server.put(&format!("{PODS}/p0"), done);
    wait_until("a pod's success", || score(&extender, "n0") == 2).await;
    put_node(&server, "n0", GPU, "1");
    wait_until("a smaller node", || score(&extender, "n0") == 10).await;
    server.delete("/api/v1/nodes/n0");
    wait_until("a node's end", || score(&extender, "n0") == 0).await;
}

#[tokio::test]
async fn objects_are_listed_again_after_the_history_was_compacted() {
    let mut server = ApiServer::start().await;
    put_node(&server, "n", GPU, "4");
    put_pod(&server, "old", "n", GPU, "1");
    let extender = start_and_wait_for_lists(&server, SHORT_DELAYS).await;
    assert_eq!(score(&extender, "n"), 5);

    server.stop().await;
    // While the API server is away, the extender answers from its view.
    assert_eq!(score(&extender, "n"), 5);
    server.delete(&format!("{PODS}/old"));
    put_pod(&server, "new", "n", GPU, "3");
    put_node(&server, "second", GPU, "2");
    server.compact();
    wait_until("failures", || have_failed(&extender)).await;
    assert_eq!(score(&extender, "n"), 5);
    assert!(extender.view().is_complete());
    server.resume().await;
    wait_until("the new list", || score(&extender, "n") == 10).await;
    wait_until("the new node", || score(&extender, "second") == 5).await;
    assert_eq!(extender.view().count_nodes_and_pods(), (2, 1));
}

#[tokio::test]
async fn an_extender_that_starts_before_the_api_server_becomes_complete() {
    let mut server = ApiServer::start().await;
    server.stop().await;
    put_node(&server, "n", GPU, "2");
    let extender = start_watches(&server, SHORT_DELAYS);
    wait_until("failures", || have_failed(&extender)).await;
    assert!(!extender.view().is_complete());
    assert_eq!(score(&extender, "n"), 0);
    server.resume().await;
    wait_until("the lists", || extender.view().is_complete()).await;
    assert_eq!(score(&extender, "n"), 5);
}

/// The test uses the program's own delays, and moves a paused clock forward.
#[tokio::test]
async fn answers_stay_the_same_while_the_api_server_is_away_for_a_minute() {
    let mut server = ApiServer::start().await;
    put_node(&server, "n", GPU, "4");
    put_pod(&server, "old", "n", GPU, "1");
    let extender = start_and_wait_for_lists(&server, RETRY_DELAYS).await;
    server.stop().await;
    put_pod(&server, "new", "n", GPU, "2");

    tokio::time::pause();
    for _ in 0..60 {
        advance_one_second().await;
        assert_eq!(score(&extender, "n"), 5);
    }
    let failures = &extender.metrics().watch_errors;
    let failures = failures.get_or_create(&[("kind", "pods")]).get();
    // The watch was tried again several times, each time after a longer delay.
    assert!((3..=12).contains(&failures), "{failures}");
    server.resume().await;
    let mut seconds = 0;
    while score(&extender, "n") != 10 {
        assert!(seconds < 60, "what changed is not seen");
        advance_one_second().await;
        seconds += 1;
    }
    assert!(extender.view().is_complete());
}

/// Moves the paused clock forward by a second, and then waits a short real time for messages.
async fn advance_one_second() {
    tokio::time::advance(Duration::from_secs(1)).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test]
async fn nodes_pass_or_fail_by_the_devices_room_as_pods_come_and_go() {
    let mut server = ApiServer::start().await;
    put_node(&server, "n", MEMORY, "16");
    let extender = start_and_wait_for_lists(&server, SHORT_DELAYS).await;
    for (uid, units) in [("a", "5"), ("b", "6"), ("c", "3")] {
        put_pod(&server, uid, "n", MEMORY, units);
        wait_until("a pod", || {
            extender.view().count_nodes_and_pods().1 > usize::from(uid > "a")
                && (uid != "c" || extender.view().count_nodes_and_pods().1 == 3)
        })
        .await;
    }
    // The first device has 5 + 3 units and the second 6. There is no other arrangement.
    wait_until("a full node", || !passes(&extender, "n", "3")).await;
    assert!(passes(&extender, "n", "2"));
    server.stop().await;
    server.delete(&format!("{PODS}/c"));
    put_pod(&server, "d", "n", MEMORY, "1");
    server.compact();
    server.resume().await;
    // The devices have 5 and 6 units, and 1 more on either. 3 units may fit, but 4 cannot.
    wait_until("the new list", || passes(&extender, "n", "3")).await;
    assert!(!passes(&extender, "n", "4"));
}
