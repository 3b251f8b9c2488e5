//! Tests with hostile clients of the programs, which run with the memory limit of their
//! containers. Reviews, requests and probes must still be answered. The long form is part of
//! `make load`.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::api_server::ApiServer;
use crate::client::{build_post, exchange, split_answer};
use crate::program::{MemoryLimit, Program};
use crate::tls::{SERVICE, certificate, client, connect, handshake};
use crate::webhook::reviews::review;

/// The memory limits of the containers in deploy/webhook and deploy/scheduler/extender, in
/// bytes.
const WEBHOOK: u64 = 128 << 20;
const EXTENDER: u64 = 384 << 20;

/// The number of loopback addresses that the hostile clients use. The honest client shares the
/// first one.
const ADDRESSES: usize = 8;

/// The number of hostile clients, how long they run, and how long an answer may take.
struct Siege {
    clients: usize,
    lasts: Duration,
    patience: Duration,
}

const SHORT: Siege = Siege {
    clients: 200,
    lasts: Duration::from_secs(3),
    // The limit is high, because this is a debug build and other tests run at the same time.
    patience: Duration::from_secs(10),
};

const LONG: Siege = Siege {
    clients: 1000,
    lasts: Duration::from_secs(60),
    patience: Duration::from_secs(1),
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_hostile_clients_stop_neither_program() {
    besiege_both(&SHORT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long: make load"]
async fn a_thousand_hostile_clients_stop_neither_program() {
    besiege_both(&LONG).await;
}

async fn besiege_both(siege: &Siege) {
    let server = ApiServer::start().await;
    if let Some(tls) = certificate()
        && let Some(limit) = MemoryLimit::new("webhook", WEBHOOK)
    {
        let trusted = std::fs::read(tls.path().join("tls.crt")).unwrap();
        let program = Program::webhook(&server, tls.path(), Some(&limit));
        let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}});
        let request = build_post("/pods", &review(&pod).to_string());
        let tls = client(&trusted);
        lay(siege, "webhook", &program, &limit, Some(&tls), &request).await;
    }
    if let Some(limit) = MemoryLimit::new("scheduler", EXTENDER) {
        let program = Program::scheduler(&server, Some(&limit));
        let request = json!({"Pod": {}, "NodeNames": ["n"]}).to_string();
        let request = build_post("/prioritize", &request);
        lay(siege, "scheduler", &program, &limit, None, &request).await;
    }
}

async fn lay(
    siege: &Siege,
    name: &str,
    program: &Program,
    limit: &MemoryLimit,
    tls: Option<&TlsConnector>,
    request: &[u8],
) {
    program.wait_ready().await;
    let mut clients = JoinSet::new();
    for number in 0..siege.clients {
        let (address, tls) = (program.requests, tls.cloned());
        clients.spawn(async move {
            loop {
                let _ = attack(number, address, tls.as_ref()).await;
                // The server has closed the connection, so the client connects again after a
                // pause.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    // Further hostile clients connect to the port for probes.
    for number in 0..siege.clients / 10 {
        let address = program.pages;
        clients.spawn(async move {
            loop {
                let _ = attack(number, address, None).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
    }
    // The honest client runs on a separate thread, so that the load of this process does not
    // change the measured times.
    let (lasts, addresses) = (siege.lasts, (program.requests, program.pages));
    let (tls, request) = (tls.cloned(), request.to_owned());
    let asking = tokio::task::spawn_blocking(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(ask_until(lasts, addresses, tls.as_ref(), &request))
    });
    let (mut times, mut probes) = asking.await.unwrap();
    times.sort_unstable();
    probes.sort_unstable();
    let (slowest, probe) = (times[times.len() - 1], probes[probes.len() - 1]);
    println!(
        "{name}: {} clients, {} requests: median {:.1?}, slowest {slowest:.1?}; \
         slowest probe {probe:.1?}; peak of memory {} MiB",
        siege.clients,
        times.len(),
        times[times.len() / 2],
        limit.peak() >> 20,
    );
    let longest = slowest.max(probe);
    assert!(longest <= siege.patience, "{slowest:?}, {probe:?}");
    // The process has not ended: its figures can still be read.
    program.status("VmRSS");
}

/// Sends requests and probes for the time `lasts`. Returns how long the answers to requests
/// and to probes took.
async fn ask_until(
    lasts: Duration,
    (requests, pages): (SocketAddr, SocketAddr),
    tls: Option<&TlsConnector>,
    request: &[u8],
) -> (Vec<Duration>, Vec<Duration>) {
    let (mut times, mut probes) = (Vec::new(), Vec::new());
    let start = Instant::now();
    while start.elapsed() < lasts {
        let asked = Instant::now();
        let answer = ask(requests, tls, request).await.unwrap();
        assert_eq!(split_answer(&answer).0, 200, "{answer}");
        times.push(asked.elapsed());
        let asked = Instant::now();
        let page = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let answer = exchange(pages, page, false).await;
        assert_eq!(split_answer(&answer).0, 200, "{answer}");
        probes.push(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (times, probes)
}

async fn ask(
    address: SocketAddr,
    tls: Option<&TlsConnector>,
    request: &[u8],
) -> std::io::Result<String> {
    let mut stream = connect([127, 0, 0, 1], address).await?;
    let mut answer = String::new();
    match tls {
        Some(tls) => {
            let mut stream = handshake(tls, stream, SERVICE).await?;
            stream.write_all(request).await?;
            stream.read_to_string(&mut answer).await?;
        }
        None => {
            stream.write_all(request).await?;
            stream.read_to_string(&mut answer).await?;
        }
    }
    Ok(answer)
}

/// Runs one connection of a hostile client until the server closes it.
async fn attack(
    number: usize,
    address: SocketAddr,
    tls: Option<&TlsConnector>,
) -> std::io::Result<()> {
    let from = u8::try_from(1 + number % ADDRESSES).unwrap();
    let mut stream = connect([127, 0, 0, from], address).await?;
    match tls {
        // The client never begins the TLS handshake.
        Some(_) if number % 5 == 4 => {
            stream.read_u8().await?;
            Ok(())
        }
        Some(tls) => besiege(number, handshake(tls, stream, SERVICE).await?).await,
        None => besiege(number, stream).await,
    }
}

async fn besiege(
    number: usize,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let send = async {
        to.write_all(b"POST /pods HTTP/1.1\r\nHost: x\r\n").await?;
        let (head, piece, pause): (&[u8], usize, u64) = match number / 5 % 4 {
            // The client sends the head byte by byte.
            0 => (b"X: ", 1, 500),
            // The client sends a head that is longer than the server reads.
            1 => (b"X: ", 64 << 10, 0),
            // The client sends the body byte by byte.
            2 => (b"Content-Length: 8000000\r\n\r\n", 1, 100),
            // The client stops sending after some megabytes of the body.
            _ => (b"Content-Length: 8000000\r\n\r\n", 7 << 20, 60_000),
        };
        to.write_all(head).await?;
        let piece = vec![b'x'; piece];
        loop {
            to.write_all(&piece).await?;
            to.flush().await?;
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    };
    let closed = async {
        let mut answer = Vec::new();
        from.read_to_end(&mut answer).await.map(drop)
    };
    tokio::select! {
        sent = send => sent,
        closed = closed => closed,
    }
}
