//! Serves the pages `/healthz`, `/readyz` and `/metrics` of the two programs.

use std::io;
use std::net::SocketAddr;
use std::thread;

use anyhow::Context;
use daemon::http_server;
use daemon::http_server::{Limits, Method, answer_probe};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime;

/// Starts a thread that serves the pages of this process at `address` until the process ends.
/// `find_unready_reason` returns the reason why the process is not ready, or `None` if it is ready.
///
/// The thread is separate, so that the kubelet's probes are answered in time even if many clients
/// use the other port of the process.
pub fn start_server(
    address: SocketAddr,
    registry: Registry,
    find_unready_reason: impl Fn() -> Option<&'static str> + Send + Sync + 'static,
) -> anyhow::Result<()> {
    let render_metrics = move || {
        let mut page = String::new();
        // The result is ignored, because writing to a string cannot fail.
        let _ = encode(&mut page, &registry);
        page
    };
    let check_readiness =
        move || find_unready_reason().map_or(Ok("ok".to_owned()), |reason| Err(reason.to_owned()));
    let answer_request = move |method: &Method, path: &str, _: &[u8]| {
        answer_probe(method, path, &render_metrics, &check_readiness)
    };
    let listener = listen(address)?.into_std()?;
    let serve_pages = move || {
        // The runtime is created inside this closure, which only the new thread runs. If the caller
        // created it and the thread could not start, the caller would drop the runtime inside its
        // own runtime, which panics.
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener)?;
            http_server::serve(listener, Limits::PAGE_SERVER, answer_request).await;
            io::Result::Ok(())
        })
    };
    let run_thread = move || {
        if let Err(error) = serve_pages() {
            tracing::error!("cannot serve {address}: {error}");
        }
    };
    let thread = thread::Builder::new()
        .name("pages".into())
        .spawn(run_thread);
    thread.map(drop).context("cannot start a thread")
}

/// Returns a socket that listens at `address`. The error message contains the address.
pub fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    http_server::listen(address).with_context(|| format!("cannot listen on {address}"))
}
