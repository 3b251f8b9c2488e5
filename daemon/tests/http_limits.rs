//! Tests of the server's limits, with clients that occupy connections or memory so that other
//! clients get none.

// clippy.toml permits `unwrap` in tests only. It does not count the functions that several tests
// share as tests, although this file has nothing else.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use daemon::http_server;
use daemon::http_server::{Limits, Method, StatusCode, build_text_answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const HOSTILE: u8 = 66;
const HONEST: u8 = 1;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// The time in which an honest client must be answered. It is shorter than all time limits of the
/// server, so that a client which only gets an answer because a hostile connection has timed out
/// is too late.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// Starts a server that answers with the length of the request's body, or with as many bytes
/// as the path says.
async fn start_server(connections: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        max_connections: connections,
        max_body_bytes: 1 << 20,
        max_memory_bytes: 2 << 20,
        keep_alive: true,
    };
    let site = |_: &Method, path: &str, body: &[u8]| {
        let length = path[1..].parse().map(|length: usize| "x".repeat(length));
        build_text_answer(StatusCode::OK, length.unwrap_or(body.len().to_string()))
    };
    tokio::spawn(http_server::serve(listener, limits, site));
    address
}

async fn connect(from: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, from], 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Opens `count` connections that have all sent the bytes `sent`, and keeps them open.
async fn open_connections(count: usize, from: u8, to: SocketAddr, sent: &[u8]) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for _ in 0..count {
        let mut client = connect(from, to).await;
        client.write_all(sent).await.unwrap();
        connections.push(client);
    }
    connections
}

/// Opens a connection that has received one answer, and keeps it open.
async fn open_answered_connection(from: u8, to: SocketAddr) -> TcpStream {
    let mut client = connect(from, to).await;
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut first = [0; 12];
    client.read_exact(&mut first).await.unwrap();
    client
}

/// Sends a request on a new connection and reads until the server closes the connection.
async fn request_answer(from: u8, to: SocketAddr, request: &str) -> String {
    let answer = finish_request(connect(from, to).await, request);
    tokio::time::timeout(ANSWER_TIMEOUT, answer).await.unwrap()
}

/// Sends the rest of a request and reads until the server closes the connection.
async fn finish_request(mut client: TcpStream, rest: &str) -> String {
    client.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Returns a POST request that announces a body of `length` bytes and has `body`, which may be
/// shorter.
fn build_post(length: usize, body: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn an_address_with_many_connections_displaces_its_own_first() {
    let address = start_server(4).await;
    let idle = open_answered_connection(HONEST, address).await;
    let _held = open_connections(12, HOSTILE, address, b"GET / HT").await;
    assert!(
        request_answer(HONEST, address, REQUEST)
            .await
            .ends_with("\r\n\r\n0")
    );
    // The connection that was open before the hostile ones is still open.
    let rest = finish_request(idle, REQUEST).await;
    assert_eq!(rest.matches("HTTP/1.1 200 OK").count(), 1, "{rest}");
}

#[tokio::test]
async fn a_connection_without_an_answer_is_closed_before_an_answered_one() {
    let address = start_server(4).await;
    let answered = open_answered_connection(HONEST, address).await;
    let _held = open_connections(12, HONEST, address, b"").await;
    assert!(
        request_answer(HONEST, address, REQUEST)
            .await
            .ends_with("\r\n\r\n0")
    );
    let rest = finish_request(answered, REQUEST).await;
    assert!(rest.contains("HTTP/1.1 200 OK"), "{rest}");
}

#[tokio::test]
async fn a_complete_body_displaces_large_bodies_that_never_end() {
    let address = start_server(64).await;
    let most = "x".repeat(700_000);
    let _held = open_connections(8, HOSTILE, address, build_post(1 << 20, &most).as_bytes()).await;
    for _ in 0..4 {
        let answer = request_answer(HONEST, address, &build_post(most.len(), &most)).await;
        assert!(answer.ends_with("\r\n\r\n700000"), "{answer}");
    }
}

#[tokio::test]
async fn the_largest_body_is_displaced_and_a_small_one_of_the_same_address_is_kept() {
    let address = start_server(64).await;
    let mut slow = connect(HONEST, address).await;
    let request = build_post(2, "x");
    slow.write_all(request.as_bytes()).await.unwrap();
    let most = "x".repeat(700_000);
    let _held = open_connections(8, HONEST, address, build_post(1 << 20, &most).as_bytes()).await;
    assert!(
        request_answer(HONEST, address, REQUEST)
            .await
            .ends_with("\r\n\r\n0")
    );
    let answer = finish_request(slow, "x").await;
    assert!(answer.ends_with("\r\n\r\n2"), "{answer}");
}

#[tokio::test]
async fn answers_that_nobody_reads_are_displaced_by_a_body() {
    let address = start_server(64).await;
    let request = b"GET /1900000 HTTP/1.1\r\nHost: x\r\n\r\n";
    for client in open_connections(8, HOSTILE, address, request).await {
        client.readable().await.unwrap();
    }
    let body = "x".repeat(1 << 20);
    let answer = request_answer(HONEST, address, &build_post(body.len(), &body)).await;
    assert!(answer.ends_with("\r\n\r\n1048576"), "{answer}");
    // An answer of 3,000,000 bytes is larger than all memory that the server may use.
    let answer = request_answer(HONEST, address, &REQUEST.replace("/ ", "/3000000 ")).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer:.80}");
}

#[tokio::test]
async fn a_long_head_is_answered_with_431_and_a_long_body_with_413() {
    let address = start_server(4).await;
    let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let answer = request_answer(HONEST, address, &head).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = request_answer(HONEST, address, &build_post((1 << 20) + 1, "")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_connection_whose_head_never_ends_is_closed_within_20_seconds() {
    let address = start_server(4).await;
    let mut client = connect(HOSTILE, address).await;
    let start = Instant::now();
    let sending = async {
        while client.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), sending).await;
    ended.unwrap();
    assert!(start.elapsed() > ANSWER_TIMEOUT, "{:?}", start.elapsed());
}
