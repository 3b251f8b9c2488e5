//! Tests of the server's limits, with clients that occupy connections or memory so that other
//! clients get none.

// Helper functions of tests are not `#[test]`s, so clippy.toml's exception for
// tests does not apply to them.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use http_server::{Limits, Method, StatusCode, text};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

const HOSTILE: u8 = 66;
const HONEST: u8 = 1;

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// The time in which an honest client must be answered. It is much shorter than the time after
/// which the server closes a hostile client's connection.
const SOON: Duration = Duration::from_secs(3);

/// Starts a server that answers with the length of the request's body, or with as many bytes
/// as the path says.
async fn server(connections: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = Limits {
        connections,
        body: 1 << 20,
        memory: 2 << 20,
        keep_alive: true,
    };
    let site = |_: &Method, path: &str, body: &[u8]| {
        let length = path[1..].parse().map(|length: usize| "x".repeat(length));
        text(StatusCode::OK, length.unwrap_or(body.len().to_string()))
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
async fn held(count: usize, from: u8, to: SocketAddr, sent: &[u8]) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut client = connect(from, to).await;
        client.write_all(sent).await.unwrap();
        held.push(client);
    }
    held
}

/// Opens a connection that has received one answer, and keeps it open.
async fn answered(from: u8, to: SocketAddr) -> TcpStream {
    let mut client = connect(from, to).await;
    let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut first = [0; 12];
    client.read_exact(&mut first).await.unwrap();
    client
}

/// Sends a request on a new connection and reads until the server closes the connection.
async fn ask(from: u8, to: SocketAddr, request: &str) -> String {
    let answer = finish(connect(from, to).await, request);
    tokio::time::timeout(SOON, answer).await.unwrap()
}

/// Sends the rest of a request and reads until the server closes the connection.
async fn finish(mut client: TcpStream, rest: &str) -> String {
    client.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    answer
}

fn post(length: usize, body: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

#[tokio::test]
async fn an_address_takes_places_from_itself_first() {
    let address = server(4).await;
    let idle = answered(HONEST, address).await;
    let _held = held(12, HOSTILE, address, b"GET / HT").await;
    assert!(ask(HONEST, address, REQUEST).await.ends_with("\r\n\r\n0"));
    // The connection that was open before the hostile ones is still open.
    let rest = finish(idle, REQUEST).await;
    assert_eq!(rest.matches("HTTP/1.1 200 OK").count(), 1, "{rest}");
}

#[tokio::test]
async fn who_was_never_answered_goes_before_others_of_the_address() {
    let address = server(4).await;
    let answered = answered(HONEST, address).await;
    let _held = held(12, HONEST, address, b"").await;
    assert!(ask(HONEST, address, REQUEST).await.ends_with("\r\n\r\n0"));
    let rest = finish(answered, REQUEST).await;
    assert!(rest.contains("HTTP/1.1 200 OK"), "{rest}");
}

#[tokio::test]
async fn memory_is_taken_from_bodies_that_do_not_arrive() {
    let address = server(64).await;
    let most = "x".repeat(700_000);
    let _held = held(8, HOSTILE, address, post(1 << 20, &most).as_bytes()).await;
    for _ in 0..4 {
        let answer = ask(HONEST, address, &post(most.len(), &most)).await;
        assert!(answer.ends_with("\r\n\r\n700000"), "{answer}");
    }
}

/// The server closes the connection with the largest body, also among connections of one
/// address. A small body of the same address is kept.
#[tokio::test]
async fn memory_is_taken_from_the_largest_body() {
    let address = server(64).await;
    let mut slow = connect(HONEST, address).await;
    let request = post(2, "x");
    slow.write_all(request.as_bytes()).await.unwrap();
    let most = "x".repeat(700_000);
    let _held = held(8, HONEST, address, post(1 << 20, &most).as_bytes()).await;
    assert!(ask(HONEST, address, REQUEST).await.ends_with("\r\n\r\n0"));
    let answer = finish(slow, "x").await;
    assert!(answer.ends_with("\r\n\r\n2"), "{answer}");
}

#[tokio::test]
async fn memory_is_taken_from_answers_that_nobody_reads() {
    let address = server(64).await;
    let request = b"GET /1900000 HTTP/1.1\r\nHost: x\r\n\r\n";
    for client in held(8, HOSTILE, address, request).await {
        client.readable().await.unwrap();
    }
    let body = "x".repeat(1 << 20);
    let answer = ask(HONEST, address, &post(body.len(), &body)).await;
    assert!(answer.ends_with("\r\n\r\n1048576"), "{answer}");
    // An answer of 3,000,000 bytes is larger than all memory that the server may use.
    let answer = ask(HONEST, address, &REQUEST.replace("/ ", "/3000000 ")).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer:.80}");
}

#[tokio::test]
async fn heads_and_bodies_have_an_end() {
    let address = server(4).await;
    let head = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let answer = ask(HONEST, address, &head).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let answer = ask(HONEST, address, &post((1 << 20) + 1, "")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn a_head_that_does_not_end_ends_the_connection() {
    let address = server(4).await;
    let mut client = connect(HOSTILE, address).await;
    let start = Instant::now();
    let sending = async {
        while client.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(20), sending).await;
    ended.unwrap();
    assert!(start.elapsed() > SOON, "{:?}", start.elapsed());
}
