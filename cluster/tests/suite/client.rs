//! A client of the tested servers, and functions that wait for conditions.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use backon::ExponentialBuilder;
use cluster::watch::RETRY_DELAYS;
use daemon::http_server;
use daemon::http_server::{Handler, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time limit for a condition or an answer. It is long because the kernel repeats connection
/// attempts that exceed a listener's queue only after 1, 3, 7 and 15 s.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Delays before a failed watch is repeated, much shorter than those of the programs.
pub(crate) const SHORT_DELAYS: ExponentialBuilder = RETRY_DELAYS
    .with_min_delay(Duration::from_millis(20))
    .with_max_delay(Duration::from_millis(100));

/// Starts an HTTP server at a free port of 127.0.0.1 and returns its address.
pub(crate) async fn start_server(limits: Limits, handler: impl Handler) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(http_server::serve(listener, limits, handler));
    address
}

/// Waits until a condition is true.
pub(crate) async fn wait_until(condition: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(
            start.elapsed() < WAIT_TIMEOUT,
            "not in {WAIT_TIMEOUT:?}: {condition}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends the bytes of a request, and reads the answer until the server closes the connection.
pub(crate) async fn exchange(address: SocketAddr, request: &[u8], half_close: bool) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request).await.unwrap();
    if half_close {
        stream.shutdown().await.unwrap();
    }
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    tokio::time::timeout(WAIT_TIMEOUT, read)
        .await
        .unwrap()
        .unwrap();
    String::from_utf8(answer).unwrap()
}

/// Returns the bytes of a POST request.
pub(crate) fn build_post(path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// Splits an answer into its status and its body.
pub(crate) fn split_answer(answer: &str) -> (u16, &str) {
    let status = answer.split(' ').nth(1).expect(answer);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status.parse().unwrap(), body)
}
