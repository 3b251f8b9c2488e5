//! `/healthz`, `/readyz` and `/metrics`.

use http_server::{Limits, Method, probe};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Serves until it is dropped. The process is ready when the kubelet has registered it.
pub(crate) async fn serve(
    listener: Option<TcpListener>,
    registry: Registry,
    registered: watch::Receiver<bool>,
) {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    let metrics = move || {
        let mut page = String::new();
        // Writing to a text cannot fail.
        let _ = encode(&mut page, &registry);
        page
    };
    let ready = move || match *registered.borrow() {
        true => Ok("ok".to_owned()),
        false => Err("the kubelet has not registered the driver".to_owned()),
    };
    let pages = move |method: &Method, path: &str, _: &[u8]| probe(method, path, &metrics, &ready);
    http_server::serve(listener, Limits::PAGES, pages).await;
}
