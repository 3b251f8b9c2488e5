//! The verbs of the extender. The answers come from memory, so that no request waits for the
//! API server.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use http_server::{Answer, Limits, Method, Site, StatusCode, json, text};

use super::config::Config;
use super::metrics::Metrics;
use super::view::{PodRequest, View};
use super::wire::{Arguments, HostPriority, RefusedNodes, filter_answer};

/// The maximum length in bytes of a request's body, which is enough for 5,000 nodes as whole
/// objects.
pub const MAX_BODY: usize = 32 << 20;

pub const LIMITS: Limits = Limits {
    connections: 1024,
    body: MAX_BODY,
    memory: 48 << 20,
    keep_alive: true,
};

type Verb = fn(&Extender, &[u8]) -> serde_json::Result<Vec<u8>>;

#[derive(Debug)]
pub struct Extender {
    config: Arc<Config>,
    view: RwLock<View>,
    metrics: Metrics,
}

impl Extender {
    pub fn new(config: Config) -> Arc<Self> {
        let config = Arc::new(config);
        Arc::new(Self {
            view: RwLock::new(View::new(Arc::clone(&config))),
            config,
            metrics: Metrics::default(),
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    pub fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn change_view(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut view);
        let (nodes, pods) = view.size();
        drop(view);
        for (kind, count) in [("nodes", nodes), ("pods", pods)] {
            let gauge = self.metrics.known.get_or_create(&[("kind", kind)]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Returns the site that serves each verb under its path.
    pub fn site(self: &Arc<Self>) -> impl Site + use<> {
        let extender = Arc::clone(self);
        move |method: &Method, path: &str, body: &[u8]| extender.answer(method, path, body)
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Answer {
        let (verb, call): (_, Verb) = match path {
            "/filter" => ("filter", Self::filter),
            "/prioritize" => ("prioritize", Self::prioritize),
            _ => return text(StatusCode::NOT_FOUND, "use /filter or /prioritize\n"),
        };
        if method != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "use POST\n");
        }
        let start = Instant::now();
        let (result, answer) = match call(self, body) {
            Ok(answer) => ("ok", json(answer)),
            Err(error) => {
                let reason = format!("not a request of kube-scheduler: {error}\n");
                ("refused", text(StatusCode::BAD_REQUEST, reason))
            }
        };
        let duration = self.metrics.duration.get_or_create(&[("verb", verb)]);
        duration.observe(start.elapsed().as_secs_f64());
        let labels = [("verb", verb), ("result", result)];
        self.metrics.requests.get_or_create(&labels).inc();
        answer
    }

    /// Answers `filter` with the nodes that may have room for a pod.
    pub fn filter(&self, body: &[u8]) -> serde_json::Result<Vec<u8>> {
        let Arguments { pod, mut nodes } = Arguments::read(body)?;
        let mut refused = RefusedNodes::new();
        let view = self.view();
        // A pod whose quantities cannot be read is refused by the kubelet.
        if let (Some(request), true) =
            (PodRequest::from_pod(&pod, &self.config), view.is_complete())
        {
            for name in nodes.names() {
                if let Some(reason) = view.refusal(&request, name) {
                    refused.insert(name.to_owned(), reason);
                }
            }
        }
        drop(view);
        self.metrics.refused_nodes.inc_by(refused.len() as u64);
        nodes.retain(|name| !refused.contains_key(name));
        filter_answer(&nodes, &refused)
    }

    /// Answers `prioritize` with the score of each node for a pod.
    pub fn prioritize(&self, body: &[u8]) -> serde_json::Result<Vec<u8>> {
        let Arguments { pod, nodes } = Arguments::read(body)?;
        let request = PodRequest::from_pod(&pod, &self.config).unwrap_or_default();
        let view = self.view();
        let known = view.is_complete() && !request.is_empty();
        let priority = |host| HostPriority {
            host,
            score: if known { view.score(&request, host) } else { 0 },
        };
        let priorities: Vec<_> = nodes.names().into_iter().map(priority).collect();
        drop(view);
        serde_json::to_vec(&priorities)
    }
}
