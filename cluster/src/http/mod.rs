//! HTTP/1.1 servers that stay up whatever their clients do.

mod body;
mod probes;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

pub use body::{BodyError, Intake};
pub use probes::{Probes, text};
pub use tls::{Identity, IdentityError, reload};

/// How many connections are open at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 2048;

/// How long a client may take for a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may be idle. Clients in Go give up one after 90 s: a server that
/// is first might do so while a request is on its way.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a connection may last; it ends after the request in progress.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(600);

/// Answers for ever, with TLS if there is an identity to show.
pub async fn serve(listener: TcpListener, router: Router, identity: Option<Arc<Identity>>) {
    let open = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&open).acquire_owned().await else {
            return;
        };
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (router, identity) = (router.clone(), identity.clone());
        tokio::spawn(async move {
            match identity {
                None => answer(client, router).await,
                Some(identity) => {
                    let handshake = identity.acceptor().accept(client);
                    match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
                        Ok(Ok(client)) => answer(client, router).await,
                        Ok(Err(error)) => tracing::debug!("TLS handshake: {error}"),
                        Err(_) => tracing::debug!("TLS handshake: no answer"),
                    }
                }
            }
            drop(permit);
        });
    }
}

async fn answer(client: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut connection = http1::Builder::new();
    connection
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_TIMEOUT)
        // A client may close its side when it has sent its request.
        .half_close(true);
    let service = TowerToHyperService::new(router);
    let connection = connection.serve_connection(TokioIo::new(client), service);
    let mut connection = std::pin::pin!(connection);
    // A client that breaks off, or sends no HTTP, concerns nobody else.
    let ended = tokio::time::timeout(CONNECTION_TIMEOUT, connection.as_mut()).await;
    if ended.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(IDLE_TIMEOUT, connection).await;
    }
}
