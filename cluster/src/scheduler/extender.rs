//! Answers the calls `filter` and `prioritize`, which kube-scheduler sends to the extender. The
//! answers come from memory, so that no call waits for the API server.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Instant;

use daemon::http_server::{
    Answer, Handler, Limits, Method, StatusCode, build_json_answer, build_text_answer,
};

use super::config::Config;
use super::extender_api::{ExtenderRequest, HostPriority, RefusedNodes, build_filter_answer};
use super::metrics::Metrics;
use super::view::{ClusterView, PodRequest};

/// The maximum length of a request's body, in bytes. It is enough for the whole node objects of
/// 5,000 nodes, the largest cluster that Kubernetes supports.
pub const MAX_BODY_BYTES: usize = 32 << 20;

/// The limits of the HTTP server that answers kube-scheduler.
pub const LIMITS: Limits = Limits {
    max_connections: 1024,
    max_body_bytes: MAX_BODY_BYTES,
    max_memory_bytes: 48 << 20,
    keep_alive: true,
};

/// A function that answers a call of kube-scheduler. It gets the body of the request, and returns
/// the body of the answer.
type VerbFunction = fn(&Extender, &[u8]) -> serde_json::Result<Vec<u8>>;

/// The scheduler extender. It is shared by the threads that answer calls and the tasks that watch
/// the cluster.
#[derive(Debug)]
pub struct Extender {
    config: Arc<Config>,
    view: RwLock<ClusterView>,
    metrics: Metrics,
}

impl Extender {
    pub fn new(config: Config) -> Arc<Self> {
        let config = Arc::new(config);
        Arc::new(Self {
            view: RwLock::new(ClusterView::new(Arc::clone(&config))),
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

    pub fn view(&self) -> RwLockReadGuard<'_, ClusterView> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the view of the cluster, and updates the metrics with the new numbers of nodes and
    /// pods.
    pub fn update_view(&self, change: impl FnOnce(&mut ClusterView)) {
        let mut view = self.view.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut view);
        let (nodes, pods) = view.count_nodes_and_pods();
        drop(view);
        for (kind, count) in [("nodes", nodes), ("pods", pods)] {
            let gauge = self.metrics.object_count.get_or_create(&[("kind", kind)]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Returns an HTTP handler that serves each verb of the extender under its path, such as
    /// `/filter`.
    pub fn handler(self: &Arc<Self>) -> impl Handler + use<> {
        let extender = Arc::clone(self);
        move |method: &Method, path: &str, body: &[u8]| extender.answer(method, path, body)
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Answer {
        let (verb, verb_function): (_, VerbFunction) = match path {
            "/filter" => ("filter", Self::filter),
            "/prioritize" => ("prioritize", Self::prioritize),
            _ => return build_text_answer(StatusCode::NOT_FOUND, "use /filter or /prioritize\n"),
        };
        if method != Method::POST {
            return build_text_answer(StatusCode::METHOD_NOT_ALLOWED, "use POST\n");
        }
        let start_time = Instant::now();
        let (result, answer) = match verb_function(self, body) {
            Ok(answer) => ("ok", build_json_answer(answer)),
            Err(error) => {
                let reason = format!("not a request of kube-scheduler: {error}\n");
                (
                    "refused",
                    build_text_answer(StatusCode::BAD_REQUEST, reason),
                )
            }
        };
        let duration = self
            .metrics
            .request_duration
            .get_or_create(&[("verb", verb)]);
        duration.observe(start_time.elapsed().as_secs_f64());
        let labels = [("verb", verb), ("result", result)];
        self.metrics.requests.get_or_create(&labels).inc();
        answer
    }

    /// Answers a call of `filter`: returns the candidate nodes whose devices may have room for the
    /// pod. Until all nodes and pods have been listed, all candidates pass, so that the extender
    /// does not delay pods when it starts.
    pub fn filter(&self, body: &[u8]) -> serde_json::Result<Vec<u8>> {
        let ExtenderRequest { pod, mut nodes } = ExtenderRequest::parse(body)?;
        let mut refused_nodes = RefusedNodes::new();
        let view = self.view();
        // A pod with an invalid quantity passes on every node. The kubelet refuses such a pod with
        // a better message.
        if let (Some(request), true) =
            (PodRequest::from_pod(&pod, &self.config), view.is_complete())
        {
            for name in nodes.names() {
                if let Some(reason) = view.find_refusal_reason(&request, name) {
                    refused_nodes.insert(name.to_owned(), reason);
                }
            }
        }
        drop(view);
        self.metrics
            .refused_nodes
            .inc_by(refused_nodes.len() as u64);
        nodes.retain(|name| !refused_nodes.contains_key(name));
        build_filter_answer(&nodes, &refused_nodes)
    }

    /// Answers a call of `prioritize` with a score for each candidate node. All scores are 0 until
    /// all nodes and pods have been listed, or if the pod requests none of the configured
    /// resources.
    pub fn prioritize(&self, body: &[u8]) -> serde_json::Result<Vec<u8>> {
        let ExtenderRequest { pod, nodes } = ExtenderRequest::parse(body)?;
        let request = PodRequest::from_pod(&pod, &self.config).unwrap_or_default();
        let view = self.view();
        let can_score = view.is_complete() && !request.is_empty();
        let compute_priority = |host| HostPriority {
            host,
            score: if can_score {
                view.compute_score(&request, host)
            } else {
                0
            },
        };
        let priorities: Vec<_> = nodes.names().into_iter().map(compute_priority).collect();
        drop(view);
        serde_json::to_vec(&priorities)
    }
}
