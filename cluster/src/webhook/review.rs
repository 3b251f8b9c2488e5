//! Answers reviews.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use device_class::name::excerpt;
use tokio::sync::watch;

use super::admission::{API_VERSION, AdmissionReview, Answer, Request};
use super::mappings::Mappings;
use super::metrics::{Metrics, ResultLabels};
use super::mutate::mutate;
use super::pod::Pod;
use crate::http::{Intake, text};

/// The longest body, in bytes. The API server accepts no request of more than 3 MiB.
pub const MAX_BODY: usize = 8 << 20;

/// The memory for all bodies at once, in bytes.
const BODY_BUDGET: usize = 32 << 20;

/// How long a pod waits for the first list of mappings; the API server waits for 10 s.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Reviewer {
    mappings: RwLock<Mappings>,
    complete: watch::Sender<bool>,
    has_certificate: AtomicBool,
    metrics: Metrics,
    intake: Intake,
}

impl Default for Reviewer {
    fn default() -> Self {
        Self {
            mappings: RwLock::default(),
            complete: watch::Sender::new(false),
            has_certificate: AtomicBool::new(false),
            metrics: Metrics::default(),
            intake: Intake::new(MAX_BODY, BODY_BUDGET),
        }
    }
}

impl Reviewer {
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Why it cannot answer reviews; `None` if it can.
    pub fn waits_for(&self) -> Option<&'static str> {
        if !self.has_certificate.load(Ordering::Relaxed) {
            return Some("there is no certificate yet");
        }
        (!*self.complete.borrow()).then_some("the mappings have not been listed yet")
    }

    /// The webhook has a certificate.
    pub fn certified(&self) {
        self.has_certificate.store(true, Ordering::Relaxed);
    }

    /// Changes the known objects.
    pub fn change<T>(&self, change: impl FnOnce(&mut Mappings) -> T) -> T {
        let mut mappings = self
            .mappings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut mappings);
        let count = i64::try_from(mappings.count()).unwrap_or(i64::MAX);
        self.metrics.names.set(count);
        self.complete.send_replace(mappings.are_complete());
        result
    }

    /// The webhook, under its path.
    pub fn router(self: &Arc<Self>) -> Router {
        let reviewer = Arc::clone(self);
        Router::new().route(
            "/pods",
            post(async move |body: Body| reviewer.answer(body).await),
        )
    }

    async fn answer(&self, body: Body) -> Response {
        let (body, _permit) = match self.intake.read(body).await {
            Ok(taken) => taken,
            Err(error) => {
                self.count("invalid");
                return error.into_response();
            }
        };
        let answer = match self.review(&body).await {
            Ok(answer) => serde_json::to_vec(&answer).map_err(|error| error.to_string()),
            Err(reason) => Err(reason),
        };
        match answer {
            Ok(answer) => {
                let kind = HeaderValue::from_static("application/json");
                ([(CONTENT_TYPE, kind)], answer).into_response()
            }
            Err(reason) => {
                self.count("invalid");
                text(StatusCode::BAD_REQUEST, format!("{reason}\n"))
            }
        }
    }

    /// Reviews a request's body.
    pub async fn review(&self, body: &[u8]) -> Result<Answer, String> {
        let asked: AdmissionReview<'_> = serde_json::from_slice(body)
            .map_err(|error| format!("not an admission review: {error}"))?;
        if asked.api_version != API_VERSION {
            return Err(format!(
                "{}: not {API_VERSION}",
                excerpt(&asked.api_version)
            ));
        }
        let request = asked.request;
        let pod: Option<Pod<'_>> = match request.object.filter(|_| is_new_pod(&request)) {
            Some(object) => serde_json::from_str(object.get())
                .map_err(|error| format!("the pod cannot be reviewed: {error}"))?,
            None => None,
        };
        let Some(pod) = pod.filter(Pod::asks) else {
            self.count("unchanged");
            return admit(request.uid, &json_patch::Patch::default(), Vec::new());
        };
        let mut complete = self.complete.subscribe();
        let listed = tokio::time::timeout(LIST_TIMEOUT, complete.wait_for(|complete| *complete));
        if listed.await.is_err() {
            self.count("denied");
            let message = "the webhook has not listed AcceleratorFunctions and FpgaRegions yet: \
                           it cannot reach the API server, or has no right to list them";
            return Ok(Answer::deny(request.uid, 503, message.to_owned()));
        }
        let namespace = self.mappings.read().unwrap_or_else(PoisonError::into_inner);
        let namespace = namespace.namespace(&request.namespace);
        match mutate(&pod, &namespace) {
            Err(denial) => {
                self.count("denied");
                let message = format!("{denial} (namespace {})", excerpt(&request.namespace));
                tracing::info!("denied: {message}");
                Ok(Answer::deny(request.uid, 403, message))
            }
            Ok(mutation) => {
                let changed = !mutation.patch.0.is_empty();
                self.count(if changed { "mapped" } else { "unchanged" });
                admit(request.uid, &mutation.patch, mutation.warnings)
            }
        }
    }

    fn count(&self, result: &'static str) {
        let labels = ResultLabels { result };
        self.metrics.reviews.get_or_create(&labels).inc();
    }
}

fn admit(uid: String, patch: &json_patch::Patch, warnings: Vec<String>) -> Result<Answer, String> {
    Answer::admit(uid, patch, warnings).map_err(|error| error.to_string())
}

fn is_new_pod(request: &Request<'_>) -> bool {
    request.resource.group.is_empty()
        && request.resource.resource == "pods"
        && request.sub_resource.as_deref().is_none_or(str::is_empty)
        && request.operation == "CREATE"
}
