//! Measurements of the extender's time and memory with 5,000 nodes and 100,000 pods, for `make
//! bench-cluster`. The program runs as in a cluster and is called over HTTP.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api_server::ApiServer;
use crate::extender::node;
use crate::program::Program;

const NODES: usize = 5000;
const PODS: usize = 100_000;
const REQUESTS: usize = 500;

/// The limits that a release must meet.
const MAX_P99: Duration = Duration::from_millis(5);
const MAX_MEMORY: u64 = 150 << 20;

const MEMORY: &str = "vendor.com/gpu-mem";

/// Returns a pod as large as a typical small pod.
fn pod(number: usize) -> Value {
    let env: Vec<Value> = (0..10)
        .map(
            |at| json!({"name": format!("VARIABLE_{at}"), "value": "some value that is not short"}),
        )
        .collect();
    let managed = json!([{"manager": "kubelet", "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {"f:conditions": {}, "f:phase": {}}}}]);
    json!({
        "metadata": {"namespace": "default", "uid": format!("5f6d3c1e-0000-4000-8000-{number:012}"),
            "labels": {"app": "x"}, "managedFields": managed,
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "nodeName": format!("node-{}", number % NODES),
            "containers": [{"name": "main", "image": "registry.example.com/team/image:1", "env": env,
                "resources": {"requests": {MEMORY: "2", "cpu": "1"}}}],
        },
        "status": {"phase": "Running"},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "large: make bench-cluster"]
async fn five_thousand_nodes_and_a_hundred_thousand_pods() {
    let server = ApiServer::start().await;
    for number in 0..NODES {
        let name = format!("node-{number}");
        server.put(&format!("/api/v1/nodes/{name}"), node(&name, MEMORY, "64"));
    }
    for number in 0..PODS {
        server.put(
            &format!("/api/v1/namespaces/default/pods/p{number}"),
            pod(number),
        );
    }
    let scheduler = Program::scheduler(&server, None);
    scheduler.wait_ready().await;

    let names: Vec<String> = (0..NODES).map(|number| format!("node-{number}")).collect();
    let mut times = Vec::new();
    let mut stream = TcpStream::connect(scheduler.requests).await.unwrap();
    for number in 0..REQUESTS {
        let mut asked = pod(PODS + number);
        asked["spec"]["nodeName"] = Value::Null;
        let body = json!({"Pod": asked, "Nodes": null, "NodeNames": names}).to_string();
        let request = format!(
            "POST /prioritize HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let start = Instant::now();
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = read_answer(&mut stream).await;
        times.push(start.elapsed());
        if number == 0 {
            let scores: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(scores.as_array().unwrap().len(), NODES);
            // Each node has 20 pods of 2 units. With this pod, 42 of 64 units are in use,
            // which is a score of 7 after rounding up.
            assert_eq!(scores[0]["Score"], 7);
        }
    }
    times.sort_unstable();
    let (median, p99) = (times[REQUESTS / 2], times[REQUESTS * 99 / 100]);
    let (memory, peak) = (scheduler.status("VmRSS"), scheduler.status("VmHWM"));
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!("prioritize over {NODES} names: median {median:.2?}, p99 {p99:.2?}");
    println!(
        "memory: {:.1} MiB, peak {:.1} MiB",
        mebibytes(memory),
        mebibytes(peak)
    );
    if cfg!(not(debug_assertions)) {
        assert!(p99 <= MAX_P99, "{p99:?}");
        assert!(peak <= MAX_MEMORY, "{peak} bytes");
    }
}

/// Reads one answer from a connection that stays open.
async fn read_answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the connection was closed");
        bytes.extend_from_slice(&buffer[..read]);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else { continue };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .unwrap();
        let length: usize = length.parse().unwrap();
        if bytes.len() == end + 4 + length {
            return bytes.split_off(end + 4);
        }
    }
}
