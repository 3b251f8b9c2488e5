//! The pages for monitoring: `/healthz` and `/readyz` for the probes of the kubelet, and
//! `/metrics` for Prometheus.

use crate::answer::{self, text};
use crate::{Answer, Method, StatusCode};

/// The content type of a page of metrics (OpenMetrics 1.0).
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers a request for `/healthz`, `/readyz` or `/metrics`. `metrics` returns the page of
/// metrics. `ready` returns a text for people if the process is ready to work, and otherwise the
/// reason why it is not.
pub fn answer_probe(
    method: &Method,
    path: &str,
    metrics: impl FnOnce() -> String,
    ready: impl FnOnce() -> Result<String, String>,
) -> Answer {
    if ![Method::GET, Method::HEAD].contains(method) {
        return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
    }
    match path {
        "/metrics" => answer::build_answer(StatusCode::OK, OPEN_METRICS, metrics().into()),
        // The text does not matter: that the process answers shows that it is not stuck.
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" => match ready() {
            Ok(state) => text(StatusCode::OK, format!("{state}\n")),
            Err(reason) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
        },
        _ => text(
            StatusCode::NOT_FOUND,
            "not found; use /metrics, /healthz or /readyz\n",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_follows_from_method_path_and_readiness() {
        for (method, path, ready, status) in [
            (Method::GET, "/healthz", false, 200),
            (Method::HEAD, "/healthz", true, 200),
            (Method::GET, "/readyz", true, 200),
            (Method::GET, "/readyz", false, 503),
            (Method::GET, "/metrics", true, 200),
            (Method::GET, "/../etc/passwd", true, 404),
            (Method::POST, "/metrics", true, 405),
        ] {
            let state = || ready.then(|| "ok".to_owned()).ok_or("not yet".to_owned());
            let answer = answer_probe(&method, path, String::new, state);
            assert_eq!(answer.status().as_u16(), status, "{method} {path}");
        }
    }
}
