//! Answers the API server's admission reviews of new pods.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use daemon::http_server::{
    Handler, Limits, Method, StatusCode, build_json_answer, build_text_answer,
};
use device_class::name::excerpt;
use json_patch::Patch;
use serde_json::Value;

use super::admission::{API_VERSION, AdmissionRequest, AdmissionReview, admit, deny};
use super::mappings::Mappings;
use super::metrics::Metrics;
use super::mutate::plan_mutation;
use super::pod::Pod;

/// The maximum length of a request's body, in bytes. A review contains an object, and the API
/// server accepts no object of more than 3 MiB.
pub const MAX_BODY_BYTES: usize = 8 << 20;

/// The limits of the HTTP server that answers the API server.
pub const LIMITS: Limits = Limits {
    max_connections: 1024,
    max_body_bytes: MAX_BODY_BYTES,
    max_memory_bytes: 16 << 20,
    keep_alive: true,
};

/// The mappings and the metrics of the webhook. The threads that answer reviews read them, and the
/// tasks that watch AcceleratorFunction and FpgaRegion objects change them.
#[derive(Debug, Default)]
pub struct Reviewer {
    mappings: RwLock<Mappings>,
    metrics: Metrics,
}

impl Reviewer {
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Returns the reason why the webhook cannot answer reviews yet. Returns `None` as soon as all
    /// mappings have been listed.
    pub fn find_unready_reason(&self) -> Option<&'static str> {
        let is_complete = self.mappings().is_complete();
        (!is_complete).then_some("the mappings have not been listed yet")
    }

    fn mappings(&self) -> RwLockReadGuard<'_, Mappings> {
        self.mappings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the mappings, and updates the metric with the new number of friendly names.
    pub fn change_mappings<T>(&self, change: impl FnOnce(&mut Mappings) -> T) -> T {
        let mut mappings = self
            .mappings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut mappings);
        let count = i64::try_from(mappings.count()).unwrap_or(i64::MAX);
        self.metrics.friendly_name_count.set(count);
        result
    }

    /// Returns an HTTP handler that answers reviews under the path `/pods`.
    pub fn handler(self: &Arc<Self>) -> impl Handler + use<> {
        let reviewer = Arc::clone(self);
        move |method: &Method, path: &str, body: &[u8]| {
            if path != "/pods" {
                return build_text_answer(StatusCode::NOT_FOUND, "use /pods\n");
            }
            if method != Method::POST {
                return build_text_answer(StatusCode::METHOD_NOT_ALLOWED, "use POST\n");
            }
            match reviewer.review(body) {
                Ok(answer) => build_json_answer(answer.to_string().into()),
                Err(reason) => {
                    reviewer.count_review("invalid");
                    build_text_answer(StatusCode::BAD_REQUEST, format!("{reason}\n"))
                }
            }
        }
    }

    /// Answers one admission review. A pod that requests no FPGA is admitted without a change, even
    /// before the mappings have been listed.
    ///
    /// # Errors
    /// Returns the reason why the webhook cannot parse the body as a review.
    pub fn review(&self, body: &[u8]) -> Result<Value, String> {
        let review: AdmissionReview<'_> = serde_json::from_slice(body)
            .map_err(|error| format!("not an admission review: {error}"))?;
        if review.api_version != API_VERSION {
            return Err(format!(
                "{}: not {API_VERSION}",
                excerpt(&review.api_version)
            ));
        }
        let request = review.request;
        let _span = tracing::error_span!("review", uid = %excerpt(&request.uid)).entered();
        let pod: Option<Pod<'_>> = match request.object.filter(|_| is_new_pod(&request)) {
            Some(object) => serde_json::from_str(object.get())
                .map_err(|error| format!("the pod cannot be reviewed: {error}"))?,
            None => None,
        };
        let Some(pod) = pod.filter(Pod::requests_mapped_resources) else {
            self.count_review("unchanged");
            return Ok(admit(&request.uid, &Patch::default(), Vec::new()));
        };
        let mappings = self.mappings();
        if !mappings.is_complete() {
            self.count_review("denied");
            let message = "the webhook has not listed AcceleratorFunctions and FpgaRegions yet: \
                           it cannot reach the API server, or has no right to list them";
            return Ok(deny(&request.uid, 503, message));
        }
        let namespace = mappings.namespace(&request.namespace);
        drop(mappings);
        match plan_mutation(&pod, &namespace) {
            Err(denial) => {
                self.count_review("denied");
                let message = format!("{denial} (namespace {})", excerpt(&request.namespace));
                tracing::info!("denied: {message}");
                Ok(deny(&request.uid, 403, &message))
            }
            Ok(mutation) => {
                let is_changed = !mutation.patch.0.is_empty();
                self.count_review(if is_changed { "mapped" } else { "unchanged" });
                Ok(admit(&request.uid, &mutation.patch, mutation.warnings))
            }
        }
    }

    fn count_review(&self, result: &'static str) {
        let reviews = &self.metrics.reviews;
        reviews.get_or_create(&[("result", result)]).inc();
    }
}

fn is_new_pod(request: &AdmissionRequest<'_>) -> bool {
    request.resource.group.is_empty()
        && request.resource.resource == "pods"
        && request.sub_resource.as_deref().is_none_or(str::is_empty)
        && request.operation == "CREATE"
}
