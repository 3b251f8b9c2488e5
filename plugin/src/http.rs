//! `/metrics`, `/healthz` and `/readyz`: just enough HTTP/1 for a probe and for
//! Prometheus. One request per connection, GET only.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::catalog::Inventory;
use crate::metrics::Metrics;

/// The longest request that is read, in bytes.
const MAX_REQUEST: usize = 4096;

/// How long one client may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// As many clients are served at once; others wait.
const MAX_CLIENTS: usize = 8;

/// What the pages are made of.
#[derive(Debug, Clone)]
pub struct Pages {
    /// The counts.
    pub metrics: Arc<Metrics>,
    /// The resources.
    pub inventory: watch::Receiver<Inventory>,
}

/// Listens.
///
/// # Errors
/// The address can't be listened at.
pub async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers for ever.
pub async fn serve(listener: TcpListener, pages: Pages) {
    let mut clients = JoinSet::new();
    loop {
        while clients.len() >= MAX_CLIENTS {
            clients.join_next().await;
        }
        while clients.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((client, _)) => {
                let pages = pages.clone();
                clients.spawn(tokio::time::timeout(PATIENCE, answer(client, pages)));
            }
            Err(error) => {
                tracing::warn!("an HTTP connection can't be accepted: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer(mut client: TcpStream, pages: Pages) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= MAX_REQUEST || client.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let (status, body) = pages.page(&request);
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes()).await?;
    client.write_all(body.as_bytes()).await?;
    client.shutdown().await
}

impl Pages {
    fn page(&self, request: &[u8]) -> (&'static str, String) {
        let line = request
            .split(|byte| *byte == b'\r')
            .next()
            .unwrap_or_default();
        let mut words = line.split(|byte| *byte == b' ');
        let (method, target) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let path = target
            .split(|byte| *byte == b'?')
            .next()
            .unwrap_or_default();
        match (method, path) {
            (b"GET", b"/metrics") => ("200 OK", self.metrics()),
            // That it answers says that the one thread is not stuck.
            (b"GET", b"/healthz") => ("200 OK", "ok\n".to_owned()),
            (b"GET", b"/readyz") => self.readiness(),
            (b"GET", _) => (
                "404 Not Found",
                "/metrics, /healthz or /readyz\n".to_owned(),
            ),
            _ => ("405 Method Not Allowed", "GET only\n".to_owned()),
        }
    }

    fn metrics(&self) -> String {
        let tasks = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        self.metrics.page(&self.inventory.borrow(), tasks)
    }

    /// Ready is who is heard: a kubelet listens to every resource.
    fn readiness(&self) -> (&'static str, String) {
        let unheard = self.metrics.unheard(&self.inventory.borrow());
        if unheard.is_empty() {
            return ("200 OK", "ok\n".to_owned());
        }
        let names: Vec<&str> = unheard.iter().map(|name| name.as_str()).collect();
        (
            "503 Service Unavailable",
            format!("no kubelet listens to {}\n", names.join(", ")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_is_answered() {
        let (_sender, inventory) = watch::channel(Inventory::new());
        let pages = Pages {
            metrics: Arc::default(),
            inventory,
        };
        for (request, status) in [
            (&b"GET /healthz HTTP/1.1\r\n\r\n"[..], "200 OK"),
            (b"GET /readyz?verbose HTTP/1.0\r\n\r\n", "200 OK"),
            (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
            (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (b"\xff\xfe", "405 Method Not Allowed"),
            (b"", "405 Method Not Allowed"),
        ] {
            assert_eq!(pages.page(request).0, status, "{}", request.escape_ascii());
        }
    }
}
