//! Tests with hostile and broken clients of the extender's server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cluster::scheduler::extender::{Extender, LIMITS, MAX_BODY_BYTES};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{build_post, exchange, split_answer, start_server};
use crate::extender::{CONFIG, node, parse_config, pod};

async fn start_extender() -> SocketAddr {
    let extender = Extender::new(parse_config(CONFIG));
    let node = serde_json::from_value(node("n", "vendor.com/gpu", "2")).unwrap();
    extender.update_view(|view| {
        view.replace_nodes(&[node]);
        view.replace_pods(Vec::new());
    });
    start_server(LIMITS, extender.handler()).await
}

fn request() -> String {
    json!({"Pod": pod("a", None, "vendor.com/gpu", "1"), "NodeNames": ["n"]}).to_string()
}

#[tokio::test]
async fn bad_requests_are_answered_with_their_reason() {
    let address = start_extender().await;
    // The bodies have many small values, which would take much memory when parsed.
    let names = format!("{{\"NodeNames\":[{}\"\"]}}", "\"\",".repeat(100_000));
    let pod = format!("{{\"Pod\":[{}0]}}", "0,".repeat(2 << 20));
    let get = b"GET /filter HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec();
    for (request, status, reason) in [
        (
            build_post("/filter", ""),
            400,
            "not a request of kube-scheduler",
        ),
        (build_post("/filter", "{\"Pod\": 1}"), 400, "invalid type"),
        (build_post("/filter", "[[[[[[[["), 400, "not a request"),
        (
            build_post("/prioritize", "{\"NodeNames\": [1]}"),
            400,
            "expected a",
        ),
        (
            build_post("/filter", &names),
            400,
            "a list of at most 100000 items",
        ),
        (
            build_post("/filter", &pod),
            400,
            "the pod is longer than 4194304 bytes",
        ),
        (build_post("/bind", "{}"), 404, ""),
        (get, 405, ""),
    ] {
        let answer = exchange(address, &request, false).await;
        let (code, body) = split_answer(&answer);
        assert_eq!(code, status, "{answer}");
        assert!(body.contains(reason), "{answer}");
    }
    let answer = exchange(address, &build_post("/prioritize", &request()), false).await;
    assert_eq!(
        split_answer(&answer),
        (200, "[{\"Host\":\"n\",\"Score\":5}]")
    );
}

#[tokio::test]
async fn bodies_over_the_limit_are_refused() {
    let address = start_extender().await;
    let announced = format!(
        "POST /filter HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        MAX_BODY_BYTES + 1
    );
    let answer = exchange(address, announced.as_bytes(), false).await;
    assert_eq!(split_answer(&answer).0, 413, "{answer}");
    assert!(answer.contains("longer than 33554432 bytes"), "{answer}");

    // The body is sent in chunks and has no length. The server stops reading at its limit.
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut chunk = format!("{:x}\r\n", 1 << 20).into_bytes();
    chunk.resize(chunk.len() + (1 << 20), b' ');
    chunk.extend(b"\r\n");
    let (mut from, mut to) = stream.split();
    let send = async {
        for _ in 0..40 {
            if to.write_all(&chunk).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut head = [0; 12];
    tokio::select! {
        () = send => {}
        read = from.read_exact(&mut head) => drop(read.unwrap()),
    }
    assert_eq!(&head, b"HTTP/1.1 413");
}

#[tokio::test]
async fn half_closed_connections_are_answered() {
    let address = start_extender().await;
    let answer = exchange(address, &build_post("/filter", &request()), true).await;
    assert_eq!(split_answer(&answer).0, 200, "{answer}");
    // An incomplete body is not a request.
    let whole = build_post("/filter", &request());
    let answer = exchange(address, &whole[..whole.len() - 5], true).await;
    assert!(
        answer.is_empty() || split_answer(&answer).0 == 400,
        "{answer}"
    );
    let answer = exchange(address, b"POST /filter HT", true).await;
    assert!(!answer.contains("200 OK"), "{answer}");
}

#[tokio::test]
async fn a_thousand_requests_at_once_are_all_answered() {
    let address = start_extender().await;
    // Idle clients do not block others.
    let mut idle = Vec::new();
    for _ in 0..200 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let start = Instant::now();
    let mut requests = JoinSet::new();
    for number in 0..1000 {
        let request = build_post(["/filter", "/prioritize"][number % 2], &request());
        requests.spawn(async move { exchange(address, &request, false).await });
    }
    let answers = requests.join_all().await;
    assert_eq!(answers.len(), 1000);
    for answer in answers {
        assert_eq!(split_answer(&answer).0, 200, "{answer}");
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
}
