//! `/metrics`, `/healthz` and `/readyz`. One request per connection.
//!
//! Probes must be answered regardless of other clients: the time for a request is
//! limited, and if there are too many connections, the oldest one of the
//! address with the most connections is closed.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::catalog::Inventory;
use crate::metrics;
use crate::server::LeftToOthers;
use crate::service::Streams;

/// How many connections are open at once.
const MAX_CLIENTS: usize = 32;

/// How long a client may take to send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a connection may last.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest head of a request, in bytes: the minimum that hyper allows.
const MAX_HEAD: usize = 8192;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// The data of the pages.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) metrics: metrics::Page,
    pub(crate) inventory: watch::Receiver<Inventory>,
    pub(crate) streams: Streams,
    pub(crate) left: LeftToOthers,
}

/// Serves until it is dropped.
pub(crate) async fn serve(listener: TcpListener, pages: Pages) {
    let pages = Arc::new(pages);
    let mut clients = Clients::default();
    loop {
        match listener.accept().await {
            Ok((client, address)) => {
                clients.add(client, address, Arc::clone(&pages));
                // Lets it read a request that has arrived before it may be
                // closed.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                tracing::warn!("cannot accept an HTTP connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The open connections, the oldest one first.
#[derive(Default)]
struct Clients {
    tasks: JoinSet<()>,
    open: VecDeque<(IpAddr, AbortHandle)>,
}

impl Clients {
    fn add(&mut self, client: TcpStream, address: SocketAddr, pages: Arc<Pages>) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|(_, task)| !task.is_finished());
        if self.open.len() >= MAX_CLIENTS {
            self.close_one();
        }
        let task = self.tasks.spawn(answer(client, pages));
        self.open.push_back((address.ip(), task));
    }

    /// Closes the oldest connection of the address that has the most, so that
    /// it does not affect others.
    fn close_one(&mut self) {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for (address, _) in &self.open {
            *counts.entry(*address).or_default() += 1;
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let most = most.map(|(address, _)| address);
        let oldest = self.open.iter().position(|(from, _)| Some(*from) == most);
        if let Some((_, task)) = oldest.and_then(|at| self.open.remove(at)) {
            task.abort();
        }
    }
}

async fn answer(client: TcpStream, pages: Arc<Pages>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let page = pages.page(request.method(), request.uri().path());
        async { Ok::<_, Infallible>(page) }
    });
    let mut connection = http1::Builder::new();
    connection
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false);
    let connection = connection.serve_connection(TokioIo::new(client), service);
    // A client that disconnects, or does not send HTTP, is ignored.
    let _ = tokio::time::timeout(TIMEOUT, connection).await;
}

impl Pages {
    fn page(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        if ![Method::GET, Method::HEAD].contains(method) {
            return plain(StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned());
        }
        match path {
            "/metrics" => response(StatusCode::OK, metrics::CONTENT_TYPE, self.metrics.text()),
            // Any answer shows that the thread is not blocked.
            "/healthz" => plain(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => self.readiness(),
            _ => plain(
                StatusCode::NOT_FOUND,
                "not found; use /metrics, /healthz or /readyz\n".to_owned(),
            ),
        }
    }

    /// Ready: the kubelet watches every resource that is not left to another plugin.
    fn readiness(&self) -> Response<Full<Bytes>> {
        let mut missing = self.streams.missing(&self.inventory.borrow());
        missing.retain(|name| !self.left.contains(name));
        if missing.is_empty() {
            let text = match self.left.names().join(", ") {
                names if names.is_empty() => "ok\n".to_owned(),
                names => format!("ok; left to another plugin: {names}\n"),
            };
            return plain(StatusCode::OK, text);
        }
        let names: Vec<&str> = missing.iter().map(|name| name.as_str()).collect();
        let names = names.join(", ");
        plain(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("no kubelet has a ListAndWatch stream for {names}\n"),
        )
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    response(status, PLAIN_TEXT, text)
}

fn response(status: StatusCode, kind: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Metrics, Page};

    #[test]
    fn each_method_and_path_has_its_status() {
        let (_sender, inventory) = watch::channel(Inventory::new());
        let streams = Streams::default();
        let pages = Pages {
            metrics: Page::new(
                &Metrics::default(),
                inventory.clone(),
                (streams.clone(), LeftToOthers::default()),
                "/nowhere".into(),
            ),
            inventory,
            streams,
            left: LeftToOthers::default(),
        };
        for (method, path, status) in [
            (Method::GET, "/healthz", 200),
            (Method::HEAD, "/healthz", 200),
            (Method::GET, "/readyz", 200),
            (Method::GET, "/metrics", 200),
            (Method::GET, "/../etc/passwd", 404),
            (Method::POST, "/metrics", 405),
        ] {
            let answer = pages.page(&method, path);
            assert_eq!(answer.status().as_u16(), status, "{method} {path}");
        }
    }
}
