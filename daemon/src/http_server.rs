//! An HTTP/1.1 server that stays available to honest clients while hostile clients attack it. The
//! plugin, the DRA driver, the scheduler extender and the webhook use it for metrics, probes and
//! reviews.
//!
//! Requests, TLS handshakes and answers are limited in size and time. If the server runs out of
//! connections or memory, it closes a connection of the client address that uses the most. So a
//! client that opens too many connections harms only clients of its own address. The server does
//! not serve files, and never connects to an address that a request contains.

mod answer;
mod body;
mod connections;
mod probes;
#[cfg(feature = "tls")]
pub mod tls;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
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

pub use answer::{Answer, build_json_answer, build_text_answer};
pub use hyper::{Method, StatusCode};
pub use probes::answer_probe;

use answer::LeasedBytes;
use body::BodyError;
use connections::{ConnectionPermit, Connections, MemoryLimitError};

/// The maximum length in bytes of a request's head: the request line and the header fields. A
/// longer head is answered with status 431.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The time limit for a TLS handshake. The head of the first request has the same limit. If one of
/// them is exceeded, the connection is closed without an answer.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which the server closes an idle connection. Clients written in Go close an idle
/// connection after 90 seconds, so this time is longer. If the server closed a connection first, a
/// request that the client sends at that moment would be lost.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The age after which a connection accepts no more requests. The server still answers the request
/// in progress, and then closes the connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

/// The time limit for the answer to the last request of a connection. If it is exceeded, the
/// connection is closed. Without keep-alive, a connection has only one request.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum number of new connections that wait in the kernel until they are accepted
/// (listen(2)). The kernel also limits it to `net.core.somaxconn`. If the queue is full, the kernel
/// drops the SYN of a client, and the client sends it again after a second.
const LISTEN_BACKLOG: u32 = 4096;

/// The time between two attempts to admit connections from the queue of waiting connections.
const ADMISSION_INTERVAL: Duration = Duration::from_millis(10);

/// The limits of the resources that a server uses, whatever its clients do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of connections that are served at the same time. In addition, half as
    /// many connections can wait in the queue.
    pub max_connections: usize,
    /// The maximum length in bytes of a request's body. A longer body is answered with status 413.
    pub max_body_bytes: usize,
    /// The maximum memory in bytes for the bodies and answers of all connections together.
    pub max_memory_bytes: usize,
    /// Whether a client may send several requests over one connection.
    pub keep_alive: bool,
}

impl Limits {
    /// The limits of a server that serves only metrics and probes.
    pub const PAGE_SERVER: Self = Self {
        max_connections: 128,
        max_body_bytes: 0,
        max_memory_bytes: 8 << 20,
        keep_alive: false,
    };
}

/// Computes the answers to requests. Every function that takes a method, a path and a body and
/// returns an answer implements this trait.
pub trait Handler: Send + Sync + 'static {
    /// Computes the answer to a request. The body of the request has arrived completely.
    fn answer(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> impl Future<Output = Answer> + Send;
}

impl<F: Fn(&Method, &str, &[u8]) -> Answer + Send + Sync + 'static> Handler for F {
    fn answer(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> impl Future<Output = Answer> + Send {
        std::future::ready(self(method, path, body))
    }
}

/// Returns a socket that listens on a TCP address. The manifests give the address `[::]` to the
/// programs of all nodes, but a kernel without IPv6 cannot listen on it. The socket then listens on
/// `0.0.0.0`, which means all IPv4 addresses.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = listen_on(address);
    match &listener {
        Err(error)
            if address.ip() == Ipv6Addr::UNSPECIFIED
                && error.kind() != io::ErrorKind::AddrInUse =>
        {
            let ipv4_address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
            listen_on(ipv4_address).or(listener)
        }
        _ => listener,
    }
}

/// Returns a socket that listens on exactly this address. Because of `SO_REUSEADDR`, a restarted
/// server can listen on the address even if closed connections of the previous process are still
/// in the state TIME_WAIT.
fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// Serves HTTP on a listening socket until the future is dropped.
pub async fn serve<S: Handler>(listener: TcpListener, limits: Limits, handler: S) {
    accept_connections(listener, limits, handler, |client| async { Some(client) }).await;
}

/// Serves HTTPS on a listening socket until the future is dropped.
#[cfg(feature = "tls")]
pub async fn serve_tls<S: Handler>(
    listener: TcpListener,
    limits: Limits,
    handler: S,
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
    accept_connections(listener, limits, handler, handshake).await;
}

