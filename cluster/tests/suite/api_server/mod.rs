//! A fake API server with the functions that these programs and `boathook-dra` use: objects
//! with resource versions, lists in pages, watches, 410 Gone for versions that are too old,
//! and writes with preconditions. Tests can stop the server and start it again at the same
//! address.

mod request;
mod store;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use kube::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use request::Target;
use store::Store;

/// The collection of the Events of all namespaces.
const EVENTS_KIND: &str = "/apis/events.k8s.io/v1/events";

/// A fake API server.
pub(crate) struct ApiServer {
    address: SocketAddr,
    state: Arc<State>,
    serving: Option<JoinHandle<()>>,
}

pub(crate) struct State {
    store: Mutex<Store>,
    changed: watch::Sender<u64>,
}

impl State {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap()
    }
}

impl ApiServer {
    /// Starts a server without objects.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(State {
            store: Mutex::default(),
            changed: watch::Sender::new(0),
        });
        let address = listener.local_addr().unwrap();
        let serving = Some(tokio::spawn(serve(listener, Arc::clone(&state))));
        Self {
            address,
            state,
            serving,
        }
    }

    pub(crate) fn client(&self) -> Client {
        let uri = self.url().parse().unwrap();
        Client::try_from(kube::Config::new(uri)).unwrap()
    }

    /// Returns the URL of the server for clients.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Closes all connections, and refuses new ones.
    pub(crate) async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// Accepts connections again.
    pub(crate) async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serving = Some(tokio::spawn(serve(listener, Arc::clone(&self.state))));
    }

    /// Creates or replaces an object at a path such as `/api/v1/nodes/a`.
    pub(crate) fn put(&self, path: &str, object: Value) {
        let target = Target::of_path(path);
        let version = self.state.store().write(&target, object);
        self.state.changed.send_replace(version);
    }

    /// Returns the objects of a collection.
    #[allow(dead_code, reason = "of one of the crates that use it")]
    pub(crate) fn list(&self, path: &str) -> Vec<Value> {
        let target = Target::of_path(path);
        let page = self
            .state
            .store()
            .page(&target, &request::Parameters::default());
        page["items"].as_array().unwrap().clone()
    }

    /// Lets the server drop fields of `spec` and of devices, as an API server does whose
    /// feature gates are off.
    #[allow(dead_code, reason = "of one of the crates that use it")]
    pub(crate) fn drop_fields(&self, fields: &[&str]) {
        self.state.store().dropped = fields.iter().map(|field| (*field).to_owned()).collect();
    }

    /// Returns the number of writes by clients.
    #[allow(dead_code, reason = "of one of the crates that use it")]
    pub(crate) fn writes(&self) -> usize {
        self.state.store().writes
    }

    #[allow(dead_code, reason = "of one of the crates that use it")]
    pub(crate) fn delete(&self, path: &str) {
        let version = self.state.store().delete(&Target::of_path(path));
        self.state.changed.send_replace(version);
    }

    /// Calls `then` once, after the object at `path` was read and before the answer is sent.
    #[allow(dead_code, reason = "of one of the crates that use it")]
    pub(crate) fn when_read(&self, path: &str, then: impl FnOnce() + Send + 'static) {
        self.state.store().when_read = Some((Target::of_path(path), Box::new(then)));
    }

    /// Calls `then` once, after the given number of further writes and deletions, before the
    /// answer to the last one is sent.
    #[allow(dead_code, reason = "of one of the crates that use it")]
    pub(crate) fn when_written(&self, writes: usize, then: impl FnOnce() + Send + 'static) {
        self.state.store().when_written = Some((writes, Box::new(then)));
    }

    /// Drops the history of changes, as a compaction of etcd does.
    pub(crate) fn compact(&self) {
        self.state.store().compact();
    }

    /// Returns the number of pages of lists that were sent.
    pub(crate) fn lists(&self) -> usize {
        self.state.store().lists
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    // The connections end with this task.
    let mut connections = JoinSet::new();
    let router = Router::new().fallback(move |request: Request| {
        let state = Arc::clone(&state);
        async move { answer(&state, request).await }
    });
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let service = TowerToHyperService::new(router.clone());
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(client), service);
        connections.spawn(async move { drop(connection.await) });
    }
}

async fn answer(state: &Arc<State>, request: Request) -> Response {
    let target = Target::of_path(request.uri().path());
    if request.method() != Method::GET {
        return write(state, target, request).await;
    }
    let parameters = request::Parameters::parse(request.uri().query().unwrap_or_default());
    if parameters.watch {
        watch(state, target, parameters)
    } else if target.name.is_some() {
        let (object, then) = state.store().read(&target);
        then.into_iter().for_each(|then| then());
        json(object.ok_or((StatusCode::NOT_FOUND, "NotFound")))
    } else {
        let page = state.store().page(&target, &parameters);
        ([("content-type", "application/json")], page.to_string()).into_response()
    }
}

async fn write(state: &Arc<State>, mut target: Target, request: Request) -> Response {
    let method = request.method().clone();
    let body = axum::body::to_bytes(request.into_body(), 16 << 20).await;
    let body: Value = serde_json::from_slice(&body.unwrap()).unwrap_or_default();
    // Events report what was done, and tests count what was done.
    if target.kind == EVENTS_KIND {
        let own_name = body["metadata"]["name"].as_str().map(str::to_owned);
        target.name = target.name.or(own_name);
        state.store().write(&target, body.clone());
        return json(Ok(body));
    }
    let written = match method {
        Method::POST => state.store().create(&mut target, body),
        Method::PUT => state.store().replace(&target, body),
        Method::DELETE => state.store().remove(&target, &body["preconditions"]),
        _ => panic!("{method}"),
    };
    let version = state.store().version;
    state.changed.send_replace(version);
    let then = state.store().written();
    if let Some(then) = then {
        then();
    }
    json(written)
}

/// Returns the response for an object, or for the failure with its status and reason.
fn json(answer: Result<Value, (StatusCode, &str)>) -> Response {
    let (code, object) = match answer {
        Ok(object) => (StatusCode::OK, object),
        Err((code, reason)) => {
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {},
                "status": "Failure", "message": reason, "reason": reason, "code": code.as_u16()});
            (code, status)
        }
    };
    let json = ("content-type", "application/json");
    (code, [json], object.to_string()).into_response()
}

/// Returns the response to a watch: the changes since the client's version, and then each
/// change when it is made.
fn watch(state: &Arc<State>, target: Target, parameters: request::Parameters) -> Response {
    struct Position {
        state: Arc<State>,
        changed: watch::Receiver<u64>,
        version: u64,
    }
    let position = Position {
        state: Arc::clone(state),
        changed: state.changed.subscribe(),
        version: parameters.version,
    };
    let lines = futures::stream::unfold(position, move |mut position| {
        let (target, parameters) = (target.clone(), parameters.clone());
        async move {
            loop {
                position.changed.borrow_and_update();
                let (events, version) =
                    position
                        .state
                        .store()
                        .events(&target, &parameters, position.version);
                position.version = version;
                if !events.is_empty() {
                    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
                    return Some((Ok::<_, std::convert::Infallible>(lines), position));
                }
                position.changed.changed().await.ok()?;
            }
        }
    });
    (StatusCode::OK, Body::from_stream(lines)).into_response()
}
