//! The extender's verbs. Answers come from memory: no request waits for the API
//! server.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use super::config::Config;
use super::metrics::{KindLabels, Metrics, RequestLabels, VerbLabels};
use super::view::{Asks, View};
use super::wire::{Arguments, Refused, filter_answer, prioritize_answer};
use crate::http::{Intake, text};

/// The longest body of a request, in bytes: 5,000 nodes as whole objects.
pub const MAX_BODY: usize = 32 << 20;

/// The memory for all bodies at once, in bytes.
const BODY_BUDGET: usize = 64 << 20;

#[derive(Debug)]
pub struct Extender {
    config: Arc<Config>,
    view: RwLock<View>,
    metrics: Metrics,
    intake: Intake,
}

impl Extender {
    /// An extender without nodes and pods.
    pub fn new(config: Config) -> Arc<Self> {
        let config = Arc::new(config);
        Arc::new(Self {
            view: RwLock::new(View::new(Arc::clone(&config))),
            config,
            metrics: Metrics::default(),
            intake: Intake::new(MAX_BODY, BODY_BUDGET),
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The known nodes and pods.
    pub fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the known objects.
    pub fn change(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut view);
        let (nodes, pods) = view.size();
        drop(view);
        for (kind, count) in [("nodes", nodes), ("pods", pods)] {
            let gauge = self.metrics.known.get_or_create(&KindLabels { kind });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// The verbs, each under its path.
    pub fn router(self: &Arc<Self>) -> Router {
        let verb = |verb: &'static str, answer: fn(&Self, &[u8]) -> serde_json::Result<Vec<u8>>| {
            let extender = Arc::clone(self);
            post(async move |body: Body| extender.answer(verb, answer, body).await)
        };
        Router::new()
            .route("/filter", verb("filter", Self::filter))
            .route("/prioritize", verb("prioritize", Self::prioritize))
    }

    async fn answer(
        &self,
        verb: &'static str,
        answer: fn(&Self, &[u8]) -> serde_json::Result<Vec<u8>>,
        body: Body,
    ) -> Response {
        let (response, result) = match self.intake.read(body).await {
            Err(error) => (error.into_response(), "refused"),
            Ok((body, _permit)) => match self.timed(verb, answer, &body) {
                Ok(answer) => {
                    let kind = HeaderValue::from_static("application/json");
                    (([(CONTENT_TYPE, kind)], answer).into_response(), "ok")
                }
                Err(error) => {
                    let reason = format!("not a request of kube-scheduler: {error}\n");
                    (text(StatusCode::BAD_REQUEST, reason), "refused")
                }
            },
        };
        let labels = RequestLabels { verb, result };
        self.metrics.requests.get_or_create(&labels).inc();
        response
    }

    fn timed(
        &self,
        verb: &'static str,
        answer: fn(&Self, &[u8]) -> serde_json::Result<Vec<u8>>,
        body: &[u8],
    ) -> serde_json::Result<Vec<u8>> {
        let start = Instant::now();
        let answer = answer(self, body);
        let duration = self.metrics.duration.get_or_create(&VerbLabels { verb });
        duration.observe(start.elapsed().as_secs_f64());
        answer
    }

    /// Which nodes have room for a pod. Changes nothing.
    pub fn filter(&self, body: &[u8]) -> serde_json::Result<Vec<u8>> {
        let Arguments {
            spelling,
            pod,
            mut nodes,
        } = Arguments::read(body)?;
        let mut refused = Refused::new();
        let view = self.view();
        // A pod that cannot be counted is the kubelet's to refuse.
        if let (Ok(asks), true) = (Asks::of(&pod, &self.config), view.is_complete()) {
            for name in nodes.names() {
                if let Some(reason) = view.refusal(&asks, name) {
                    refused.insert(name.to_owned(), reason);
                }
            }
        }
        drop(view);
        self.metrics.refused_nodes.inc_by(refused.len() as u64);
        nodes.retain(|name| !refused.contains_key(name));
        filter_answer(spelling, &nodes, refused)
    }

    /// The score of each node for a pod.
    pub fn prioritize(&self, body: &[u8]) -> serde_json::Result<Vec<u8>> {
        let Arguments {
            spelling,
            pod,
            nodes,
        } = Arguments::read(body)?;
        let asks = Asks::of(&pod, &self.config).unwrap_or_default();
        let view = self.view();
        let known = view.is_complete() && !asks.is_empty();
        let score = |name| {
            let score = if known { view.score(&asks, name) } else { 0 };
            (name, score)
        };
        let scores: Vec<(&str, u8)> = nodes.names().into_iter().map(score).collect();
        drop(view);
        prioritize_answer(spelling, &scores)
    }
}