async fn accept_connections<S, H, F, C>(
    listener: TcpListener,
    limits: Limits,
    handler: S,
    handshake: H,
) where
    S: Handler,
    H: Fn(TcpStream) -> F,
    F: Future<Output = Option<C>> + Send + 'static,
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let open_connections = Arc::new(Connections::new(limits));
    let handler = Arc::new(handler);
    // If the set is dropped, the tasks of all connections end. So no connection outlives the
    // server.
    let mut connection_tasks = JoinSet::new();
    // Connections wait in this queue instead of the kernel's backlog. So a client with few open
    // connections can be served before a client with many.
    let mut waiting_clients = VecDeque::new();
    loop {
        tokio::select! {
            result = listener.accept(), if waiting_clients.len() <= limits.max_connections / 2 => match result {
                Ok((client, address)) => waiting_clients.push_back((address.ip(), client)),
                Err(error) => {
                    tracing::warn!("cannot accept an HTTP connection: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            () = tokio::time::sleep(ADMISSION_INTERVAL), if !waiting_clients.is_empty() => {}
        }
        while connection_tasks.try_join_next().is_some() {}
        while let Some((permit, client)) = open_connections.admit(&mut waiting_clients) {
            let (handler, handshake) = (Arc::clone(&handler), handshake(client));
            connection_tasks.spawn(async move {
                let permit = &permit;
                let service = async {
                    if let Some(client) = handshake.await {
                        serve_requests(client, permit, limits, &*handler).await;
                    }
                };
                tokio::select! {
                    () = permit.wait_for_close_request() => {}
                    () = service => {}
                }
            });
        }
    }
}

/// Answers the requests of one connection until the connection ends. Errors are not returned or
/// logged. Otherwise clients could fill the log: they only need to disconnect, or to send something
/// else than HTTP.
async fn serve_requests(
    client: impl AsyncRead + AsyncWrite + Unpin,
    permit: &ConnectionPermit,
    limits: Limits,
    handler: &impl Handler,
) {
    let head_notify = Notify::new();
    let service = service_fn(|request: Request<Incoming>| {
        head_notify.notify_one();
        async {
            let answer = respond(request, permit, limits, handler).await;
            permit.record_answer();
            Ok::<Response<Full<Bytes>>, Infallible>(answer)
        }
    });
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        // A client may close its sending direction after the request, and still read the answer.
        .half_close(true)
        .keep_alive(limits.keep_alive);
    let connection = server.serve_connection(TokioIo::new(client), service);
    let mut connection = std::pin::pin!(connection);
    let first_head_timeout = tokio::time::timeout(HEAD_TIMEOUT, head_notify.notified());
    tokio::select! {
        _ = connection.as_mut() => return,
        result = first_head_timeout => if result.is_err() { return },
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
    permit: &ConnectionPermit,
    limits: Limits,
    handler: &impl Handler,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let mut memory_lease = permit.lease_memory();
    let mut answer = match body::read_body(body, limits.max_body_bytes, &mut memory_lease).await {
        Ok(body) => {
            let answer = handler.answer(&head.method, head.uri.path(), &body);
            answer.await
        }
        Err(error) => error.to_answer(),
    };
    if let Err(MemoryLimitError) = memory_lease.resize(answer.body().len()) {
        answer = BodyError::MemoryLimitReached.to_answer();
    }
    answer.map(|bytes| {
        Full::new(Bytes::from_owner(LeasedBytes {
            bytes,
            lease: memory_lease,
        }))
    })
}

#[cfg(test)]
mod tests {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, apply_filter,
    };

    use super::*;

    /// Makes socket(2) fail for IPv6 in this thread, as on a kernel that was started with
    /// `ipv6.disable=1`.
    fn hide_ipv6() {
        let (family, equal) = (libc::AF_INET6 as u64, SeccompCmpOp::Eq);
        let is_ipv6 = SeccompCondition::new(0, SeccompCmpArgLen::Dword, equal, family).unwrap();
        let rule = SeccompRule::new(vec![is_ipv6]).unwrap();
        let filter = SeccompFilter::new(
            [(libc::SYS_socket, vec![rule])].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EAFNOSUPPORT as u32),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let program: BpfProgram = filter.unwrap().try_into().unwrap();
        apply_filter(&program).unwrap();
    }

    /// Listens on an address, in a thread of its own. Returns the address, or the error.
    fn listen_in_thread(address: &'static str, has_ipv6: bool) -> Result<SocketAddr, String> {
        let run = move || {
            if !has_ipv6 {
                hide_ipv6();
            }
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_all().build().unwrap().block_on(async {
                let listener = listen(address.parse().unwrap());
                listener.and_then(|listener| listener.local_addr())
            })
        };
        let result = std::thread::spawn(run).join().unwrap();
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn a_node_without_ipv6_is_served_by_ipv4() {
        for (address, has_ipv6, expected) in [
            ("0.0.0.0:0", false, Ok("0.0.0.0")),
            ("[::]:0", false, Ok("0.0.0.0")),
            ("[::1]:0", false, Err("Address family not supported")),
            ("[::]:0", true, Ok("::")),
        ] {
            match (listen_in_thread(address, has_ipv6), expected) {
                (Ok(found), Ok(ip)) => assert_eq!(found.ip().to_string(), ip, "{address}"),
                (Err(error), Err(text)) => assert!(error.contains(text), "{address}: {error}"),
                (found, expected) => panic!("{address}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn an_address_in_use_is_no_lack_of_ipv6() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let _context = runtime.enter();
        let Ok(first) = std::net::TcpListener::bind("[::]:0") else {
            return skip::report("an IPv6 address in use", "this machine has no IPv6");
        };
        let error = listen(first.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
