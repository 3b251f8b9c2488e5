//! `/healthz`, `/readyz` and `/metrics`.

use crate::answer::{self, text};
use crate::{Answer, Method, StatusCode};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the answer to a request for one of the pages. `ready` returns a text if the process
/// is ready, or the reason why it is not.
pub fn probe(
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
        // Any answer shows that the process is not stuck.
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
    fn each_method_and_path_has_its_status() {
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
            let answer = probe(&method, path, String::new, state);
            assert_eq!(answer.status().as_u16(), status, "{method} {path}");
        }
    }
}
