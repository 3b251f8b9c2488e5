//! `/healthz`, `/readyz` and `/metrics`.

use std::io;
use std::net::SocketAddr;
use std::thread;

use anyhow::Context;
use http_server::{Limits, Method, probe};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime;

/// Serves the pages of a process until it ends. `not_ready_reason` returns the reason why the
/// process is not ready, or `None` if it is ready.
///
/// The pages have a thread of their own, so that they do not wait for the handshakes and
/// requests of the other port.
pub fn start(
    address: SocketAddr,
    registry: Registry,
    not_ready_reason: impl Fn() -> Option<&'static str> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let metrics = move || {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut page, &registry);
        page
    };
    let ready =
        move || not_ready_reason().map_or(Ok("ok".to_owned()), |reason| Err(reason.to_owned()));
    let pages = move |method: &Method, path: &str, _: &[u8]| probe(method, path, &metrics, &ready);
    let listener = listen(address)?.into_std()?;
    let serve = move || {
        // The runtime is created in this function: a runtime must not be dropped inside
        // another runtime, which would happen after an error.
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            http_server::serve(listener, Limits::PAGES, pages).await;
            io::Result::Ok(())
        })
    };
    let report = move || {
        if let Err(error) = serve() {
            tracing::error!("cannot serve {address}: {error}");
        }
    };
    let thread = thread::Builder::new().name("pages".into()).spawn(report);
    thread.map(drop).context("cannot start a thread")
}

/// Listens at an address from the command line.
pub fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    http_server::listen(address).with_context(|| format!("cannot listen on {address}"))
}
