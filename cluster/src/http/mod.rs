//! HTTP/1.1 servers with limits, so that no client can block other clients.

mod body;
mod probes;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, Semaphore};

pub use body::{BodyError, Intake};
pub use probes::{Probes, text};
pub use tls::{Identity, IdentityError, reload};

/// How many connections are open at once. When another client connects, idle
/// connections are closed: clients that hold connections do not block others.
const MAX_CONNECTIONS: usize = 2048;

/// How long a client may take for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be idle. Clients in Go close one after 90 s: a server that
/// closes it earlier may do so while a request is on its way.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a connection may last; it ends after the request in progress.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

/// How long the last answer of a connection may take: the body must arrive, and be
/// answered.
const LAST_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long it may take to write answers that are complete.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves, and never returns; with TLS if there is a certificate.
pub async fn serve(listener: TcpListener, router: Router, identity: Option<Arc<Identity>>) {
    serve_at_most(MAX_CONNECTIONS, listener, router, identity).await;
}

async fn serve_at_most(
    most: usize,
    listener: TcpListener,
    router: Router,
    identity: Option<Arc<Identity>>,
) {
    let open = Arc::new(Semaphore::new(most));
    let crowded = Arc::new(Notify::new());
    loop {
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if open.available_permits() == 0 {
            crowded.notify_waiters();
        }
        let Ok(permit) = Arc::clone(&open).acquire_owned().await else {
            return;
        };
        let (router, identity) = (router.clone(), identity.clone());
        // From now on it is notified, before it waits for that.
        let crowded = Arc::clone(&crowded).notified_owned();
        tokio::spawn(async move {
            match identity {
                None => answer(client, router, crowded).await,
                Some(identity) => {
                    let handshake = identity.acceptor().accept(client);
                    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
                        Ok(Ok(client)) => answer(client, router, crowded).await,
                        Ok(Err(error)) => tracing::debug!("TLS handshake: {error}"),
                        Err(_) => tracing::debug!("TLS handshake: no answer"),
                    }
                }
            }
            drop(permit);
        });
    }
}

async fn answer(
    client: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    crowded: OwnedNotified,
) {
    let mut connection = http1::Builder::new();
    connection
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        // A client may close its side when it has sent its request.
        .half_close(true);
    let router = TowerToHyperService::new(router);
    let is_asked = AtomicBool::new(false);
    let service = service_fn(|request| {
        is_asked.store(true, Ordering::Relaxed);
        let answer = router.call(request);
        async {
            let answer = answer.await;
            is_asked.store(false, Ordering::Relaxed);
            answer
        }
    });
    let connection = connection.serve_connection(TokioIo::new(client), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A client that breaks off, or sends no HTTP, does not affect others.
        _ = connection.as_mut() => return,
        () = tokio::time::sleep(CONNECTION_TIMEOUT) => {}
        () = crowded => {}
    }
    connection.as_mut().graceful_shutdown();
    let rest = match is_asked.load(Ordering::Relaxed) {
        true => LAST_ANSWER_TIMEOUT,
        false => FLUSH_TIMEOUT,
    };
    let _ = tokio::time::timeout(rest, connection).await;
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

    /// A server for `most` connections, with a slow route.
    async fn server(most: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let slow = get(async || {
            tokio::time::sleep(2 * FLUSH_TIMEOUT).await;
            "slow"
        });
        let router = Router::new()
            .route("/", get(async || "quick"))
            .route("/slow", slow);
        tokio::spawn(serve_at_most(most, listener, router, None));
        address
    }

    /// A client that has called the slow route.
    async fn asking(address: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET /slow HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        client
    }

    #[tokio::test]
    async fn a_client_that_has_closed_its_side_gets_its_answer() {
        let mut client = asking(server(4).await).await;
        client.shutdown().await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("slow"), "{answer:?}");
    }

    #[tokio::test]
    async fn clients_that_hold_all_connections_do_not_block_others() {
        let address = server(4).await;
        let mut asked = asking(address).await;
        let mut held = Vec::new();
        for _ in 0..3 {
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET / HT").await.unwrap();
            held.push(client);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        let mut answer = String::new();
        let read = client.read_to_string(&mut answer);
        // Long before the held ones would be closed for being idle.
        tokio::time::timeout(Duration::from_secs(20), read)
            .await
            .unwrap()
            .unwrap();
        assert!(answer.ends_with("quick"), "{answer}");
        // What was being answered is answered.
        let mut answer = String::new();
        asked.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("slow"), "{answer}");
    }
}
