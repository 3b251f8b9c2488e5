//! `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The contents of the pages.
pub struct Probes {
    /// Why the process is not ready; `None` if it is.
    pub waiting_for: Box<dyn Fn() -> Option<String> + Send + Sync>,
    /// The metrics.
    pub registry: Registry,
}

/// An answer in plain text.
pub fn text(status: StatusCode, text: String) -> Response {
    (status, text).into_response()
}

impl Probes {
    pub fn router(self) -> Router {
        let probes = Arc::new(self);
        let ready = Arc::clone(&probes);
        Router::new()
            // Any answer shows that the process is not stuck.
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(async move || ready.readiness()))
            .route("/metrics", get(async move || probes.metrics()))
    }

    fn readiness(&self) -> Response {
        match (self.waiting_for)() {
            None => text(StatusCode::OK, "ok\n".to_owned()),
            Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
        }
    }

    fn metrics(&self) -> Response {
        let mut page = String::new();
        match prometheus_client::encoding::text::encode(&mut page, &self.registry) {
            Ok(()) => {
                let mut answer = text(StatusCode::OK, page);
                let kind = HeaderValue::from_static(OPEN_METRICS);
                answer.headers_mut().insert(CONTENT_TYPE, kind);
                answer
            }
            Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "no metrics\n".to_owned()),
        }
    }
}
