//! An HTTP/1.1 server that hostile clients cannot stop. Heads, bodies, handshakes and answers
//! have limits of size and time. If connections or memory run short, the server closes
//! connections of the address that has the most, so that a client takes room from other
//! clients of its own address first.

mod answer;
mod body;
mod connections;
mod probes;
#[cfg(feature = "tls")]
pub mod tls;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

pub use answer::{Answer, json, text};
pub use hyper::{Method, StatusCode};
pub use probes::probe;

use answer::LeasedBytes;
use body::BodyError;
use connections::{Connections, NoMemory, OpenConnection};

/// The maximum length in bytes of a request's head.
const MAX_HEAD: usize = 16 << 10;

/// The time limit for a TLS handshake, and after it for the head of the first request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The time for which a connection may be idle. Clients written in Go close an idle connection
/// after 90 seconds. A server that closes it earlier may do so while a request is on its way.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The maximum duration of a connection. It ends after the request in progress.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

/// The time limit for the last request of a connection. Without keep-alive this is its only
/// request.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of connections that the kernel keeps until they are accepted, if
/// `net.core.somaxconn` allows it. A client that finds no place there tries again after a
/// second.
const BACKLOG: u32 = 4096;

/// The time between two searches for a free place for a waiting connection.
const SEARCH_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of open connections. Half as many can wait for a place.
    pub connections: usize,
    /// The maximum length in bytes of a request's body.
    pub body: usize,
    /// The memory in bytes for all bodies and answers together.
    pub memory: usize,
    /// Whether a connection may have several requests.
    pub keep_alive: bool,
}

impl Limits {
    /// The limits of a server that serves only metrics and probes.
    pub const PAGES: Self = Self {
        connections: 128,
        body: 0,
        memory: 8 << 20,
        keep_alive: false,
    };
}

/// A site computes the answer to a request's method, path and body. A plain function is a site
/// that answers at once, without waiting.
pub trait Site: Send + Sync + 'static {
    /// Returns the answer to a request.
    fn answer(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> impl Future<Output = Answer> + Send;
}

impl<F: Fn(&Method, &str, &[u8]) -> Answer + Send + Sync + 'static> Site for F {
    fn answer(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> impl Future<Output = Answer> + Send {
        std::future::ready(self(method, path, body))
    }
}

pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves a site until the future is dropped.
pub async fn serve<S: Site>(listener: TcpListener, limits: Limits, site: S) {
    accept(listener, limits, site, |client| async { Some(client) }).await;
}

/// Serves a site with TLS until the future is dropped.
#[cfg(feature = "tls")]
pub async fn serve_tls<S: Site>(
    listener: TcpListener,
    limits: Limits,
    site: S,
    identity: Arc<tls::Identity>,
) {
    let acceptor = identity.acceptor();
    let handshake = move |client| {
        let handshake = acceptor.accept(client);
        async {
            match tokio::time::timeout(HEAD_TIMEOUT, handshake).await {
                Ok(client) => client.ok(),
                Err(_) => None,
            }
        }
    };
    accept(listener, limits, site, handshake).await;
}

async fn accept<S, H, F, C>(listener: TcpListener, limits: Limits, site: S, handshake: H)
where
    S: Site,
    H: Fn(TcpStream) -> F,
    F: Future<Output = Option<C>> + Send + 'static,
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let open = Arc::new(Connections::new(limits));
    let site = Arc::new(site);
    // The connections end with this task.
    let mut connections = JoinSet::new();
    // Connections wait in this queue and not in the kernel's backlog, so that a client with
    // few open connections is served before one with many.
    let mut waiting = VecDeque::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if waiting.len() <= limits.connections / 2 => match accepted {
                Ok((client, address)) => waiting.push_back((address.ip(), client)),
                Err(error) => {
                    tracing::warn!("cannot accept an HTTP connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            () = tokio::time::sleep(SEARCH_INTERVAL), if !waiting.is_empty() => {}
        }
        while connections.try_join_next().is_some() {}
        while let Some((entry, client)) = open.enter(&mut waiting) {
            let (site, handshake) = (Arc::clone(&site), handshake(client));
            connections.spawn(async move {
                let entry = &entry;
                let served = async {
                    if let Some(client) = handshake.await {
                        serve_requests(client, entry, limits, &*site).await;
                    }
                };
                tokio::select! {
                    () = entry.wait_for_close() => {}
                    () = served => {}
                }
            });
        }
    }
}

/// Answers the requests of one connection. A client that breaks off, or sends no HTTP,
/// does not affect others.
async fn serve_requests(
    client: impl AsyncRead + AsyncWrite + Unpin,
    entry: &OpenConnection,
    limits: Limits,
    site: &impl Site,
) {
    let requested = Notify::new();
    let service = service_fn(|request: Request<Incoming>| {
        requested.notify_one();
        async {
            let answer = respond(request, entry, limits, site).await;
            entry.note_answer();
            Ok::<Response<Full<Bytes>>, Infallible>(answer)
        }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        // A client may close its sending side after its request.
        .half_close(true)
        .keep_alive(limits.keep_alive);
    let connection = server.serve_connection(TokioIo::new(client), service);
    let mut connection = std::pin::pin!(connection);
    let first = tokio::time::timeout(HEAD_TIMEOUT, requested.notified());
    tokio::select! {
        _ = connection.as_mut() => return,
        first = first => if first.is_err() { return },
    }
    if limits.keep_alive {
        tokio::select! {
            _ = connection.as_mut() => return,
            () = tokio::time::sleep(CONNECTION_TIMEOUT) => {}
        }
        connection.as_mut().graceful_shutdown();
    }
    let _ = tokio::time::timeout(LAST_REQUEST_TIMEOUT, connection).await;
}

async fn respond(
    request: Request<Incoming>,
    entry: &OpenConnection,
    limits: Limits,
    site: &impl Site,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let mut lease = entry.lease();
    let answer = match body::read(body, limits.body, &mut lease).await {
        Ok(body) => {
            let answer = site.answer(&head.method, head.uri.path(), &body);
            answer.await
        }
        Err(error) => text(error.status(), format!("{error}\n")),
    };
    let answer = match lease.resize(answer.body().len()) {
        Ok(()) => answer,
        Err(NoMemory) => {
            let error = BodyError::Busy;
            text(error.status(), format!("{error}\n"))
        }
    };
    answer.map(|bytes| Full::new(Bytes::from_owner(LeasedBytes { bytes, lease })))
}
