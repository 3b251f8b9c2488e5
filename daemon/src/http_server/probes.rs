//! The pages for monitoring. `/healthz` and `/readyz` are for the kubelet's probes, and `/metrics`
//! is for Prometheus.

use crate::http_server::answer::{self, build_text_answer};
use crate::http_server::{Answer, Method, StatusCode};

/// The content type of the page `/metrics` (OpenMetrics 1.0).
const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers a request for `/healthz`, `/readyz` or `/metrics`. `write_metrics` returns the content
/// of `/metrics`. `check_readiness` returns a text for people if the process is ready to work.
/// Otherwise it returns the reason why the process is not ready.
pub fn answer_probe(
    method: &Method,
    path: &str,
    write_metrics: impl FnOnce() -> String,
    check_readiness: impl FnOnce() -> Result<String, String>,
) -> Answer {
    if ![Method::GET, Method::HEAD].contains(method) {
        return build_text_answer(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
    }
    match path {
        "/metrics" => {
            answer::build_answer(StatusCode::OK, OPEN_METRICS_TYPE, write_metrics().into())
        }
        // The text does not matter. Any answer shows that the process does not hang.
        "/healthz" => build_text_answer(StatusCode::OK, "ok\n"),
        "/readyz" => match check_readiness() {
            Ok(state) => build_text_answer(StatusCode::OK, format!("{state}\n")),
            Err(reason) => {
                build_text_answer(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
            }
        },
        _ => build_text_answer(
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
